/* actors/keep/own.h: which folders a save may remove or replace.
 *
 * A save replaces the checkpoint of its name, prunes older ones, and removes what a crashed save has left. It touches
 * only folders that are proven to be weir's own:
 *
 *     a checkpoint          its index.json is whole (format, version, checksum), and the folder has no other entries
 *                           than the index and the files that the index names
 *     a save under way      the folder has the mark, and no other entries than those that a save makes
 *     an empty folder       there is nothing to lose
 *
 * Everything else is foreign and stays, whatever its name is. A symbolic link to a checkpoint may be replaced or
 * removed; its target stays.
 *
 * The mark is an empty file that a save makes first and removes when the index is written. In a folder that is being
 * removed the index, or the mark, goes last: a crash leaves a folder that is still proven.
 *
 * Any thread; keeps no state.
 */
#ifndef ACTORS_KEEP_OWN_H
#define ACTORS_KEEP_OWN_H

#include "actors/keep/format/files.h"

#define KEEP_MARK_NAME ".weir-save"

enum keep_owner {
    KEEP_NONE,    /* there is nothing */
    KEEP_EMPTY,   /* an empty folder */
    KEEP_OURS,    /* a checkpoint, or a save under way; or a symbolic link to a checkpoint */
    KEEP_FOREIGN, /* anything else */
};

/* Whose the entry at `path` is. `why` (of `why_bytes`; may be NULL) gets a clause for KEEP_FOREIGN, else "":
 * "it has notes.txt in it". */
enum keep_owner keep_owner_of(const char *path, char *why, size_t why_bytes);

/* Removes what is at `path` when it is ours, or an empty folder. Follows no symbolic link. True: nothing is there any
 * more. False with errno; ENOTEMPTY: something in it is foreign, and stays. */
bool keep_remove_own(const struct keep_files *files, const char *path);

#endif
