/* actors/keep/lock.h: one program saves in a root at a time.
 *
 * A lock is an open-file-description lock (fcntl, F_OFD_SETLK) on the file ROOT/.lock, so it ends with the process, and
 * network file systems know it. The file says who holds it, for the error that the next program gets. Its last holder
 * removes it, unless somebody else has made it.
 *
 *     process A   take ---- save, save ------------------- release
 *     process B               take: "process 71 of host a saves there"        take
 *
 * Within a process a lock is counted: a program takes it at its start, and its sessions take it again, at their first
 * save. They may save in turn; keep_lock_begin() lets one save at a time pass.
 *
 * On a file system without locks a lock is taken and does not hold others off: keep_lock_works() tells. Any thread.
 */
#ifndef ACTORS_KEEP_LOCK_H
#define ACTORS_KEEP_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/checkpoint.h>

#define KEEP_LOCK_NAME ".lock"

/* Takes the lock of the root, which is made when it is not there. Waits up to `wait_ns` for another process to give it
 * up. E_IO: another process holds it, or the root cannot be written. */
weir_status keep_lock_take(const char *root, int64_t wait_ns, weir_checkpoint_lock **lock);

/* As often as it was taken; NULL is nothing. Does nothing in a child that fork() has made. */
void keep_lock_release(weir_checkpoint_lock *lock);

/* Whether other processes are held off. */
bool keep_lock_works(const weir_checkpoint_lock *lock);

/* Before a save and after it. False: another save of this process is under way. */
bool keep_lock_begin(weir_checkpoint_lock *lock);
void keep_lock_end(weir_checkpoint_lock *lock);

#endif
