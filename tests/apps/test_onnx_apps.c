/* tests/apps/test_onnx_apps.c: weir export and weir import, from a program that trains to a file and back. */
#include <string.h>

#include "tests/apps/shell.h"

TestSuite(onnx_apps, .init = shell_begin, .fini = folder_remove, .timeout = 300);

#define WEIR APPS_BIN "/weir "
#define TINY_GPT APPS_BIN "/weir-gpt --layers 1 --dim 8 --heads 2 --seq 4 --batch 4 --text README.md --sample 0 --steps 2 --save $T/saved --plan $T/gpt.plan "
#define INPUTS "--feed tokens=$T/tokens.npy --feed labels=$T/tokens.npy "

#define HAS(part) cr_expect(strstr(output, part), "lacks \"%s\":\n%s", part, output)

static void does(const char *command)
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
}

static void refuses(int status, const char *command, const char *sentence)
{
    cr_expect_eq(run(command), status, "%s: %s", command, output);
    HAS(sentence);
}

/* i32 [4, 4] of small numbers. */
#define TOKENS "{ printf '\\223NUMPY\\001\\000\\166\\000%-117s\\n' \"{'descr': '<i4', 'fortran_order': False, 'shape': (4, 4), }\"; " \
    "for i in 1 2 3 4 5 6 7 8 9 a b c d e f g; do printf \"$i\\000\\000\\000\"; done; } > $T/tokens.npy"

Test(onnx_apps, a_trained_model_is_the_same_after_export_and_import)
{
    does(TINY_GPT "--with-graph");
    does(TOKENS);
    does(WEIR "export $T/gpt.plan --params $T/saved -o $T/gpt.onnx");
    HAS("gpt.onnx: the model");
    does(WEIR "import $T/gpt.onnx -o $T/back.plan");
    HAS("input  tokens i32 [4, 4]");
    HAS("output loss f32 []");
    does(WEIR "run $T/back.plan --load-params $T/back.params.safetensors " INPUTS "--fetch loss=$T/one.npy");
    does(WEIR "run $T/back.plan --load-params $T/gpt.onnx " INPUTS "--fetch loss=$T/two.npy");
    does("cmp $T/one.npy $T/two.npy");
    does("test $(od -An -tf4 -j128 $T/one.npy | cut -d. -f1) -ge 1"); /* a loss that is no zero */
}

Test(onnx_apps, what_cannot_be_exported_is_said)
{
    does(TINY_GPT);
    refuses(1, WEIR "export $T/gpt.plan --params $T/saved -o $T/gpt.onnx", "does not keep its graph");
    does("rm -r $T/saved");
    does(TINY_GPT "--with-graph");
    refuses(1, WEIR "export $T/gpt.plan -o $T/gpt.onnx", "has no value: give a .session or .params (weir export: --params)");
    refuses(1, WEIR "export $T/gpt.plan --params $T/saved -o $T/gpt.onnx --fetch los", "no 'los'; there is 'loss'");
    refuses(2, WEIR "export $T/gpt.plan", "needs -o FILE");
    refuses(2, WEIR "export $T/none.plan -o $T/gpt.onnx", "none.plan");
    does("test ! -e $T/gpt.onnx");
}
