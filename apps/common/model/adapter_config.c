/* apps/common/model/adapter_config.c: adapter_config.json of peft, read and written. */
#define _GNU_SOURCE
#include "apps/common/json_file.h"
#include "apps/common/model/adapter.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REFUSE(...) (snprintf(why, why_bytes, __VA_ARGS__), false)
enum { CONFIG_BYTES_MAX = 1 << 20, PATH_ROOM = 4096 };

/* Settings that change no result of an adapter that is there, whatever they say. */
static const char *const without_effect[] = {
    "auto_mapping", "inference_mode", "loftq_config", "megatron_core", "peft_version", "qalora_group_size", "revision", "task_type",
    "ensure_weight_tying",
};

/* Settings that are read below. */
static const char *const known[] = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "target_modules", "base_model_name_or_path", "fan_in_fan_out", "bias",
    "init_lora_weights",
};

static bool is_of(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(key, list[i]))
            return true;
    return false;
}
#define IS_OF(key, list) is_of(key, list, sizeof(list) / sizeof *(list))

static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

/* "true", "\"pissa\"", cut to 40 bytes. */
static const char *shown(const json_t *value, char text[48])
{
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(text, 48, "%.40s%s", all ? all : "?", all && strlen(all) > 40 ? "..." : "");
    free(all);
    return text;
}

static bool add_target(adapter *a, const char *target)
{
    if (a->targets == ADAPTER_TARGETS_MAX || !*target || strlen(target) >= ADAPTER_TARGET_BYTES)
        return false;
    strcpy(a->target[a->targets++], target);
    return true;
}

bool adapter_take_targets(adapter *a, const char *list, char *why, size_t why_bytes)
{
    a->targets = 0;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char target[ADAPTER_TARGET_BYTES + 1];
        snprintf(target, sizeof target, "%.*s", (int)strcspn(at, ","), at);
        if (!add_target(a, target))
            return REFUSE("\"%s\" is no list of at most %d names of layers, such as q_proj,v_proj", list, ADAPTER_TARGETS_MAX);
    }
    return true;
}

static bool take_targets(const json_t *list, adapter *a)
{
    const json_t *value;
    size_t i;
    json_array_foreach(list, i, value)
        if (!json_is_string(value) || !add_target(a, json_string_value(value)))
            return false;
    return a->targets > 0;
}

static bool is_plain_start(const json_t *value)
{
    const char *text = json_string_value(value);
    return !value || json_is_boolean(value) || json_is_null(value) || (text && !strcmp(text, "gaussian"));
}

/* The settings that are known. */
static bool take(const json_t *config, const char *path, adapter *a, char *why, size_t why_bytes)
{
    const json_t *type = json_object_get(config, "peft_type"), *r = json_object_get(config, "r"), *bias = json_object_get(config, "bias");
    const json_t *alpha = json_object_get(config, "lora_alpha"), *dropout = json_object_get(config, "lora_dropout");
    const json_t *start = json_object_get(config, "init_lora_weights"), *base = json_object_get(config, "base_model_name_or_path");
    char text[48];
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
        return REFUSE("%s: \"peft_type\" is %s; only LORA is supported", path, shown(type, text));
    if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > ADAPTER_RANK_MAX)
        return REFUSE("%s: \"r\" is %s; it must be a whole number from 1 to %d", path, shown(r, text), ADAPTER_RANK_MAX);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        return REFUSE("%s: \"lora_alpha\" is %s; it must be a number", path, shown(alpha, text));
    if (dropout && (!json_is_number(dropout) || !(json_number_value(dropout) >= 0 && json_number_value(dropout) < 1)))
        return REFUSE("%s: \"lora_dropout\" is %s; it must be at least 0 and less than 1", path, shown(dropout, text));
    if (bias && (!json_is_string(bias) || strcmp(json_string_value(bias), "none") != 0))
        return REFUSE("%s: \"bias\" is %s; only \"none\" is supported: weir trains no biases beside an adapter", path, shown(bias, text));
    if (!is_plain_start(start))
        return REFUSE("%s: \"init_lora_weights\" is %s, which changes the weights of the base; it is not supported", path, shown(start, text));
    if (!take_targets(json_object_get(config, "target_modules"), a))
        return REFUSE("%s: \"target_modules\" is %s; it must be a list of 1 to %d names of layers", path,
                      shown(json_object_get(config, "target_modules"), text), ADAPTER_TARGETS_MAX);
    a->rank = (int)json_integer_value(r);
    a->alpha = json_number_value(alpha);
    a->dropout = json_number_value(dropout);
    a->fan_in_fan_out = json_is_true(json_object_get(config, "fan_in_fan_out"));
    snprintf(a->base, sizeof a->base, "%s", json_is_string(base) ? json_string_value(base) : "");
    return true;
}

