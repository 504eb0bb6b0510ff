/* tests/apps/test_tokens.c: weir-gpt on files of token ids: each form of file, layouts, ranks, checkpoints, mistakes. */
#define _GNU_SOURCE
#include "tests/apps/shell.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6000, VOCAB = 61 };

#define GPT APPS_BIN "/weir-gpt --vocab 61 --layers 2 --dim 16 --heads 2 --seq 16 --batch 8 --seed 3 "
/* Losses of a log, a line each; of two lines of one step the later counts. */
#define LOSSES(log) "grep -o '\"step\": [0-9]*, \"loss\": [-0-9.e]*' $T/" log " | tac | sort -u -n -k2,2 >$T/" log ".losses"

/* Each token says which one follows, but for a few. The same in three forms. */
static void make_tokens(void)
{
    static struct {
        char head[1024];
        uint16_t token[TOKENS];
    } llmc;
    char npy[10 + 118 + sizeof llmc.token] = "\x93NUMPY\1";
    shell_begin();
    for (int i = 1; i < TOKENS; i++)
        llmc.token[i] = (uint16_t)(i % 11 ? (llmc.token[i - 1] * 7 + 3) % VOCAB : i * 31 % VOCAB);
    memcpy(llmc.head, (const int32_t[]){20240520, 1, TOKENS}, 12);
    folder_write(folder_path("llmc.bin"), &llmc, sizeof llmc);
    folder_write(folder_path("raw.bin"), llmc.token, sizeof llmc.token);
    snprintf(npy + 10, sizeof npy - 10, "%-117s\n", "{'descr': '<u2', 'fortran_order': False, 'shape': (6000,), }");
    npy[8] = 118;
    memcpy(npy + 128, llmc.token, sizeof llmc.token);
    folder_write(folder_path("tokens.npy"), npy, sizeof npy);
}

TestSuite(tokens, .init = make_tokens, .fini = folder_remove, .timeout = 120);

Test(tokens, each_form_of_file_trains_the_same_and_learns)
{
    must_run(GPT "--tokens $T/raw.bin --steps 120 --log $T/raw 2>&1");
    cr_expect(strstr(output, "weir-gpt: 1 file, 6000 tokens, 336 windows to train on, 38 to evaluate on; 2 layers"), "%s", output);
    const char *loss = strstr(output, "validation loss ");
    cr_expect(loss && atof(loss + strlen("validation loss ")) < 3, "%s", output); /* ln 61 is 4.1 */
    must_run(GPT "--tokens $T/llmc.bin --steps 120 --log $T/llmc 2>&1");
    must_run(GPT "--tokens $T/tokens.npy --steps 120 --log $T/npy 2>&1");
    must_run(LOSSES("raw") "; " LOSSES("llmc") "; " LOSSES("npy") "; test -s $T/raw.losses && cmp $T/raw.losses $T/llmc.losses && "
             "cmp $T/raw.losses $T/npy.losses");
}

Test(tokens, ranks_train_as_one_process_does)
{
    must_run(GPT "--tokens \"$T/*.bin\" --dp 2 --micro 2 --steps 10 --log $T/one 2>&1");
    cr_expect(strstr(output, "2 files, 12000 tokens, "), "%s", output);
    must_run(APPS_BIN "/weir launch -n 2 -- " GPT "--tokens \"$T/*.bin\" --dp 2 --micro 2 --steps 10 --log $T/two 2>&1");
    must_run(LOSSES("one") "; " LOSSES("two") "; test -s $T/one.losses && cmp $T/one.losses $T/two.losses");
    must_run(GPT "--tokens $T/raw.bin --pp 2 --dp 2 --micro 2 --steps 3 --verify 2>&1");
    cr_expect(strstr(output, "the plan computes the model"), "%s", output);
}

Test(tokens, a_run_goes_on_from_its_checkpoint)
{
    must_run(GPT "--tokens $T/raw.bin --steps 20 --log $T/whole 2>&1");
    must_run(GPT "--tokens $T/raw.bin --steps 20 --save $T/runs --save-every 10 --keep 3 --log $T/log 2>&1");
    must_run("rm -r $T/runs/step-00000020; " GPT "--tokens $T/raw.bin --steps 20 --resume $T/runs --log $T/log 2>&1");
    cr_expect(strstr(output, "goes on at step 10 of ") && !strstr(output, "not those"), "%s", output);
    must_run(LOSSES("whole") "; " LOSSES("log") "; cmp $T/whole.losses $T/log.losses");
    must_run("tail -c 8000 $T/raw.bin >$T/other.bin; " GPT "--tokens $T/other.bin --steps 11 --resume $T/runs/step-00000010 2>&1");
    cr_expect(strstr(output, "the token files are not those that it was saved with"), "%s", output);
}

static void refuses(const char *command, int status, const char *says)
{
    cr_expect_eq(run(command), status, "%s: %s", command, output);
    cr_expect(strstr(output, says), "\"%s\" is not in: %s", says, output);
}

Test(tokens, what_makes_no_sense_gets_a_sentence)
{
    must_run("head -c 200 $T/raw.bin >$T/short.bin; head -c 199 $T/raw.bin >$T/odd.bin");
    refuses(GPT "--tokens $T/no.bin 2>&1", 2, "/no.bin: cannot be read: No such file or directory");
    refuses(GPT "--tokens \"$T/no-*.bin\" 2>&1", 2, "/no-*.bin: no file has such a name");
    refuses(GPT "--tokens $T/odd.bin 2>&1", 2, "/odd.bin: has 199 bytes, an odd number");
    refuses(GPT "--tokens $T/raw.bin --validate $T/odd.bin 2>&1", 2, "weir-gpt: --validate: ");
    refuses(GPT "--tokens $T/raw.bin --text README.md 2>&1", 2, "--text and --tokens: give one of them");
    refuses(GPT "--text README.md 2>&1", 2, "--vocab is for --tokens and --tokenizer; a text has 256 bytes");
    refuses(GPT "--tokens $T/raw.bin --load $T 2>&1", 2, "it cannot be used with --tokens");
    refuses(GPT "--tokens $T/short.bin --eval-every 1 2>&1", 2, "6 windows of 16 tokens are too few to hold some of them out");
    refuses(GPT "--tokens $T/short.bin --vocab 9 --steps 1 2>&1", 1, "/short.bin: token ");
    cr_expect(strstr(output, "with a vocabulary of 9 ids are 0 to 8"), "%s", output);
    must_run(GPT "--tokens $T/short.bin --steps 1 2>&1");
    cr_expect(!strstr(output, "validation loss"), "%s", output);
    must_run(GPT "--tokens $T/short.bin --validate $T/raw.bin --steps 1 2>&1");
    cr_expect(strstr(output, "validation loss"), "%s", output);
}
