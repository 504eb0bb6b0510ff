/* tests/apps/test_examples.c: programs of apps/examples that no page of the guide runs: what they learn, that layouts and processes
 * do not change it, and what vad.c says of recordings that are damaged. Its model here is a small one that is made by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/apps/shell.h"
#include "tests/support/effort.h"
#include "tests/support/onnx_file.h"

#define DIGITS "apps/data/digits.csv"

TestSuite(examples, .init = shell_begin, .fini = folder_remove, .timeout = 120);

/* The number behind the last `before` in the output. */
static double last_number(const char *before)
{
    const char *at = NULL;
    for (const char *next = output; (next = strstr(next, before)); next++)
        at = next + strlen(before);
    cr_assert(at, "no \"%s\" in %s", before, output);
    return strtod(at, NULL);
}

static void refuses(const char *command, const char *says)
{
    const int status = run(command);
    cr_expect(status && status < 128, "%s: status %d: %s", command, status, output);
    cr_expect(strstr(output, says), "%s: says %s, not %s", command, output, says);
}

/* ---- experts ---- */

#if EFFORT(1, 0, 0) /* the next test runs the same program, for fewer steps */
Test(examples, experts_learn_and_share_the_work)
{
    must_run(APPS_BIN "/experts 1 150");
    cr_expect(last_number("loss ") < 0.3, "%s", output);
    cr_expect(last_number("balance ") < 1.2, "%s", output);
    cr_expect(strstr(output, "step 1: loss 1.5305"), "%s", output);
}
#endif

Test(examples, experts_on_more_devices_learn_the_same)
{
    must_run(APPS_BIN "/experts 1 20");
    const double loss = last_number("loss "), dropped = last_number("balance");
    for (int devices = 2; devices <= 8; devices *= 2) {
        char command[64];
        snprintf(command, sizeof command, APPS_BIN "/experts %d 20", devices);
        must_run(command);
        cr_expect_float_eq(last_number("loss "), loss, 2e-4);
        cr_expect_float_eq(last_number("balance"), dropped, 2e-3);
    }
}

Test(examples, experts_in_two_processes_have_the_same_bits)
{
    must_run(APPS_BIN "/experts 2 30 >$T/one; weir launch -n 2 -- " APPS_BIN "/experts 2 30 | sed 's/^\\[0\\] //' >$T/two; cmp $T/one $T/two");
    must_run("grep -c parameters $T/one $T/two");
}

Test(examples, experts_take_what_divides_their_number)
{
    refuses(APPS_BIN "/experts 3", "usage");
    refuses(APPS_BIN "/experts 0", "usage");
}

/* ---- resnet ---- */

#if EFFORT(1, 0, 0) /* the next test runs the same program, for fewer steps */
Test(examples, a_residual_net_learns_digits)
{
    must_run(APPS_BIN "/resnet " DIGITS " 2 60");
    cr_expect(last_number("loss ") < 0.7, "%s", output);
    const char *last = strchr(output, '\n');
    cr_expect(last && strtod(last, NULL) >= 300, "%s", output);
}
#endif

Test(examples, a_residual_net_learns_the_same_in_any_layout_and_the_same_bits_in_processes)
{
    must_run(APPS_BIN "/resnet " DIGITS " 1 3");
    const double loss = last_number("loss ");
    must_run(APPS_BIN "/resnet " DIGITS " 2 3");
    cr_expect_float_eq(last_number("loss "), loss, 2e-3, "%s, not %g", output, loss);
    must_run(APPS_BIN "/resnet " DIGITS " 2 3 >$T/one; weir launch -n 2 -- " APPS_BIN "/resnet " DIGITS
             " 2 3 | sed 's/^\\[0\\] //' >$T/two; cmp $T/one $T/two");
}

Test(examples, images_that_are_none_are_refused_with_their_line)
{
    must_run("head -400 " DIGITS " >$T/good; sed '7s/^[0-9]*,/17,/' $T/good >$T/much; sed '9s/,[0-9]*$//' $T/good >$T/few; head -300 $T/good >$T/short");
    refuses(APPS_BIN "/resnet $T/much 1 1", "much:7: not 64 pixels and a digit");
    refuses(APPS_BIN "/resnet $T/few 1 1", "few:9: not 64 pixels and a digit");
    refuses(APPS_BIN "/resnet $T/short 1 1", "short:301: not 64 pixels and a digit");
    refuses(APPS_BIN "/resnet $T/nowhere", "cannot read");
    refuses(APPS_BIN "/resnet", "usage");
    must_run(APPS_BIN "/resnet $T/good 1 1");
}

/* ---- vad ---- */

enum { RATE = 16000, WINDOW = 512, SAMPLES = 10 * WINDOW + 100 };

