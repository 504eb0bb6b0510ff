/* tests/fuzz/replay.c: runs a fuzz target once on each file that is named, or on each of its corpus; and, because
 * corpora are small, on every file cut short and with each byte changed. For compilers without libFuzzer, and for
 * looking at one input in a debugger.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (1 << 20)
#define VARIANTS_MAX 400 /* of one file */

/* A copy of exactly this size, so that a sanitizer sees what reads behind its end. */
static void run_copy(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count ? count : 1);
    if (!copy)
        return;
    memcpy(copy, bytes, count);
    LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static void run_variants(uint8_t *bytes, size_t count)
{
    size_t stride = count / VARIANTS_MAX + 1;
    for (size_t i = 0; i < count; i += stride) {
        run_copy(bytes, i);
        bytes[i] += 1;
        run_copy(bytes, count);
        bytes[i] -= 1;
    }
}

static bool run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(FILE_BYTES_MAX);
    bool ok = file && bytes;
    if (ok) {
        size_t count = fread(bytes, 1, FILE_BYTES_MAX, file);
        run_copy(bytes, count);
        run_variants(bytes, count);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    if (file)
        fclose(file);
    free(bytes);
    return ok;
}

static int run_corpus(void)
{
    int files = 0;
    DIR *dir = opendir(fuzz_corpus);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", fuzz_corpus, entry->d_name);
        files += entry->d_name[0] != '.' && run_file(path);
    }
    if (dir)
        closedir(dir);
    return files;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++)
        files += run_file(argv[i]);
    if (argc == 1)
        files = run_corpus();
    printf("%s: %d inputs and their variants\n", fuzz_corpus, files);
    return files > 0 && (argc == 1 || files == argc - 1) ? 0 : 1;
}
