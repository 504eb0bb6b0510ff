/* apps/weir/command.h: the verbs of `weir`. Each parses its own command line (argv[0] is the verb), reports its own
 * mistakes and returns the exit status: 0; 1 when the work failed (a plan that is not valid, a kernel that fails); 2
 * for a wrong command line or a file that cannot be opened. main() adds what standard output has lost (streams.h).
 *
 * Adding a verb is a file here and a line in COMMAND_LIST.
 */
#ifndef APPS_WEIR_COMMAND_H
#define APPS_WEIR_COMMAND_H

#include "apps/common/options.h"

#include <weir/weir.h>

/* verb, arguments, what it does */
#define COMMAND_LIST(X)                                                                                 \
    X(show, "PLAN [--json] [--tensors] [--svg FILE]", "print a plan: memory, actors, registers")          \
    X(check, "PLAN [--graph] [--same-as PLAN]", "prove that a plan cannot deadlock")                    \
    X(import, "MODEL.onnx -o PLAN [--shape X=1x3x64x64]", "make a plan from an ONNX model")             \
    X(export, "PLAN -o MODEL.onnx [--params CHECKPOINT]", "make an ONNX model from a plan that keeps its graph") \
    X(run, "PLAN [--feed X=FILE] [--fetch Y=FILE]", "run a plan that another program compiled")           \
    X(checkpoint, "ls|verify|convert DIR ...", "list, verify and convert checkpoints")                   \
    X(tokens, "encode|decode|count|chat --tokenizer FILE ...", "convert texts to ids of tokens and back") \
    X(measure, "[PLAN ...] -o RATES", "measure how long kernels and links take on this machine")          \
    X(predict, "PLAN --rates RATES [--explain] [--pareto] [--set X=Y]", "predict how long a step of a plan takes")                          \
    X(trace, "diff PREDICTED REAL", "list where two traces of a plan differ")                        \
    X(launch, "-n N [--hosts A:2,B:2] PROGRAM ...", "start a program on several processes or hosts") \
    X(devices, "[--json]", "list the devices of this machine")                                          \
    X(keygen, "[FILE]", "make a secret, for WEIR_KEY_FILE")                                             \
    X(bench, "[NAME] [--json] [--quick]", "measure this machine")

#define X(verb, arguments, text) int command_##verb(int argc, char **argv);
COMMAND_LIST(X)
#undef X

/* -1 when the file is there and not empty; else the exit status, after reporting. */
int command_check_readable(const char *program, const char *path);

/* The option of verbs that load plans, a list; and what it asks for: -1, or the exit status after reporting. */
#define COMMAND_OPS_OPTION(list) \
    {"--load", OPTIONS_LIST, &(list), .value = "FILE.so", .file = OPTIONS_READS, \
     .help = "load your own ops from a shared object"}
int command_load_ops(const char *program, const options_list *objects);

/* Loads a plan for `program` ("weir show"). NULL after reporting; *status is then the exit status. */
weir_plan *command_load(const char *program, const char *path, int *status);

#endif
