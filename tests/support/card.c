/* tests/support/card.c: see the header. */
#include "tests/support/card.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

void card_open(const standin_options *options)
{
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

void card_set(const standin_options *options)
{
    set(options);
}

standin_seen card_look(void)
{
    return look();
}

const char *card_left(void)
{
    static char text[300];
    standin_seen seen = look();
    if (seen.misuses)
        snprintf(text, sizeof text, "%s", seen.misuse);
    else if (seen.spaces || seen.pinned || seen.registered || seen.streams || seen.events)
        snprintf(text, sizeof text,
                 "left: %" PRIu64 " spaces, %" PRIu64 " of pinned memory, %" PRIu64 " registered, %" PRIu64 " streams, %" PRIu64
                 " events",
                 seen.spaces, seen.pinned, seen.registered, seen.streams, seen.events);
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
    launch(stream, run, data);
}
