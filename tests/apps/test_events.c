/* tests/apps/test_events.c: event files for TensorBoard, read back byte by byte: the frames, the checksums, the values, and that
 * they are those of the log. */
#define _GNU_SOURCE
#include "apps/common/train/events.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tests/apps/shell.h"
#include "tests/support/json.h"

#define GPT APPS_BIN "/weir-gpt --dim 8 --heads 1 --seq 8 --batch 4 --sample 0 --text README.md "

TestSuite(events, .init = shell_begin, .fini = folder_remove, .timeout = 120);

/* ---- a plain reader ---- */

#define SCALARS_MAX 2000

typedef struct scalar {
    int64_t step;
    char tag[64];
    float value;
} scalar;

typedef struct content {
    int records, versions, scalars;
    int64_t begins_at; /* -1: no event says so */
    scalar scalar[SCALARS_MAX];
} content;

typedef struct bytes {
    const unsigned char *at, *end;
} bytes;

/* By a table, unlike the writer. */
static uint32_t crc32c(bytes b)
{
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78 : table[i] >> 1;
    }
    for (; b.at < b.end; b.at++)
        crc = crc >> 8 ^ table[(crc ^ *b.at) & 255];
    return ~crc;
}

static uint64_t take_fixed(bytes *b, int count)
{
    uint64_t value = 0;
    cr_assert(b->end - b->at >= count);
    for (int i = 0; i < count; i++)
        value |= (uint64_t)*b->at++ << 8 * i;
    return value;
}

static uint64_t take_varint(bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint64_t byte = take_fixed(b, 1);
        value |= (byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    cr_assert_fail("a varint of more than 64 bits");
    return 0;
}

static bytes take_bytes(bytes *b)
{
    const uint64_t count = take_varint(b);
    cr_assert(count <= (uint64_t)(b->end - b->at));
    b->at += count;
    return (bytes){b->at - count, b->at};
}

static void expect_crc(bytes *b, bytes of)
{
    const uint32_t stored = (uint32_t)take_fixed(b, 4), turned = stored - 0xa282ead8;
    cr_assert_eq(turned >> 17 | turned << 15, crc32c(of));
}

static void read_value(bytes b, content *c)
{
    scalar *s = &c->scalar[c->scalars++];
    cr_assert(c->scalars < SCALARS_MAX);
    *s = (scalar){.value = NAN};
    while (b.at < b.end) {
        const uint64_t key = take_varint(&b);
        if (key == (1 << 3 | 2)) {
            const bytes tag = take_bytes(&b);
            snprintf(s->tag, sizeof s->tag, "%.*s", (int)(tag.end - tag.at), (const char *)tag.at);
        } else {
            cr_assert_eq(key, 2 << 3 | 5);
            const uint32_t bits = (uint32_t)take_fixed(&b, 4);
            memcpy(&s->value, &bits, sizeof bits);
        }
    }
}

static void read_event(bytes b, content *c)
{
    const int before = c->scalars;
    int64_t step = -1;
    double time = 0;
    bool begins = false;
    while (b.at < b.end) {
        const uint64_t key = take_varint(&b);
        if (key == (1 << 3 | 1)) {
            const uint64_t bits = take_fixed(&b, 8);
            memcpy(&time, &bits, sizeof bits);
        } else if (key == (2 << 3 | 0)) {
            step = (int64_t)take_varint(&b);
        } else {
            cr_assert_eq(key & 7, 2, "field %d", (int)key);
            bytes inner = take_bytes(&b);
            if (key >> 3 == 3)
                c->versions += inner.end - inner.at == 13 && !memcmp(inner.at, "brain.Event:2", 13);
            else if (key >> 3 == 7)
                begins = inner.end - inner.at == 2 && inner.at[0] == 8 && inner.at[1] == 1;
            else
                cr_assert_eq(key >> 3, 5);
            while (key >> 3 == 5 && inner.at < inner.end) {
                cr_assert_eq(take_varint(&inner), 1 << 3 | 2);
                read_value(take_bytes(&inner), c);
            }
        }
    }
    cr_assert(time > 1.5e9 && time < 1e11 && step >= 0, "time %g, step %d", time, (int)step);
    c->begins_at = begins ? step : c->begins_at;
    for (int i = before; i < c->scalars; i++)
        c->scalar[i].step = step;
}

/* The only file of a folder whose name has `except` not in it; *path is its own. */
static void find_file(const char *folder, const char *except, char path[1024])
{
    DIR *d = opendir(folder);
    int found = 0;
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, "tfevents") && !(*except && strstr(except, e->d_name))) {
            snprintf(path, 1024, "%s/%s", folder, e->d_name);
            found++;
        }
    closedir(d);
    cr_assert_eq(found, 1, "%s has %d event files", folder, found);
}

