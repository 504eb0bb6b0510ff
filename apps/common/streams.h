/* apps/common/streams.h: standard input, output and error from a program's first statement to its last.
 *
 *     int main(int argc, char **argv)
 *     {
 *         streams_begin();
 *         return streams_end("demo", demo(argc, argv));
 *     }
 *
 * Every main returns through streams_end(), so a program that prints checks nothing itself: a text that did not reach
 * standard output (a full disk, a closed descriptor, a reader that has gone while SIGPIPE is ignored) is one sentence on
 * stderr and an exit status that is not 0. Keeps no state. Before other threads start, and after they have ended.
 */
#ifndef APPS_COMMON_STREAMS_H
#define APPS_COMMON_STREAMS_H

/* Descriptors 0 to 2 that the caller has closed are held by something that can be neither read nor written. Otherwise
 * the next file that the program opens would get such a number, and what it prints would go into that file. */
void streams_begin(void);

/* Flushes and closes standard output, and flushes standard error. Returns `status`, or 1 when it is 0 and a stream has
 * lost what was written to it. A program that was started without standard error may write to it, and loses nothing. */
int streams_end(const char *program, int status);

#endif
