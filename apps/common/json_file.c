/* apps/common/json_file.c: see the header. */
#include "apps/common/json_file.h"

#include "graph/base/reading.h"

#include <stdlib.h>

enum { VALUES_MAX = 4 << 20 };

static void *refuse(char *why, const char *sentence)
{
    snprintf(why, JSON_FILE_WHY, "%s", sentence);
    return NULL;
}

char *json_file_text(FILE *file, size_t most, size_t *bytes, char why[JSON_FILE_WHY])
{
    size_t room = 1 << 16, got = 0;
    char *text = malloc(room), *grown = text;
    while (grown && (got += fread(text + got, 1, room - got, file)) == room && room <= most) {
        room = room <= most / 2 ? 2 * room : most + 1;
        grown = realloc(text, room);
        text = grown ? grown : text;
    }
    if (grown && got < room && !ferror(file)) {
        text[got] = '\0';
        *bytes = got;
        return text;
    }
    refuse(why, grown ? "cannot be read to its end" : "no memory");
    if (grown && got == room)
        snprintf(why, JSON_FILE_WHY, "has more than %zu %s, which is the most that is read", most >> (most >> 20 ? 20 : 10), most >> 20 ? "MiB" : "KiB");
    free(text);
    return NULL;
}

static bool has_few_values(const char *text, size_t bytes, char *why)
{
    size_t values = 1;
    for (size_t i = 0; i < bytes; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > VALUES_MAX)
        snprintf(why, JSON_FILE_WHY, "has some %zu values; at most %d are read", values, VALUES_MAX);
    return values <= VALUES_MAX;
}

json_t *json_file_read(FILE *file, size_t most, size_t flags, char why[JSON_FILE_WHY])
{
    size_t bytes;
    json_error_t error;
    json_t *json = NULL;
    char *text = json_file_text(file, most, &bytes, why);
    if (text && has_few_values(text, bytes, why)) {
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | flags, &error);
        if (!json)
            snprintf(why, JSON_FILE_WHY, "line %d: is not JSON: %s", error.line, error.text);
    }
    free(text);
    return json;
}

json_t *json_file_object(const char *path, size_t most, char why[JSON_FILE_WHY])
{
    const char *fault;
    FILE *file = reading_file(path, &fault);
    if (!file) {
        snprintf(why, JSON_FILE_WHY, "cannot be read: %s", fault);
        return NULL;
    }
    json_t *json = json_file_read(file, most, 0, why);
    fclose(file);
    if (!json || json_is_object(json))
        return json;
    json_decref(json);
    return refuse(why, "is not a JSON object");
}
