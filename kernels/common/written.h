/* kernels/common/written.h: which options a program wrote, where 0 is a value and also "left out".
 *
 *     weir_sum(x, .axes = {0}, ...)     the macro passes the text ".axes = {0}, ..." as the option .written
 *
 * Header-only; the graph's thread.
 */
#ifndef KERNELS_COMMON_WRITTEN_H
#define KERNELS_COMMON_WRITTEN_H

#include <stdbool.h>
#include <string.h>

static inline bool written_in_name(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Whether the text of the options has this member, ".axes": not in a string, nor as a part of another name. `text` may be NULL. */
static inline bool written_member(const char *text, const char *member)
{
    char quote = 0, before = ' ';
    const size_t length = strlen(member);
    for (const char *at = text; at && *at; before = *at++) {
        if (quote && *at == '\\' && at[1])
            at++;
        else if (quote ? *at == quote : *at == '"' || *at == '\'')
            quote = quote ? 0 : *at;
        else if (!quote && !strncmp(at, member, length) && !written_in_name(at[length]) &&
                 !written_in_name(before) && before != ')' && before != ']')
            return true;
    }
    return false;
}

#endif
