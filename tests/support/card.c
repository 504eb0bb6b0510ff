/* tests/support/card.c: see the header. */
#include "tests/support/card.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "regst/plugin.h"

#ifndef EMULATED_PLUGIN
#define EMULATED_PLUGIN ""
#endif

static void (*set)(const standin_options *options);
static standin_seen (*look)(void);
static void (*launch)(void *stream, void (*run)(void *), void *data);

static void find(void *object, const char *name, void *to)
{
    *(void **)to = dlsym(object, name);
    cr_assert_not_null(*(void **)to, "%s has no %s", EMULATED_PLUGIN, name);
}

bool card_real(void)
{
    const char *cards = getenv("WEIR_TEST_CARDS");
    return cards && !strcmp(cards, "real");
}

/* A card takes things in its own order; it cannot be told to be another. */
static void expect_plain(const standin_options *options)
{
    standin_options plain = {.seed = options ? options->seed : 0};
    if (options && memcmp(&plain, options, sizeof plain) != 0)
        cr_skip_test("only a stand-in is such a card");
}

void card_open(const standin_options *options)
{
    if (card_real()) {
        expect_plain(options);
        return;
    }
    if (access(EMULATED_PLUGIN, R_OK))
        cr_skip_test("there is no CUDA toolkit here, whose headers the emulated plugin needs");
    setenv("WEIR_CUDA_PLUGIN", EMULATED_PLUGIN, 1);
    void *object = dlopen(EMULATED_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(object, "%s", dlerror());
    find(object, "standin_set", &set);
    find(object, "standin_look", &look);
    find(object, "standin_call", &launch);
    set(options);
}

void card_need(uint32_t count)
{
    uint32_t there = 0;
    if (card_real() && (plugin_need(WEIR_CUDA) || device_find(WEIR_CUDA)->count(&there) || there < count))
        cr_skip_test("here are not so many cards");
}

void card_set(const standin_options *options)
{
    if (card_real())
        expect_plain(options);
    else
        set(options);
}

standin_seen card_look(void)
{
    return card_real() ? (standin_seen){.calls = 0} : look();
}

const char *card_left(void)
{
    static char text[300];
    standin_seen seen = card_look();
    if (seen.misuses)
        snprintf(text, sizeof text, "%s", seen.misuse);
    else if (seen.spaces || seen.pinned || seen.registered || seen.streams || seen.events || seen.comms || seen.descriptors)
        snprintf(text, sizeof text,
                 "left: %" PRIu64 " spaces, %" PRIu64 " of pinned memory, %" PRIu64 " registered, %" PRIu64 " streams, %" PRIu64
                 " events, %" PRIu64 " communicators, %" PRIu64 " descriptors of products",
                 seen.spaces, seen.pinned, seen.registered, seen.streams, seen.events, seen.comms, seen.descriptors);
    else
        return NULL;
    return text;
}

void card_close(void)
{
    const char *left = card_left();
    cr_expect_null(left, "%s", left);
}

void card_launch(void *stream, void (*run)(void *), void *data)
{
    if (card_real())
        cr_skip_test("the kernel is one of a stand-in's");
    launch(stream, run, data);
}
