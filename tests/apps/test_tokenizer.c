/* tests/apps/test_tokenizer.c: weir tokens gives the ids that Hugging Face's tokenizers gives, and takes no harm from files.
 *
 * tests/apps/tokens has small tokenizers, a text with what is hard to split, and its ids, all written by
 * `tests/models/tokens.py --write` with the reference: NAME.ids, and NAME.plain with special tokens read as text. */
#define _GNU_SOURCE
#include "tests/apps/shell.h"
#include "tests/support/effort.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define CASES "tests/apps/tokens"

TestSuite(tokenizer, .init = shell_begin, .fini = folder_remove, .timeout = 60);

static const char *const names[] = {"gpt2", "gpt2-space", "llama3", "qwen2", "gpt4o", "deepseek", "smollm"};
enum { NAMES = sizeof names / sizeof *names };

static void must_run_for(const char *name, const char *command)
{
    char all[1024];
    snprintf(all, sizeof all, "J=" CASES "/%s; %s", name, command);
    must_run(all);
}

Test(tokenizer, ids_are_those_of_the_reference)
{
    for (int i = 0; i < NAMES; i++) {
        must_run_for(names[i], "weir tokens encode --tokenizer $J.json " CASES "/text -o $T/ids; cmp $T/ids $J.ids");
        must_run_for(names[i], "weir tokens encode --plain --tokenizer $J.json - <" CASES "/text >$T/ids; cmp $T/ids $J.plain");
        must_run_for(names[i], "test \"$(weir tokens count --tokenizer $J.json " CASES "/text)\" = "
                               "\"$(grep -c . $J.ids) tokens, $(wc -c <" CASES "/text) bytes\"");
    }
    must_run_for("small", "weir tokens encode --tokenizer $J.gguf " CASES "/text | cmp - $J.ids");
}

