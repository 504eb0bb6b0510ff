/* apps/common/options_files.h: no output of a program is one file with another of its outputs or with one of its inputs.
 *
 * options_parse() checks what a command line names (options_entry.file), and standard output and error where they lead to
 * a file, before the program has opened anything. Two names of one file count: another path, a symbolic link, a hard
 * link. Devices as /dev/null may be named as often as one likes. Keeps no state.
 */
#ifndef APPS_COMMON_OPTIONS_FILES_H
#define APPS_COMMON_OPTIONS_FILES_H

#include "apps/common/options.h"

/* -1, or OPTIONS_WRONG after reporting two names of one file. */
int options_check_files(const options_spec *spec);

/* The same of a file that the program reads although the command line does not name it. */
int options_check_input(const options_spec *spec, const char *path);

#endif
