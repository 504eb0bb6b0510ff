/* tests/apps/test_chat.c: weir tokens chat gives the ids that transformers' apply_chat_template() gives, and marks the replies.
 *
 * tests/apps/chats has small tokenizers with the templates of the families, conversations, and their ids, all written by
 * `tests/models/chats.py --write` with the reference: ids, and open with the opening of a reply. */
#define _GNU_SOURCE
#include "tests/apps/shell.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define CHATS "tests/apps/chats"

TestSuite(chat, .init = shell_begin, .fini = folder_remove, .timeout = 60);

static const char *const names[] = {"smollm2", "qwen3", "llama31", "llama2", "mistralv03", "gemma", "phi-3"};
enum { NAMES = sizeof names / sizeof *names };

Test(chat, ids_are_those_of_the_reference)
{
    for (int i = 0; i < NAMES; i++) {
        char command[512];
        snprintf(command, sizeof command, "D=" CHATS "/%s; weir tokens chat --tokenizer $D " CHATS "/talks | cmp - $D/ids && "
                 "weir tokens chat --open --tokenizer $D/tokenizer.json " CHATS "/talks | cmp - $D/open", names[i]);
        must_run(command);
    }
}

/* The text of the ids that are marked. */
static void expect_marked(const char *name, const char *messages, const char *text)
{
    char command[2048];
    snprintf(command, sizeof command, "echo '%s' | weir tokens chat --mark --tokenizer " CHATS "/%s | tr ' ' '\\n' | grep '[*]' | tr -d '*' | "
             "weir tokens decode --tokenizer " CHATS "/%s", messages, name, name);
    must_run(command);
    cr_expect_str_eq(output, text, "%s: %s", name, messages);
}

#define TALK "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"It is b. \"}, " \
             "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]"

Test(chat, marks_are_on_replies_and_the_tokens_that_end_them)
{
    expect_marked("smollm2", TALK, "It is b. <|im_end|>d<|im_end|>");
    expect_marked("qwen3", TALK, "It is b. <|im_end|><think>\n\n</think>\n\nd<|im_end|>");
    expect_marked("llama31", TALK, "It is b.<|eot_id|>d<|eot_id|>");
    expect_marked("gemma", TALK, "It is b.<end_of_turn>d<end_of_turn>");
    expect_marked("llama2", TALK, "It is b. </s>d </s>");
    expect_marked("phi-3", TALK, "It is b. <|end|>d<|end|>");
}

Test(chat, a_message_cannot_end_its_turn)
{
    must_run("echo '[{\"role\": \"user\", \"content\": \"x<|im_end|>\"}]' | weir tokens chat --tokenizer " CHATS "/smollm2 | tr ' ' '\\n' | sort | uniq -c | sort -rn | head -3; "
             "echo '[{\"role\": \"user\", \"content\": \"x<|im_end|>\"}]' | weir tokens chat --tokenizer " CHATS "/smollm2 | tr ' ' '\\n' | "
             "weir tokens decode --tokenizer " CHATS "/smollm2 | grep -q 'x<|im_end|><|im_end|>'");
    must_run("I=$(printf '<|im_end|>' | weir tokens encode --tokenizer " CHATS "/smollm2); "
             "test $(echo '[{\"role\": \"user\", \"content\": \"x<|im_end|>\"}]' | weir tokens chat --tokenizer " CHATS "/smollm2 | tr ' ' '\\n' | grep -cx $I) = 2");
}

static void refuses(const char *name, const char *chat, const char *says)
{
    char command[1024];
    snprintf(command, sizeof command, "echo '%s' | weir tokens chat --tokenizer %s", chat, name);
    cr_expect_eq(run(command), 1, "%s", output);
    cr_expect(strstr(output, says), "\"%s\" is not in: %s", says, output);
}

Test(chat, conversations_that_a_family_has_not_get_a_sentence)
{
    refuses(CHATS "/gemma", "[{\"role\": \"system\", \"content\": \"a\"}]", "line 1: message 1 is of the system, which the template of Gemma does not have");
    refuses(CHATS "/gemma", "[{\"role\": \"assistant\", \"content\": \"a\"}]", "user and assistant take turns, and the user begins");
    refuses(CHATS "/llama2", "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \"content\": \"a\"}]", "only the first may be");
    refuses(CHATS "/smollm2", "[{\"role\": \"tool\", \"content\": \"a\"}]", "message 1 has the role \"tool\"; system, user and assistant are allowed");
    refuses(CHATS "/smollm2", "[{\"role\": \"user\"}]", "line 1: message 1: \"content\" must be a text");
    refuses(CHATS "/smollm2", "[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]", "line 1: message 1: \"content\" has a zero byte");
    refuses(CHATS "/smollm2", "{", "line 1: is not JSON");
    refuses(CHATS "/smollm2", "{}", "line 1: is no list of at most 4096 messages");
    refuses("tests/apps/tokens/gpt2.json", "[]", "has no chat template");
    must_run("cp -r " CHATS "/smollm2 $T/d; echo '{{ messages }}' >$T/d/chat_template.jinja");
    refuses("$T/d", "[]", "its chat template is of no family that is known; ChatML, Llama 2 and 3,");
}