/* stateN = 0.5 state + 0.5 mean of |input|; output = sigmoid(100 (mean of stateN) - 5): speech where it is loud for a while. */
static void make_model(const char *path)
{
    struct onnx_file f = {.opset = 13};
    onnx_file_input(&f, "input", ONNX_FLOAT, 2, (int64_t[]){-1, -1});
    onnx_file_input(&f, "state", ONNX_FLOAT, 3, (int64_t[]){2, -1, 128});
    onnx_file_input(&f, "sr", ONNX_INT64, 0, NULL);
    onnx_file_constant(&f, "half", ONNX_FLOAT, 1, (int64_t[]){1}, (float[]){0.5f});
    onnx_file_constant(&f, "steep", ONNX_FLOAT, 1, (int64_t[]){1}, (float[]){100});
    onnx_file_constant(&f, "five", ONNX_FLOAT, 1, (int64_t[]){1}, (float[]){5});
    onnx_file_node(&f, "Abs", "input", "size");
    onnx_file_node(&f, "ReduceMean", "size", "loud");
    onnx_file_ints(&f, "axes", 1, (int64_t[]){1});
    onnx_file_node(&f, "Mul", "loud half", "loud2");
    onnx_file_node(&f, "Mul", "state half", "state2");
    onnx_file_node(&f, "Add", "state2 loud2", "stateN");
    onnx_file_node(&f, "ReduceMean", "stateN", "mean");
    onnx_file_ints(&f, "axes", 2, (int64_t[]){0, 2});
    onnx_file_int(&f, "keepdims", 0);
    onnx_file_node(&f, "Mul", "mean steep", "high");
    onnx_file_node(&f, "Sub", "high five", "logit");
    onnx_file_node(&f, "Sigmoid", "logit", "flat");
    onnx_file_constant(&f, "shape", ONNX_INT64, 1, (int64_t[]){2}, (int64_t[]){1, 1});
    onnx_file_node(&f, "Reshape", "flat shape", "output");
    onnx_file_output(&f, "output");
    onnx_file_output(&f, "stateN");
    onnx_file_save(&f, path);
}

static void put(FILE *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), to);
}

typedef struct header {
    uint64_t code, channels, rate, bits, format_bytes, data_bytes;
} header;

static const header good = {1, 1, RATE, 16, 16, 2 * SAMPLES};

static void put_format(FILE *to, const header *h)
{
    fputs("fmt ", to);
    put(to, h->format_bytes, 4);
    put(to, h->code, 2);
    put(to, h->channels, 2);
    put(to, h->rate, 4);
    put(to, h->rate * h->channels * h->bits / 8, 4);
    put(to, h->channels * h->bits / 8, 2);
    put(to, h->bits, 2);
    for (uint64_t i = 16; i < h->format_bytes; i++)
        fputc(0, to);
}

/* A file in the test's folder; `list`: a chunk of an odd size is before the format. */
static FILE *wav_begin(const char *name, const header *h, bool list)
{
    FILE *to = fopen(folder_path("%s", name), "wb");
    cr_assert_not_null(to);
    fputs("RIFF", to);
    put(to, 36 + h->data_bytes, 4);
    fputs("WAVE", to);
    if (list) {
        fputs("LIST", to);
        put(to, 5, 4);
        fputs("12345", to);
        fputc(0, to);
    }
    put_format(to, h);
    fputs("data", to);
    put(to, h->data_bytes, 4);
    return to;
}

/* Loud from `begin` up to `end`, in samples. */
static int16_t sample(int i, int begin, int end)
{
    return (int16_t)(i < begin || i >= end ? 0 : i % 2 ? 20000 : -20000);
}

static void make_wav(const char *name, const header *h, bool list, int samples, int begin, int end)
{
    FILE *to = wav_begin(name, h, list);
    for (int i = 0; i < samples; i++)
        put(to, (uint16_t)sample(i, begin, end), 2);
    fclose(to);
}

Test(examples, vad_gives_the_model_each_window_with_the_end_of_the_last_and_keeps_its_state)
{
    make_model(folder_path("model.onnx"));
    header longer = good;
    longer.format_bytes = 18;
    make_wav("talk.wav", &longer, true, SAMPLES, 3 * WINDOW + 7, 6 * WINDOW - 30);
    must_run(APPS_BIN "/vad $T/model.onnx $T/talk.wav probabilities");
    double state = 0;
    char *at = output;
    for (int w = 0; w < 11; w++) {
        double sum = 0;
        for (int i = w * WINDOW - 64; i < (w + 1) * WINDOW; i++)
            sum += i < 0 || i >= SAMPLES ? 0 : fabs(sample(i, 3 * WINDOW + 7, 6 * WINDOW - 30) / 32768.0);
        state = 0.5 * state + 0.5 * sum / (WINDOW + 64);
        const double want = 1 / (1 + exp(5 - 100 * state)), got = strtod(at, &at);
        cr_expect_float_eq(got, want, 2e-5, "window %d: %g, not %g", w, got, want);
    }
    cr_expect_str_eq(at, "\n");
}

