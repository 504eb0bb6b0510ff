/* apps/common/tokens/config.c: what the files beside a tokenizer say: tokenizer_config.json names the begin and end tokens and has a
 * chat template, generation_config.json lists the tokens that end a reply, and chat_template.jinja is a template. */
#include "apps/common/tokens/inside.h"
#include "apps/common/tokens/json.h"

#include "graph/base/reading.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* An open file of the folder. NULL, and true: there is none. */
static bool open_file(const char *folder, const char *name, FILE **file)
{
    char path[PATH_MAX];
    const char *why;
    *file = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || access(path, F_OK))
        return true;
    *file = reading_file(path, &why);
    return *file || tokens_failed("cannot be read: %s", why);
}

static bool named(const char *folder, const char *name, bool ok)
{
    char told[1024];
    if (ok)
        return true;
    snprintf(told, sizeof told, "%s", tokens_error());
    return tokens_failed("%s/%s: %.800s", folder, name, told);
}

static bool read_json(const char *folder, const char *name, bool long_numbers, json_t **json)
{
    FILE *file;
    *json = NULL;
    if (!open_file(folder, name, &file))
        return false;
    if (!file)
        return true;
    *json = tokens_read_json(file, long_numbers);
    fclose(file);
    return *json;
}

/* "<s>", or {"content": "<s>"}. */
static void take_token(const struct tokenizer *t, const json_t *config, const char *key, uint32_t *id)
{
    const json_t *value = json_object_get(config, key);
    const char *text = json_is_object(value) ? json_text(value, "content") : json_text(config, key);
    const uint32_t known = *text ? tokenizer_added(t, text, strlen(text)) : VOCAB_NONE;
    *id = known != VOCAB_NONE ? known : *id;
}

/* A text, or a list of named texts, of which the one called "default" is for chats. */
static bool take_template(struct tokenizer *t, const json_t *template)
{
    size_t at;
    json_t *one;
    const char *text = json_string_value(template);
    json_array_foreach(template, at, one)
        if (!strcmp(json_text(one, "name"), "default"))
            text = json_text(one, "template");
    return !text || chat_set_template(&t->chat, text);
}

static void take_added(const json_t *config, const char *key, uint32_t id, struct ends *to)
{
    if (json_is_false(json_object_get(config, key)))
        to->count = 0;
    if (json_is_on(config, key) && id != VOCAB_NONE)
        *to = (struct ends){{id}, 1};
}

static bool take_config(struct tokenizer *t, const json_t *config)
{
    take_token(t, config, "bos_token", &t->begin);
    take_token(t, config, "eos_token", &t->end);
    if (t->ends_by_config) {
        take_added(config, "add_bos_token", t->begin, &t->before);
        take_added(config, "add_eos_token", t->end, &t->after);
    }
    return take_template(t, json_object_get(config, "chat_template"));
}

/* "eos_token_id": 2, or [2, 3] */
static bool take_generation(struct tokenizer *t, const json_t *config)
{
    const json_t *value = json_object_get(config, "eos_token_id");
    size_t at;
    json_t *one;
    const int64_t id = json_id(value);
    bool ok = id < 0 || id >= t->bpe.vocab.size || ends_add(&t->stops, (uint32_t)id);
    json_array_foreach(value, at, one)
        if (ok && json_id(one) >= 0 && json_id(one) < t->bpe.vocab.size)
            ok = ends_add(&t->stops, (uint32_t)json_id(one));
    return ok;
}

static bool take_jinja(struct tokenizer *t, const char *folder, const char *name)
{
    FILE *file;
    size_t bytes;
    if (!open_file(folder, name, &file))
        return false;
    if (!file)
        return true;
    char *text = tokens_read_all(file, &bytes);
    fclose(file);
    const bool ok = text && chat_set_template(&t->chat, text);
    free(text);
    return ok;
}

bool tokenizer_configure(struct tokenizer *t, const char *folder)
{
    static const char config_name[] = "tokenizer_config.json", generation_name[] = "generation_config.json", jinja_name[] = "chat_template.jinja";
    json_t *config, *generation = NULL;
    const bool ok = named(folder, config_name, read_json(folder, config_name, true, &config) && take_config(t, config)) &&
                    named(folder, generation_name, read_json(folder, generation_name, false, &generation) && take_generation(t, generation)) &&
                    named(folder, jinja_name, take_jinja(t, folder, jinja_name));
    json_decref(config);
    json_decref(generation);
    return ok;
}
