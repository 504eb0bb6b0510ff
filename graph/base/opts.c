/* graph/base/opts.c: see opts.h. Structures grow at their end alone, so what both sides know is what the smaller has. */
#include "graph/base/opts.h"
#include "graph/base/error.h"

#include <string.h>

static bool any_set(const unsigned char *bytes, size_t count)
{
    while (count && !bytes[count - 1])
        count--;
    return count;
}

const char *opts_copy(void *own, size_t own_bytes, const void *given, size_t given_bytes)
{
    size_t common = given_bytes < own_bytes ? given_bytes : own_bytes;
    memset(own, 0, own_bytes);
    if (any_set((const unsigned char *)given + common, given_bytes - common))
        return "this call was compiled for a newer weir: it sets what this one does not know (weir_version() tells which "
               "runs)";
    memcpy(own, given, common);
    return NULL;
}

const char *opts_take(void *own, size_t own_bytes, const void *given)
{
    opts_head head = {.size = sizeof head};
    const char *wrong = NULL;
    memset(own, 0, own_bytes);
    if (given)
        memcpy(&head, given, sizeof head);
    if (head.size < sizeof head)
        wrong = "the size of its options is not set: begin them with WEIR_OPTS(), as the call without \"_at\" does, or "
                "set .size = sizeof of them";
    else if (given)
        wrong = opts_copy(own, own_bytes, given, head.size);
    head = (opts_head){own_bytes, head.src.file ? head.src : (weir_src){"?", 0}};
    memcpy(own, &head, sizeof head);
    return wrong;
}

weir_src opts_src(const void *own)
{
    opts_head head;
    memcpy(&head, own, sizeof head);
    return head.src;
}

weir_status opts_read(void *own, size_t own_bytes, const void *given, const char *call)
{
    const char *wrong = opts_take(own, own_bytes, given);
    const weir_src src = opts_src(own);
    return wrong ? error_set(WEIR_E_ARGUMENT, "%s:%d: %s: %s", src.file, src.line, call, wrong) : WEIR_OK;
}
