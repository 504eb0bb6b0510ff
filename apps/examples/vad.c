/* vad.c: finds the speech in a recording, window by window, with the model Silero VAD.
 *
 *     vad silero_vad.onnx talk.wav [probabilities]     prints the segments, or the probability of speech of each window
 *
 * The model file is in the package silero-vad of PyPI. The recording is a WAV file: PCM, 16 bits, one channel, 16 kHz. It is read as
 * a stream, a window at a time, so its length does not matter. The model's state goes from step to step within the session.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { RATE = 16000, WINDOW = 512, CONTEXT = 64 }; /* samples; each window has the end of the one before in front */
#define BEGINS 0.5 /* the probability from which on there is speech, */
#define ENDS 0.35  /* and below which there is none */
enum { SPEECH_MIN = 8, SILENCE_MIN = 3 }; /* windows; a shorter segment is dropped, a shorter pause is part of one */

/* ---- the recording ---- */

typedef struct wav {
    FILE *file; /* owned */
    const char *path;
    uint32_t samples, taken;
    char error[300];
} wav;

static uint32_t number(const unsigned char *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static bool wrong(wav *w, const char *what)
{
    snprintf(w->error, sizeof w->error, "%s: %s", w->path, what);
    return false;
}

/* Reads over `bytes` bytes. False: the file ends before. */
static bool skip(wav *w, uint64_t bytes)
{
    char ignored[4096];
    while (bytes) {
        const size_t most = bytes < sizeof ignored ? (size_t)bytes : sizeof ignored, count = fread(ignored, 1, most, w->file);
        if (!count)
            return false;
        bytes -= count;
    }
    return true;
}

static bool format_ok(wav *w, const unsigned char *format)
{
    const uint32_t code = number(format, 2), channels = number(format + 2, 2), rate = number(format + 4, 4), bits = number(format + 14, 2);
    if (code == 1 && channels == 1 && rate == RATE && bits == 16)
        return true;
    snprintf(w->error, sizeof w->error,
             "%s: format %u, %u channels, %u Hz, %u bits; it must be PCM (1), 1 channel, %d Hz, 16 bits: convert it first", w->path, code,
             channels, rate, bits, RATE);
    return false;
}

/* Chunks are a name, a size and so many bytes, and one more if the size is odd. Stops at the samples. */
static bool wav_open(wav *w, const char *path)
{
    unsigned char head[12], format[16];
    bool known = false;
    *w = (wav){.file = fopen(path, "rb"), .path = path};
    if (!w->file)
        return wrong(w, "cannot be read");
    if (fread(head, 1, 12, w->file) < 12 || memcmp(head, "RIFF", 4) != 0 || memcmp(head + 8, "WAVE", 4) != 0)
        return wrong(w, "not a WAV file: it does not begin with RIFF and WAVE");
    while (fread(head, 1, 8, w->file) == 8) {
        const uint32_t bytes = number(head + 4, 4);
        uint64_t rest = (uint64_t)bytes + bytes % 2;
        if (!memcmp(head, "data", 4)) {
            w->samples = bytes / 2;
            return !known ? wrong(w, "the samples come before their format") : bytes % 2 ? wrong(w, "half a sample at the end") : true;
        }
        if (!memcmp(head, "fmt ", 4)) {
            if (bytes < sizeof format || fread(format, 1, sizeof format, w->file) < sizeof format)
                return wrong(w, "its format has less than 16 bytes");
            if (!format_ok(w, format))
                return false;
            rest -= sizeof format;
            known = true;
        }
        if (!skip(w, rest))
            return wrong(w, "it ends within a chunk");
    }
    return wrong(w, "it has no samples");
}

/* The next window to x, with zeros behind the last sample. */
static bool wav_take(wav *w, float x[WINDOW])
{
    unsigned char bytes[2 * WINDOW] = {0};
    const uint32_t left = w->samples - w->taken, count = left < WINDOW ? left : WINDOW;
    if (fread(bytes, 2, count, w->file) < count)
        return wrong(w, "it ends before the number of samples that it says it has");
    for (int i = 0; i < WINDOW; i++)
        x[i] = (float)(int16_t)number(bytes + 2 * i, 2) / 32768;
    w->taken += count;
    return true;
}

/* ---- segments ---- */

typedef struct segments {
    bool speaks;
    int64_t first, silent; /* windows: the segment's first, and the first of a pause after it; -1: none */
    int count;
} segments;

static void print_segment(segments *s, int64_t end)
{
    if (end - s->first >= SPEECH_MIN) {
        printf("%.2f to %.2f s\n", (double)s->first * WINDOW / RATE, (double)end * WINDOW / RATE);
        s->count++;
    }
    s->speaks = false;
}

static void take_probability(segments *s, int64_t window, double probability)
{
    if (!s->speaks && probability >= BEGINS)
        *s = (segments){true, window, -1, s->count};
    if (s->speaks && probability >= ENDS)
        s->silent = -1;
    else if (s->speaks && s->silent < 0)
        s->silent = window;
    if (s->speaks && s->silent >= 0 && window - s->silent + 1 >= SILENCE_MIN)
        print_segment(s, s->silent);
}

/* ---- the model ---- */

static weir_session *open_model(const char *path, weir_plan **plan)
{
    int64_t rate = RATE;
    weir_graph *g = weir_graph_from_onnx(path, .shape = {{"input", {1, CONTEXT + WINDOW}}, {"state", {2, 1, 128}}},
                                         .value = {{"sr", WEIR_ARRAY(&rate, WEIR_I64)}}, .state = {{"state", "stateN"}});
    weir_tensor *output = g ? weir_graph_tensor(g, "output") : NULL;
    if (output)
        weir_fetch(output, .name = "output");
    *plan = output ? weir_compile(g) : NULL;
    weir_session *s = *plan ? weir_session_open(*plan) : NULL;
    if (s && weir_session_write_values(s, g)) {
        weir_session_close(s);
        s = NULL;
    }
    weir_graph_free(g);
    return s;
}

/* A step for each window. OK after a faulty recording too, which w->error then tells. */
static weir_status listen(weir_session *s, wav *w, bool each)
{
    float x[CONTEXT + WINDOW] = {0}, probability;
    segments found = {.silent = -1};
    const int64_t windows = ((int64_t)w->samples + WINDOW - 1) / WINDOW;
    weir_status status = windows ? weir_session_start(s, windows) : WEIR_OK;
    for (int64_t i = 0; i < windows && !status; i++) {
        memmove(x, x + WINDOW, CONTEXT * sizeof *x);
        if (!wav_take(w, x + CONTEXT))
            return weir_session_cancel(s);
        status = weir_session_push(s, "input", WEIR_ARRAY(x, WEIR_F32, 1, CONTEXT + WINDOW), -1);
        status = status ? status : weir_session_pull(s, "output", WEIR_ARRAY(&probability, WEIR_F32, 1, 1), -1);
        if (!status && each)
            printf("%.6f\n", (double)probability);
        else if (!status)
            take_probability(&found, i, (double)probability);
    }
    status = status || !windows ? status : weir_session_wait(s, -1);
    if (found.speaks && !status)
        print_segment(&found, windows);
    if (!status && !each)
        printf("%d segments in %.2f s\n", found.count, (double)w->samples / RATE);
    return status;
}

int main(int argc, char **argv)
{
    const bool each = argc == 4 && !strcmp(argv[3], "probabilities");
    weir_plan *plan = NULL;
    weir_session *s = NULL;
    wav w;
    if (argc != 3 && !each)
        return fputs("usage: vad silero_vad.onnx FILE.wav [probabilities]\n", stderr), 2;
    bool failed = !wav_open(&w, argv[2]);
    if (!failed) {
        s = open_model(argv[1], &plan);
        failed = !s || listen(s, &w, each) || *w.error;
    }
    if (failed)
        fprintf(stderr, "vad: %s\n", *w.error ? w.error : weir_error());
    weir_session_close(s);
    weir_plan_free(plan);
    if (w.file)
        fclose(w.file);
    return failed || fflush(stdout);
}