Test(examples, vad_prints_segments_and_drops_short_ones)
{
    header longer = good;
    longer.data_bytes = 2 * 60 * WINDOW;
    make_model(folder_path("model.onnx"));
    make_wav("talk.wav", &longer, false, 60 * WINDOW, 10 * WINDOW, 30 * WINDOW);
    must_run(APPS_BIN "/vad $T/model.onnx $T/talk.wav");
    cr_expect_str_eq(output, "0.32 to 1.06 s\n1 segments in 1.92 s\n"); /* the state, 0.61, is halved four times */
    make_wav("talk.wav", &longer, false, 60 * WINDOW, 50 * WINDOW, 60 * WINDOW);
    must_run(APPS_BIN "/vad $T/model.onnx $T/talk.wav");
    cr_expect_str_eq(output, "1.60 to 1.92 s\n1 segments in 1.92 s\n");
    make_wav("talk.wav", &longer, false, 60 * WINDOW, 10 * WINDOW, 11 * WINDOW);
    must_run(APPS_BIN "/vad $T/model.onnx $T/talk.wav");
    cr_expect_str_eq(output, "0 segments in 1.92 s\n");
    longer.data_bytes = 0;
    make_wav("talk.wav", &longer, false, 0, 0, 0);
    must_run(APPS_BIN "/vad $T/model.onnx $T/talk.wav");
    cr_expect_str_eq(output, "0 segments in 0.00 s\n");
}

static void refuses_wav(header h, int samples, const char *says)
{
    make_wav("bad.wav", &h, false, samples, 0, samples);
    refuses(APPS_BIN "/vad $T/model.onnx $T/bad.wav", says);
}

Test(examples, vad_refuses_other_formats_and_damaged_recordings)
{
    header h;
    make_model(folder_path("model.onnx"));
    refuses_wav((h = good, h.code = 3, h), SAMPLES, "format 3, 1 channels, 16000 Hz, 16 bits; it must be PCM (1)");
    refuses_wav((h = good, h.channels = 2, h), SAMPLES, "2 channels");
    refuses_wav((h = good, h.rate = 44100, h), SAMPLES, "44100 Hz");
    refuses_wav((h = good, h.bits = 8, h), SAMPLES, "8 bits");
    refuses_wav((h = good, h.data_bytes++, h), SAMPLES, "half a sample");
    refuses_wav((h = good, h.data_bytes = 0xfffffffe, h), SAMPLES, "it ends before the number of samples");
    refuses_wav(good, SAMPLES / 2, "it ends before the number of samples");
}

Test(examples, vad_refuses_what_is_no_wav_file)
{
    make_model(folder_path("model.onnx"));
    make_wav("good.wav", &good, false, SAMPLES, 0, 0);
    for (int bytes = 0; bytes < 44; bytes += EFFORT(1, 5, 11)) { /* cut anywhere before the samples */
        char command[200];
        snprintf(command, sizeof command, "head -c %d $T/good.wav >$T/cut.wav; " APPS_BIN "/vad $T/model.onnx $T/cut.wav", bytes);
        refuses(command, bytes < 12 ? "not a WAV file" : bytes > 19 && bytes < 36 ? "its format has less than 16 bytes" : "it has no samples");
    }
    must_run("printf 'RIFF\\004\\0\\0\\0WAVEdata\\004\\0\\0\\0abcd' >$T/early.wav; printf 'RIFF\\004\\0\\0\\0AVI ' >$T/video.wav");
    refuses(APPS_BIN "/vad $T/model.onnx $T/early.wav", "the samples come before their format");
    refuses(APPS_BIN "/vad $T/model.onnx $T/video.wav", "not a WAV file");
    must_run("printf 'RIFF\\004\\0\\0\\0WAVELIST\\377\\377\\377\\377abcd' >$T/list.wav");
    refuses(APPS_BIN "/vad $T/model.onnx $T/list.wav", "it ends within a chunk");
    refuses(APPS_BIN "/vad $T/model.onnx $T/nowhere.wav", "nowhere.wav: cannot be read");
    refuses(APPS_BIN "/vad $T/model.onnx $T", "not a WAV file");
    refuses(APPS_BIN "/vad $T/nowhere.onnx $T/good.wav", "nowhere.onnx");
    refuses(APPS_BIN "/vad $T/good.wav $T/good.wav", "good.wav");
    refuses(APPS_BIN "/vad", "usage");
}