static void read_file(const char *path, content *c)
{
    static unsigned char all[1 << 20];
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    bytes b = {all, all + fread(all, 1, sizeof all, file)};
    fclose(file);
    *c = (content){.begins_at = -1};
    while (b.at < b.end) {
        const bytes head = {b.at, b.at + 8};
        const uint64_t count = take_fixed(&b, 8);
        expect_crc(&b, head);
        cr_assert(count <= (uint64_t)(b.end - b.at));
        const bytes data = {b.at, b.at + count};
        b.at += count;
        expect_crc(&b, data);
        read_event(data, c);
        cr_assert_eq(c->versions, 1, "the first event is the version, and no other");
        c->records++;
    }
}

static content found;

static void read_folder(const char *folder)
{
    char path[1024];
    find_file(folder, "", path);
    read_file(path, &found);
}

/* The scalar of a step; NULL: none. It must not be there twice. */
static const scalar *find(int64_t step, const char *tag)
{
    const scalar *it = NULL;
    for (int i = 0; i < found.scalars; i++)
        if (found.scalar[i].step == step && !strcmp(found.scalar[i].tag, tag)) {
            cr_expect_null(it, "%s of step %d twice", tag, (int)step);
            it = &found.scalar[i];
        }
    return it;
}

/* ---- the writer ---- */

Test(events, checksums_are_those_of_rfc_3720)
{
    const unsigned char digits[] = "123456789";
    cr_expect_eq(crc32c((bytes){digits, digits + 9}), 0xe3069283);
}

Test(events, a_file_is_read_back)
{
    events_file e = {0};
    char folder[64], tag[50];
    snprintf(folder, sizeof folder, "%s", folder_path("new/runs/a"));
    cr_assert(events_open(&e, folder));
    for (int i = 0; i < 300; i++) {
        for (int k = 0; k < 3; k++) {
            snprintf(tag, sizeof tag, "tag/%d", k);
            events_add(&e, tag, i ? 1.0 / i + k : (double)NAN);
        }
        events_end(&e, (int64_t)i << 20);
    }
    cr_expect_eq(events_close(&e), 0);
    read_folder(folder);
    cr_expect_eq(found.records, 301);
    cr_expect_eq(found.scalars, 900);
    cr_expect_eq(found.begins_at, -1);
    for (int i = 0; i < 900; i++) {
        const scalar *s = &found.scalar[i];
        snprintf(tag, sizeof tag, "tag/%d", i % 3);
        cr_expect_str_eq(s->tag, tag);
        cr_expect_eq(s->step, (int64_t)(i / 3) << 20);
        cr_expect(i / 3 ? s->value == (float)(1.0 / (i / 3) + i % 3) : isnan(s->value));
    }
}