static bool refuse_others(json_t *config, const char *path, char *why, size_t why_bytes)
{
    const char *key;
    json_t *value;
    char text[48], name[48];
    json_object_foreach(config, key, value)
        if (!IS_OF(key, known) && !IS_OF(key, without_effect) && !is_off(value)) {
            json_t *named = json_string(key); /* escaped: the file is a stranger's */
            const bool none = REFUSE("%s: %s is %s, which is not supported", path, shown(named, name), shown(value, text));
            json_decref(named);
            return none;
        }
    return true;
}

bool adapter_read(const char *folder, adapter *a, char *why, size_t why_bytes)
{
    char path[PATH_ROOM];
    *a = (adapter){.rank = 0};
    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= (int)sizeof path)
        return REFUSE("%.64s...: the name is too long", folder);
    return adapter_read_config(path, a, why, why_bytes);
}

bool adapter_read_config(const char *path, adapter *a, char *why, size_t why_bytes)
{
    char text[JSON_FILE_WHY];
    *a = (adapter){.rank = 0};
    json_t *config = json_file_object(path, CONFIG_BYTES_MAX, text);
    if (!config)
        return REFUSE("%s: %s", path, text);
    const bool ok = take(config, path, a, why, why_bytes) && refuse_others(config, path, why, why_bytes);
    json_decref(config);
    return ok;
}

/* ---- writing ---- */

/* NULL: no memory. */
static json_t *config_of(const adapter *a)
{
    const double whole = floor(a->alpha);
    json_t *targets = json_array();
    for (int i = 0; i < a->targets; i++)
        json_array_append_new(targets, json_string(a->target[i]));
    json_t *alpha = whole == a->alpha && fabs(whole) < 1e15 ? json_integer((json_int_t)whole) : json_real(a->alpha);
    json_t *base = *a->base ? json_string(a->base) : json_null();
    return json_pack("{s:s, s:s, s:i, s:o, s:f, s:o, s:o, s:b, s:s, s:b, s:b}", "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", a->rank,
                     "lora_alpha", alpha, "lora_dropout", a->dropout, "target_modules", targets, "base_model_name_or_path", base,
                     "fan_in_fan_out", a->fan_in_fan_out, "bias", "none", "inference_mode", 1, "init_lora_weights", 1);
}

static bool put(int fd, const char *text)
{
    const size_t bytes = strlen(text);
    const bool ok = write(fd, text, bytes) == (ssize_t)bytes && write(fd, "\n", 1) == 1 && !fsync(fd);
    return !close(fd) && ok;
}

bool adapter_write(const char *folder, const adapter *a, char *why, size_t why_bytes)
{
    char path[PATH_ROOM], part[PATH_ROOM + 8];
    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= (int)sizeof path)
        return REFUSE("%.64s...: the name is too long", folder);
    snprintf(part, sizeof part, "%s.XXXXXX", path);
    json_t *config = config_of(a);
    char *text = config ? json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(config);
    const int fd = text ? mkstemp(part) : -1;
    bool ok = fd >= 0 && !fchmod(fd, 0644) && put(fd, text) && !rename(part, path);
    if (!ok)
        ok = REFUSE("%s: cannot be written: %s", path, text ? strerror(errno) : "no memory");
    if (!ok && fd >= 0)
        unlink(part);
    free(text);
    return ok;
}