Test(tokenizer, ids_of_other_forms_are_those_of_the_reference)
{
    static const char *const files[][2] = {{"llama2", "json"}, {"metaspace", "json"}, {"gemma", "json"}, {"nfc", "json"},
                                           {"piece", "model"}, {"piece", "gguf"}, {"tekken", "json"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char command[1024];
        const bool plain = !strcmp(files[i][0], "piece") || !strcmp(files[i][0], "tekken");
        snprintf(command, sizeof command, "weir tokens encode %s--tokenizer $J.%s " CASES "/text -o $T/ids; cmp $T/ids $J.ids", plain ? "--plain " : "", files[i][1]);
        must_run_for(files[i][0], command);
    }
}

Test(tokenizer, ends_are_those_that_the_file_asks_for)
{
    must_run_for("metaspace", "printf 'a text' | weir tokens encode --ends --tokenizer $J.json | cmp - $J.ends");
    must_run_for("llama2", "printf 'a text' | weir tokens encode --ends --tokenizer $J.json | cmp - $J.ends");
    must_run_for("gemma", "printf 'a text' | weir tokens encode --ends --tokenizer $J.json | cmp - $J.ends");
    must_run_for("piece", "test \"$(printf a | weir tokens encode --ends --tokenizer $J.model | head -n 1)\" = 1");
    must_run_for("tekken", "test \"$(printf a | weir tokens encode --ends --tokenizer $J.json | head -n 1)\" = 1");
    must_run_for("piece", "mkdir $T/d; cp $J.model $T/d/tokenizer.model; printf '{\"add_bos_token\": false, \"add_eos_token\": true}' >$T/d/tokenizer_config.json; "
                          "test \"$(printf a | weir tokens encode --ends --tokenizer $T/d | tail -n 1)\" = 2; "
                          "test \"$(printf a | weir tokens encode --ends --tokenizer $T/d | head -n 1)\" != 1");
}

/* Characters of all planes. */
static void write_random_text(void)
{
    enum { CHARS = EFFORT(1000000, 100000, 20000) };
    static char text[4 * CHARS];
    size_t bytes = 0;
    for (uint32_t i = 0; i < CHARS; i++) {
        uint32_t word[4];
        weir_philox(1, i, 0, word);
        const uint32_t range = word[0] % 4 ? 0x80 : word[0] % 8 ? 0x3000 : 0x110000;
        uint32_t code = word[1] % range;
        code = code >= 0xd800 && code < 0xe000 ? '\n' : code;
        if (code < 0x80)
            text[bytes++] = (char)code;
        else if (code < 0x800)
            text[bytes++] = (char)(0xc0 | code >> 6);
        else if (code < 0x10000)
            text[bytes++] = (char)(0xe0 | code >> 12);
        else
            text[bytes++] = (char)(0xf0 | code >> 18), text[bytes++] = (char)(0x80 | (code >> 12 & 63));
        if (code >= 0x800)
            text[bytes++] = (char)(0x80 | (code >> 6 & 63));
        if (code >= 0x80)
            text[bytes++] = (char)(0x80 | (code & 63));
    }
    folder_write(folder_path("text"), text, bytes);
}

Test(tokenizer, a_text_comes_back_from_its_ids)
{
    write_random_text();
    for (int i = 0; i < NAMES; i++) {
        if (!strcmp(names[i], "gpt2-space"))
            continue; /* it adds a space */
        must_run_for(names[i], "weir tokens encode --plain --tokenizer $J.json $T/text --as u16 -o $T/ids && "
                               "weir tokens decode --tokenizer $J.json $T/ids --as u16 -o $T/back && cmp $T/text $T/back");
    }
    must_run_for("llama3", "weir tokens encode --tokenizer $J.json $T/text --as u32 | weir tokens decode --tokenizer $J.json - --as u32 "
                           "| cmp - $T/text");
    must_run_for("llama3", "weir tokens encode --tokenizer $J.json $T/text | weir tokens decode --tokenizer $J.json | cmp - $T/text");
    must_run_for("llama3", ": >$T/none; weir tokens encode --tokenizer $J.json $T/none -o $T/ids && test ! -s $T/ids && "
                           "weir tokens decode --tokenizer $J.json $T/ids -o $T/back && test ! -s $T/back");
}

/* In the normal form that the tokenizer has. */
Test(tokenizer, a_text_comes_back_without_the_space_that_is_put_before_it)
{
    static const char *const files[] = {"llama2.json", "metaspace.json", "gemma.json", "piece.model", "piece.gguf", "tekken.json"};
    write_random_text();
    must_run("cp $T/text $T/all; sed 's/\xe2\x96\x81/ /g' $T/all >$T/text");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char command[512];
        snprintf(command, sizeof command, "F=" CASES "/%s; weir tokens encode --plain --tokenizer $F $T/text --as u16 -o $T/ids && "
                 "weir tokens decode --tokenizer $F $T/ids --as u16 | cmp - $T/text", files[i]);
        must_run(command);
    }
    must_run_for("nfc", "printf 'e\\314\\201 A\\314\\212' | weir tokens encode --tokenizer $J.json | weir tokens decode --tokenizer $J.json >$T/back; "
                        "printf '\\303\\251 \\303\\205' | cmp - $T/back");
    must_run_for("metaspace", "printf '<s> a b</s>  c' | weir tokens encode --tokenizer $J.json | weir tokens decode --tokenizer $J.json >$T/back; "
                              "printf '<s> a b</s>  c' | cmp - $T/back");
    must_run_for("llama2", "printf '<s>a b</s>  c' | weir tokens encode --tokenizer $J.json | weir tokens decode --tokenizer $J.json >$T/back; "
                           "printf '<s>a b</s>  c' | cmp - $T/back");
}

/* As the reference does: a piece of two marks is two spaces, in a file of each form. */
Test(tokenizer, marks_of_a_token_that_the_user_added_are_spaces_in_the_text)
{
    static const char *const files[] = {"gemma.json", "piece.model", "piece.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char command[512];
        snprintf(command, sizeof command, "F=" CASES "/%s; printf 'a\342\226\201\342\226\201b' | weir tokens encode --plain --tokenizer $F | "
                 "weir tokens decode --tokenizer $F >$T/back; printf 'a  b' | cmp - $T/back", files[i]);
        must_run(command);
    }
}

