/* transport/ucx/ucx.c: see the header. */
#define _GNU_SOURCE
#include "transport/ucx/ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <ucs/debug/log_def.h>

#include "graph/base/error.h"
#include "graph/base/library.h"
#include "graph/base/locale.h"

static struct ucx ucx;
static char trouble[256]; /* "": none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local bool quiet;
static _Thread_local char last_error[256];

/* ---- what it would print ---- */

void ucx_quiet(void)
{
    quiet = true;
    last_error[0] = 0;
}

void ucx_loud(void)
{
    quiet = false;
}

const char *ucx_last_error(void)
{
    return last_error;
}

/* Other users of UCX in the program go on to hear of their own. */
static ucs_log_func_rc_t heard(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                               const ucs_log_component_config_t *component, const char *message, va_list list)
{
    (void)file, (void)line, (void)function, (void)component;
    if (quiet && level <= UCS_LOG_LEVEL_ERROR)
        text_vprint(last_error, sizeof last_error, message, list);
    return quiet ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

/* ---- the libraries ---- */

static void find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name); /* in what it rests on, too */
    if (!*(void **)function && !*trouble)
        snprintf(trouble, sizeof trouble, "libucp.so.0 has no %s", name);
}

/* Its constructor has handlers for crashes and for SIGHUP, which belong to the program: those that were there come back.
 * Where the program has UCX itself, that is its affair. */
static void signals_return(void *library)
{
    void (*disable_signals)(void);
    find(library, "ucs_debug_disable_signals", (void *)&disable_signals);
    if (disable_signals)
        disable_signals();
}

/* Code that UCX calls from now on may not go away. */
static void stay(void)
{
    Dl_info own;
    if (dladdr(&ucx, &own))
        dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void load(void)
{
    __typeof__(ucs_log_push_handler) *push_handler;
    bool there = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD);
    void *library = library_open("libucp.so.0", trouble, sizeof trouble);
    if (!library)
        return;
    if (!there)
        signals_return(library);
#define X(name) find(library, #name, (void *)&ucx.name);
    UCX_FUNCTIONS(X)
#undef X
    find(library, "ucs_log_push_handler", (void *)&push_handler);
    if (*trouble)
        return;
    stay();
    push_handler(heard);
}

weir_status ucx_load(const struct ucx **to)
{
    pthread_once(&once, load);
    *to = &ucx;
    return *trouble ? error_set(WEIR_E_UNSUPPORTED, "WEIR_CARRIER lists ucx, and UCX cannot be loaded (Debian's libucx0): %s",
                                 trouble)
                    : WEIR_OK;
}
