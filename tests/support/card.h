/* tests/support/card.h: CUDA devices for suites, where no card is: the plugin that is built from the driver's own sources with
 * the stand-ins of tests/cuda in the place of CUDA.
 *
 *     card_open(&(standin_options){.seed = 3, .cards = 2});    // or the test is skipped: there is no toolkit here
 *     ... sessions on cuda:0-1 ...
 *     card_close();                                            // nothing was left, and nothing was misused
 *
 * Once in a process: the plugin stays loaded, and counts cards when it is loaded.
 *
 * With WEIR_TEST_CARDS=real the devices are this machine's, by the plugin that programs find (tests/gpu/README.md).
 * Then tests that only a stand-in can pass are skipped.
 */
#ifndef TESTS_SUPPORT_CARD_H
#define TESTS_SUPPORT_CARD_H

#include "regst/device.h"
#include "tests/cuda/standin.h"

/* Whether they are this machine's. */
bool card_real(void);

/* Sets WEIR_CUDA_PLUGIN, and what the stand-in is; the plugin is loaded by who needs it. */
void card_open(const standin_options *options);
void card_close(void);
/* Skips the test where so many devices would not be so many cards, which NCCL asks for. */
void card_need(uint32_t count);
/* Sets the stand-in's options from now on; its calls are counted from 0 again. */
void card_set(const standin_options *options);
standin_seen card_look(void);
/* Sentence of what was left or misused; NULL: nothing. */
const char *card_left(void);

/* Enqueues run(data) on a stream: what a kernel of a program's does. */
void card_launch(void *stream, void (*run)(void *), void *data);

#endif