Test(tokenizer, weir_gpt_trains_on_text_by_a_tokenizer_and_writes_with_it)
{
    static const char gpt[] = APPS_BIN "/weir-gpt --layers 1 --dim 8 --heads 2 --seq 16 --batch 2 --steps 3 --sample 5 ";
    char command[1024];
    snprintf(command, sizeof command, "%s --tokenizer " CASES "/piece.model --text README.md docs/plan.md --save $T/run 2>&1", gpt);
    must_run(command);
    cr_expect(strstr(output, "weir-gpt: 2 files, ") && strstr(output, " of text, ") && strstr(output, "validation loss ") && strstr(output, "5 tokens written"), "%s", output);
    must_run(APPS_BIN "/weir-gpt --load $T/run --tokenizer " CASES "/piece.model --validate README.md --sample 5 2>&1");
    cr_expect(strstr(output, "validation loss ") && strstr(output, "/* "), "%s", output);
    snprintf(command, sizeof command, "weir tokens encode --plain --tokenizer " CASES "/piece.model README.md --as u16 -o $T/ids.bin; "
             "%s --tokenizer " CASES "/piece.model --tokens $T/ids.bin --vocab 512 2>&1", gpt);
    must_run(command);
    cr_expect(strstr(output, "5 tokens written"), "%s", output);
}

Test(tokenizer, weir_gpt_trains_on_what_encode_writes)
{
    for (int wide = 0; wide < 2; wide++) {
        char command[1024];
        snprintf(command, sizeof command, "weir tokens encode --tokenizer " CASES "/gpt2.json README.md --as %s -o $T/t.bin && "
                 APPS_BIN "/weir-gpt --tokens $T/t.bin --vocab 410 --layers 1 --dim 8 --heads 2 --seq 16 --batch 2 --steps 2",
                 wide ? "u32" : "u16");
        must_run(command);
        cr_expect(strstr(output, "weir-gpt: 1 file, ") && strstr(output, "validation loss "), "%s", output);
    }
}

/* A piece of n bytes takes n log n: with n n, this would take hours. */
Test(tokenizer, a_long_piece_does_not_take_long)
{
    must_run("yes a | tr -d '\\n' | head -c 4000000 >$T/long; "
             "weir tokens encode --tokenizer " CASES "/gpt2.json $T/long --as u16 -o $T/ids && "
             "weir tokens decode --tokenizer " CASES "/gpt2.json $T/ids --as u16 | cmp - $T/long");
    must_run("tr a ' ' <$T/long >$T/spaces; weir tokens encode --tokenizer " CASES "/llama3.json $T/spaces --as u16 -o $T/ids && "
             "weir tokens decode --tokenizer " CASES "/llama3.json $T/ids --as u16 | cmp - $T/spaces");
}

/* ---- mistakes ---- */

static void refuses(const char *command, int status, const char *says)
{
    cr_expect_eq(run(command), status, "%s: %s", command, output);
    cr_expect(strstr(output, says), "\"%s\" is not in: %s", says, output);
    cr_expect(strchr(output, '\n') == output + strlen(output) - 1, "not one line: %s", output);
}

/* The tokenizer of gpt2.json, with one text replaced. */
static void refuses_with(const char *from, const char *to, const char *says)
{
    char command[1024];
    snprintf(command, sizeof command, "sed 's/%s/%s/' " CASES "/gpt2.json >$T/t.json; cmp -s $T/t.json " CASES "/gpt2.json && echo same; "
             "weir tokens count --tokenizer $T/t.json " CASES "/text", from, to);
    refuses(command, 2, says);
    cr_expect(strstr(output, "/t.json: "), "the file has no name: %s", output);
}

#define PRE "\"pre_tokenizer\":{[^}]*}"
#define SPLIT(pattern) "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
                       "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"use_regex\":false}]}"

