/* transport/net/ucx.c: see the header. */
#define _GNU_SOURCE
#include "transport/net/ucx.h"

#ifdef UCX_BUILT
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "graph/base/error.h"

enum { SIGNALS = 65 };

static struct ucx ucx;
static __typeof__(ucs_log_push_handler) *push_handler;
static char trouble[256]; /* "": none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local bool quiet;
static _Thread_local char said[256];

/* ---- what it would print ---- */

void ucx_quiet(void)
{
    quiet = true;
    said[0] = 0;
}

void ucx_loud(void)
{
    quiet = false;
}

const char *ucx_said(void)
{
    return said;
}

/* Whatever else of the program uses UCX goes on to hear of its own. */
static ucs_log_func_rc_t heard(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                               const ucs_log_component_config_t *component, const char *message, va_list list)
{
    (void)file, (void)line, (void)function, (void)component;
    if (quiet && level <= UCS_LOG_LEVEL_ERROR)
        vsnprintf(said, sizeof said, message, list);
    return quiet ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

/* ---- signals ---- */

static bool of_library(const void *function, const char *library)
{
    Dl_info info;
    return dladdr(function, &info) && info.dli_fname && strstr(info.dli_fname, library);
}

static void actions_note(struct sigaction before[SIGNALS])
{
    for (int s = 1; s < SIGNALS; s++)
        if (sigaction(s, NULL, &before[s]))
            before[s] = (struct sigaction){.sa_handler = SIG_ERR};
}

/* Its constructors have handlers for crashes, which belong to the program. Those of others stay: another thread may have
 * come between. */
static void actions_undo(const struct sigaction before[SIGNALS])
{
    struct sigaction now;
    for (int s = 1; s < SIGNALS; s++)
        if (before[s].sa_handler != SIG_ERR && !sigaction(s, NULL, &now) && now.sa_handler != before[s].sa_handler &&
            of_library((const void *)now.sa_handler, "/libucs."))
            sigaction(s, &before[s], NULL);
}

/* ---- the libraries ---- */

static void find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name); /* in what it rests on, too */
    if (!*(void **)function && !*trouble)
        snprintf(trouble, sizeof trouble, "libucp.so.0 has no %s", name);
}

static void load(void)
{
    struct sigaction before[SIGNALS];
    actions_note(before);
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    actions_undo(before);
    if (!library) {
        snprintf(trouble, sizeof trouble, "%.200s", dlerror());
        return;
    }
#define X(name) find(library, #name, (void *)&ucx.name);
    UCX_FUNCTIONS(X)
#undef X
    find(library, "ucs_log_push_handler", (void *)&push_handler);
    Dl_info own;
    if (*trouble)
        return;
    if (dladdr(&ucx, &own)) /* what is called from now on may not go away */
        dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    push_handler(heard);
}

weir_status ucx_load(const struct ucx **to)
{
    pthread_once(&once, load);
    *to = &ucx;
    return *trouble ? error_set(WEIR_E_UNSUPPORTED, "WEIR_CARRIER is ucx, and UCX cannot be loaded: %s", trouble)
                    : WEIR_OK;
}

#else
typedef int ucx_not_built; /* a file has to have something in it */
#endif