Test(events, long_tags_are_kept_whole)
{
    events_file e = {0};
    char folder[64], tag[64] = "", path[1024], all[512];
    snprintf(folder, sizeof folder, "%s", folder_path("long"));
    memset(tag, 'x', sizeof tag - 1);
    cr_assert(events_open(&e, folder));
    events_add(&e, tag, 2.5);
    char longer[200];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    events_add(&e, longer, 3.5);
    events_end(&e, 7);
    cr_expect_eq(events_close(&e), 0);
    read_folder(folder);
    cr_expect_str_eq(found.scalar[0].tag, tag);
    cr_expect_float_eq(found.scalar[1].value, 3.5f, 0);
    find_file(folder, "", path);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    const size_t count = fread(all, 1, sizeof all, file);
    fclose(file);
    cr_expect_not_null(memmem(all, count, longer, sizeof longer - 1));
}

Test(events, a_file_that_is_not_open_takes_everything_and_writes_nothing)
{
    events_file e = {0};
    events_begin_at(&e, 3);
    events_add(&e, "loss", 1);
    events_end(&e, 1);
    cr_expect_eq(events_close(&e), 0);
}

/* ---- programs ---- */

/* Every number of the log's line of a step is in the events, as an f32. */
static void expect_line(const char *line, int step)
{
    static const char *const names[] = {"loss", "seconds", "tokens_per_s", "learning_rate", "grad_norm", "grad_norm/h0",
                                        "grad_norm/h1", "grad_norm/wte", "grad_norm/head"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const scalar *s = find(step, names[i]);
        const double want = json_member(line, names[i]);
        cr_assert(s, "step %d has no %s", step, names[i]);
        cr_expect(fabs((double)s->value - want) <= 1e-6 * fabs(want) + (strstr(names[i], "per_s") ? 0.06 : 1e-6), "step %d, %s: %g, not %g", step, names[i], (double)s->value, want);
    }
}

Test(events, a_training_writes_what_its_log_has)
{
    char line[4096];
    int steps = 0, judged = 0;
    must_run(GPT "--layers 2 --dp 2 --steps 12 --eval-every 5 --log $T/log --log-dir $T/tb --log-gradients");
    read_folder(folder_path("tb"));
    FILE *log = fopen(folder_path("log"), "r");
    cr_assert_not_null(log);
    while (fgets(line, sizeof line, log)) {
        if (!strncmp(line, "{\"step\": ", 9)) {
            expect_line(line, steps++);
        } else if (!strncmp(line, "{\"steps\": ", 10)) {
            const scalar *s = find((int64_t)json_member(line, "steps") - 1, "validation_loss");
            cr_assert(s, "no event for %s", line);
            cr_expect_float_eq(s->value, (float)json_member(line, "validation_loss"), 1e-6f);
            judged++;
        }
    }
    fclose(log);
    cr_expect_eq(steps, 12);
    cr_expect_eq(judged, 3);
    cr_expect_eq(found.records, 1 + steps + judged);
}

/* The squares of the norms of a step's groups add up to that of the norm of all. */
static void expect_squares(int step)
{
    double sum = 0;
    int groups = 0;
    for (int i = 0; i < found.scalars; i++)
        if (found.scalar[i].step == step && !strncmp(found.scalar[i].tag, "grad_norm/", 10)) {
            sum += (double)found.scalar[i].value * (double)found.scalar[i].value;
            groups++;
        }
    const scalar *all = find(step, "grad_norm");
    cr_assert(all && groups > 1, "%d groups", groups);
    cr_expect(fabs(sqrt(sum) - (double)all->value) <= 1e-5 * (double)all->value, "%g, not %g", sqrt(sum), (double)all->value);
}

/* Names of groups for so many layers: "first" is there, "last" too, "not" is not. */
static void expect_groups(const char *program, const char *first, const char *last, const char *not)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf $T/tb; %s --steps 2 --log-dir $T/tb --log-gradients", program);
    must_run(command);
    read_folder(folder_path("tb"));
    cr_expect(find(0, first) && find(1, first), "%s: no %s", program, first);
    cr_expect(find(0, last), "%s: no %s", program, last);
    cr_expect(!find(0, not), "%s: has %s", program, not);
    expect_squares(0);
    expect_squares(1);
}