Test(tokenizer, what_changes_ids_and_is_not_done_is_refused_by_its_name)
{
    refuses_with("\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}", "normalizer is of the type \"Lowercase\"");
    refuses_with(PRE, "\"pre_tokenizer\":null", "is neither byte-level nor of SentencePiece's kind");
    refuses_with("\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model is of the type \"Unigram\"");
    refuses_with("\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback is true");
    refuses_with("\"dropout\":null", "\"dropout\":0.1", "dropout is not 0");
    refuses_with("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"@\"", "end_of_word_suffix is \"@\"");
    refuses_with("\"single_word\":false", "\"single_word\":true", "has single_word");
    refuses_with(PRE, "\"pre_tokenizer\":{\"type\":\"Metaspace\"}", "Metaspace has the replacement \"\"");
    refuses_with(PRE, "\"pre_tokenizer\":{\"type\":\"Digits\"}", "has no ByteLevel");
    refuses_with("\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"CTC\"", "decoder is of the type \"CTC\"");
    refuses_with(PRE, SPLIT("a{1,3}+"), "has \"}+\"");
}

Test(tokenizer, settings_of_other_forms_are_refused_by_their_names)
{
    refuses("sed 's/\"prepend\":\"[^\"]*\"/\"prepend\":\"x\"/' " CASES "/llama2.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2,
            "normalizer: Prepend is supported if it prepends U+2581 alone");
    refuses("sed 's/<0x0A>/<0x0a>/' " CASES "/llama2.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2, "there is no token <0x0A>");
    refuses("sed 's/\"prepend_scheme\":\"first\"/\"prepend_scheme\":\"last\"/' " CASES "/metaspace.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2,
            "Metaspace has the prepend_scheme \"last\"; always, first and never are allowed");
    refuses("sed 's/\"normalizers\":\\[/\"normalizers\":[{\"type\":\"Lowercase\"},/' " CASES "/llama2.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2,
            "normalizer is of the type \"Lowercase\"");
    refuses("sed 's/llama/tadpo/g' " CASES "/piece.gguf >$T/t.gguf; weir tokens count --tokenizer $T/t.gguf README.md", 2, "its tokenizer is \"tadpo\"");
    refuses("head -c 5000 " CASES "/piece.model >$T/t.model; weir tokens count --tokenizer $T/t.model README.md", 2, "is no tokenizer: it is neither JSON, nor GGUF");
    refuses("sed 's/\"AA==\"/\"AA=\"/' " CASES "/tekken.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2,
            "the token of rank 0 has no \"token_bytes\" in base64");
    refuses("sed 's/\"AQ==\"/\"AA==\"/' " CASES "/tekken.json >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2, "has two ids, 30 and 31");
    refuses("mkdir $T/none; weir tokens count --tokenizer $T/none README.md", 2, "has no tokenizer.json, tekken.json or tokenizer.model");
    refuses("mkdir $T/bad; cp " CASES "/piece.model $T/bad/tokenizer.model; echo '{' >$T/bad/tokenizer_config.json; weir tokens count --tokenizer $T/bad README.md", 2,
            "/bad/tokenizer_config.json: line ");
    refuses(APPS_BIN "/weir-gpt --tokenizer " CASES "/piece.model --text README.md --vocab 9", 2, "--vocab 9 is less than the 500 tokens of --tokenizer");
    refuses("printf ab >$T/short; " APPS_BIN "/weir-gpt --tokenizer " CASES "/piece.model --text $T/short", 2, "--text: the text has 3 tokens, too few for --seq 128");
    refuses(APPS_BIN "/weir-gpt --tokenizer " CASES "/piece.model --text README.md --validate $T/short", 2,
            "--validate: the text has 3 tokens, too few for --seq 128");
    refuses("head -c 60 README.md >$T/short; " APPS_BIN "/weir-gpt --tokenizer " CASES "/piece.model --text $T/short --seq 8 --eval-every 1", 2,
            "--text: ");
}

Test(tokenizer, damaged_files_get_a_sentence)
{
    refuses_with("{", "[", "is not JSON");
    refuses_with("\"merges\":", "\"merge\":", "needs \"vocab\" and \"merges\"");
    refuses_with("\"merges\":\\[", "\"merges\":[\"zq zq\",", "merge 0, \"zq zq\": the first is not a token");
    refuses_with("\"merges\":\\[", "\"merges\":[\"a\",", "merge 0 is not two tokens");
    refuses_with("\"!\":2,", "\"!\":3,", "two tokens have the id 3");
    refuses_with("\"!\":2,", "\"!\":-2,", "is not a number from 0 to");
    refuses_with("\"!\":2,", "\"!\":4194304,", "is not a number from 0 to 4194303");
    refuses_with("\"id\":1,", "\"id\":2,", "has the id 2, but 1 in the model");
    refuses_with(PRE, SPLIT("(a"), "is not valid: missing closing parenthesis");
    refuses("head -c 7000 " CASES "/small.gguf >$T/t.gguf; weir tokens count --tokenizer $T/t.gguf README.md", 2, "t.gguf: is cut short, or damaged: tokenizer.ggml.token_type would end behind");
    refuses("sed s/smollm/snorkl/ " CASES "/small.gguf >$T/t.gguf; weir tokens count --tokenizer $T/t.gguf README.md", 2,
            "tokenizer.ggml.pre is \"snorkl\"");
    refuses("LC_ALL=C sed 's/<|endoftext|>/<|endoftex\\xc3|>/' " CASES "/small.gguf >$T/t.gguf; weir tokens count --tokenizer $T/t.gguf README.md", 2,
            "the added token with the id 0 is not UTF-8");
    refuses("head -c 200000000 /dev/zero >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2, "more than 128 MiB");
    refuses("yes '[' | head -n 5000000 >$T/t.json; weir tokens count --tokenizer $T/t.json README.md", 2, "at most 4194304 are read");
    refuses("weir tokens count --tokenizer $T/none.json README.md", 2, "cannot be read: No such file");
}

Test(tokenizer, a_pattern_that_takes_too_long_is_given_up)
{
    must_run("sed 's/" PRE "/" SPLIT("(a+)+[bc]") "/' " CASES "/gpt2.json >$T/t.json; yes a | tr -d '\\n' | head -c 10000 >$T/text");
    refuses("weir tokens count --tokenizer $T/t.json $T/text", 1, "takes too long on the text \"aaaa");
}

Test(tokenizer, wrong_texts_and_ids_get_a_sentence)
{
    refuses("printf 'abc\\377' | weir tokens count --tokenizer " CASES "/gpt2.json", 1, "standard input: byte 3 of the text, 0xff, is not UTF-8");
    refuses("printf '\\355\\240\\200' | weir tokens count --tokenizer " CASES "/gpt2.json", 1, "byte 0 of the text");
    refuses("weir tokens count README.md", 2, "needs --tokenizer FILE");
    refuses("weir tokens count --tokenizer " CASES "/gpt2.json $T/none", 2, "cannot read ");
    refuses("weir tokens encode --tokenizer " CASES "/gpt2.json README.md --as u8", 2, "--as is \"u8\"; text, u16 and u32 are allowed");
    refuses("echo 1 2 70000 | weir tokens decode --tokenizer " CASES "/gpt2.json", 1, "number 2 is the id 70000, which is no token; ids are below ");
    refuses("echo 1 x | weir tokens decode --tokenizer " CASES "/gpt2.json", 1, "is not a list of ids");
    refuses("printf abc | weir tokens decode --tokenizer " CASES "/gpt2.json --as u16", 1, "is cut, or no file of tokens");
    refuses("printf abcd | weir tokens decode --tokenizer " CASES "/gpt2.json --as u32", 1, "does not begin as llm.c's");
    refuses("weir tokens enc", 2, "there is no verb \"enc\"");
    refuses("weir tokens encode --tokenizer " CASES "/gpt2.json README.md -o $T/none/ids", 2, "cannot write ");
}
