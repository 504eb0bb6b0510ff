/* tests/support/amx_machine.h: a processor with AMX, as far as products of bf16 and of bytes need one, on a machine that has none.
 *
 *     amx_machine_enter();                       // products use AMX: the processor's own, or this
 *     ...
 *     amx_machine_leave();                       // fails the test if nothing did
 *
 *     amx_machine_start(AMX_MACHINE_RIGHT);      // from now on LDTILECFG, TILELOADD, ... are executed here
 *     ...
 *     uint64_t products = amx_machine_stop();    // how many products of tiles there were, in all threads
 *
 * A processor without AMX raises SIGILL at each of its instructions. The handler reads the instruction where it lies,
 * does what it should have done, and goes on behind it. So what is tested is the machine code that runs elsewhere, its
 * operands and the order of its instructions, not a copy of it in C. An instruction that a processor would refuse
 * (tiles that are not set up, sizes that do not fit, reserved bits) ends the process with SIGILL, as there. The
 * emulation follows the pseudocode of Intel's manual (volume 2, TDPBF16PS and TDPBSUD; volume 1, chapter 18).
 *
 * Memory is read and written by this file, so AddressSanitizer sees a tile that lies partly beside its matrix.
 *
 * Each thread has tile registers of its own. Where the processor does have AMX nothing is ever executed here. A test
 * starts and stops it in one thread, while no other is computing.
 */
#ifndef TESTS_SUPPORT_AMX_MACHINE_H
#define TESTS_SUPPORT_AMX_MACHINE_H

#include <stdint.h>

/* The broken ones forget the last of 16 rows, of products of bf16 or of bytes. */
typedef enum amx_machine { AMX_MACHINE_RIGHT, AMX_MACHINE_BROKEN_PAIRS, AMX_MACHINE_BROKEN_BYTES } amx_machine;

void amx_machine_start(amx_machine kind);
uint64_t amx_machine_stop(void);

void amx_machine_enter(void);
void amx_machine_leave(void);

#endif