Test(events, norms_of_layers_cover_all_parameters_however_many_layers_there_are)
{
    expect_groups(GPT "--layers 3 --pp 2 --micro 2", "grad_norm/h0", "grad_norm/h2", "grad_norm/h3");
    expect_groups(GPT "--layers 12", "grad_norm/h0", "grad_norm/h11", "grad_norm/h0-9");
    expect_groups(GPT "--layers 13", "grad_norm/h0-9", "grad_norm/h10-12", "grad_norm/h10");
    expect_groups(GPT "--layers 21", "grad_norm/h10-19", "grad_norm/h20", "grad_norm/h20-21");
    expect_groups(GPT "--layers 130 --seq 2 --batch 1", "grad_norm/h10-99", "grad_norm/h100-129", "grad_norm/h0");
    expect_groups(APPS_BIN "/weir-digits --layers 2 --dim 8 --batch 8", "grad_norm/ln", "grad_norm/h1", "grad_norm/conv0");
    expect_groups(APPS_BIN "/weir-digits --conv --layers 12 --dim 8 --batch 8", "grad_norm/conv2", "grad_norm/h10-11", "grad_norm/h0");
}

Test(events, logged_gradients_leave_the_training_as_it_is)
{
    must_run(GPT "--layers 2 --steps 8 --log $T/plain && " GPT "--layers 2 --steps 8 --log $T/with --log-gradients");
    FILE *plain = fopen(folder_path("plain"), "r"), *with = fopen(folder_path("with"), "r");
    char a[2048], b[2048];
    cr_assert(plain && with);
    for (int i = 0; i < 8; i++) {
        cr_assert(fgets(a, sizeof a, plain) && fgets(b, sizeof b, with));
        cr_expect_float_eq(json_member(a, "loss"), json_member(b, "loss"), 1e-5);
    }
    fclose(plain);
    fclose(with);
}

Test(events, a_resumed_training_adds_a_file_that_begins_at_its_step)
{
    char first[1024], second[1024];
    must_run(GPT "--layers 1 --steps 6 --save $T/s --save-every 4 --keep 9 --log-dir $T/tb");
    find_file(folder_path("tb"), "", first);
    must_run(GPT "--layers 1 --steps 8 --resume $T/s/step-00000004 --log-dir $T/tb");
    find_file(folder_path("tb"), first, second);
    read_file(first, &found);
    cr_expect_eq(found.begins_at, -1);
    cr_expect(find(0, "loss") && find(5, "loss") && !find(6, "loss"));
    read_file(second, &found);
    cr_expect_eq(found.begins_at, 4);
    cr_expect(!find(3, "loss") && find(4, "loss") && find(7, "loss") && find(7, "validation_loss"));
}

Test(events, one_rank_of_several_writes)
{
    must_run("weir launch -n 2 -- " GPT "--layers 1 --dp 2 --steps 3 --log-dir $T/tb --log-gradients");
    read_folder(folder_path("tb"));
    cr_expect(find(2, "loss") && find(2, "grad_norm/h0"));
}

/* The command fails with status 2 and says this. */
static void refuses(const char *command, const char *says)
{
    cr_expect_eq(run(command), 2, "%s: %s", command, output);
    cr_expect(strstr(output, says), "%s: says %s", command, output);
}

Test(events, a_folder_that_cannot_be_written_is_a_mistake_before_the_work)
{
    must_run("touch $T/file");
    refuses(GPT "--steps 1 --log-dir $T/file", "--log-dir: cannot write in ");
    refuses(GPT "--steps 1 --log-dir $T/file/below", "Not a directory");
    refuses(GPT "--steps 1 --log-dir ''", "No such file or directory");
    refuses(GPT "--steps 1 --log-gradients", "--log-gradients needs --log FILE or --log-dir DIR");
    refuses("ulimit -f 1; trap '' XFSZ; " GPT "--layers 1 --steps 40 --log-dir $T/tb", "the event file ends here, training goes on");
}
