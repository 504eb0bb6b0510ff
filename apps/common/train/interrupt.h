/* apps/common/train/interrupt.h: SIGINT and SIGTERM ask a program to end, and it ends properly.
 *
 *     interrupt_catch("weir-gpt");          before anything is worth keeping a signal ends the program at once
 *     ... compile, open, load ...
 *     interrupt_stops(session);             from here on the first one stops the session's run after the step
 *     ... run; look at interrupt_caught() between runs ...
 *     interrupt_stops(NULL);                before the session is closed
 *     return interrupt_caught() ? interrupt_status(interrupt_caught()) : 0;
 *
 * A second signal ends the program at once, by _exit(): who saves, samples or waits for a rank that is gone is not
 * waited for. Two that come within a fifth of a second are one: timeout(1), a terminal and a resource manager signal a
 * process and its group, so that one wish arrives twice.
 *
 * A signal that was ignored when the program was started (nohup, a shell's background job) stays ignored. The state is
 * the process's: there is one of this. interrupt_catch() comes first; then any thread.
 */
#ifndef APPS_COMMON_TRAIN_INTERRUPT_H
#define APPS_COMMON_TRAIN_INTERRUPT_H

#include <weir/weir.h>

/* Takes SIGINT and SIGTERM over. The first signal, if it is the only one so far, is answered with one line on stderr in
 * this program's name; NULL: with none, as on a rank that does not speak. */
void interrupt_catch(const char *program);

/* The session whose run the first signal stops, and from where on it no longer ends the program at once; NULL: only the
 * latter. When this returns no handler looks at the session before any more, and it may be closed. */
void interrupt_stops(weir_session *session);

/* Returns the signal that was caught (0: none) and forgets it; the next one ends the program at once. For a program in which a signal
 * ends one task of many, as a reply of a chat. Not while a session stops. */
int interrupt_forget(void);

/* The signal that asked this process to end; 0: none did. */
int interrupt_caught(void);

/* The status that a shell gives to the end by this signal: 130, 143. */
int interrupt_status(int signal);

#endif
