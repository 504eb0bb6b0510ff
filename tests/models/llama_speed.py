"""A language model of a GGUF file: `weir-gpt` and llama.cpp in turns.

    chrt -f 50 llama_speed.py BIN FILE.gguf [--turns 5] [--threads 1 2] [--tokens 128] [--prompts 16 241 512] [--memory LOGITS]

The package llama-cpp-python has to be built for this machine: CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary :all: llama-cpp-python.
weir-gpt runs as users run it, in the default mode, each time in a new process. Its figures are those that it prints. llama.cpp has
read the prompt once before its time is taken. A line gives the least, the median and the most of all turns:

    read      tokens/s of a prompt of so many tokens
    decode    tokens/s of --tokens tokens behind it; beside them a loop that reads the file's bytes once for each token
    first     ms from the start to the first token of a prompt of 16; of llama.cpp without Python's own start

--memory adds the largest proportional set size (PSS) of weir-gpt for a text of 1,024 tokens, and how much anonymous memory the program
LOGITS, of lm_logits.c, has at the beginning and at the end of 10,000 tokens of one session. Nothing else may map the file then.
"""
import argparse
import ctypes
import json
import multiprocessing.pool
import os
import re
import statistics
import subprocess
import sys
import time

import numpy as np

FIRST, VOCAB = 16, 49152
TEXT = os.path.join(os.path.dirname(__file__), "../../docs/design.md")


# ---- llama.cpp, in a process of its own ----

def peer(path, threads, ids, tokens):
    from llama_cpp import llama_cpp as lib
    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, None)
    begin = time.perf_counter()
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_threads, options.n_threads_batch = 1024, 1024, threads, threads
    context = lib.llama_init_from_model(model, options)
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def run(tokens):
        borrowed = (ctypes.c_int32 * len(tokens))(*tokens)
        if lib.llama_decode(context, lib.llama_batch_get_one(borrowed, len(tokens))):
            raise RuntimeError("llama_decode() has failed")
        return int(np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (vocab,)).argmax())

    def read():
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        start = time.perf_counter()
        return run(ids), time.perf_counter() - start

    read()
    first = time.perf_counter() - begin
    token, seconds = read()
    start = time.perf_counter()
    for _ in range(tokens):
        token = run([token])
    print(json.dumps({"first": 1e3 * first, "read": len(ids) / seconds, "decode": tokens / (time.perf_counter() - start) if tokens else 0}))


def llama(args, threads, ids, tokens):
    run = [sys.executable, __file__, "--peer", args.bin, args.file, "--threads", str(threads), "--tokens", str(tokens)]
    return json.loads(subprocess.run(run, input=json.dumps(ids), capture_output=True, text=True, check=True).stdout)


# ---- weir ----

def command(args, threads, text, tokens):
    return [f"{args.bin}/weir-gpt", "--model", args.file, "--prompt", text, "--sample", str(tokens), "--temperature", "0", *(["--tp", str(threads)] if threads > 1 else [])]


def weir(args, threads, text, tokens):
    start = time.perf_counter()
    said = subprocess.run(command(args, threads, text, tokens), capture_output=True, text=True, check=True).stderr
    found = {"first": 1e3 * (time.perf_counter() - start)}
    for name, pattern in ("read", r"read at ([\d.]+)"), ("decode", r"written at ([\d.]+)"), ("written", r"(\d+) tokens written"), ("count", r"behind (\d+)"):
        match = re.search(pattern, said)
        found[name] = float(match.group(1)) if match else 0
    return found


def tokens_of(args, text):
    done = subprocess.run([f"{args.bin}/weir", "tokens", "encode", "--tokenizer", args.file, "-"], input=text, capture_output=True, text=True, check=True)
    return [int(i) for i in done.stdout.split()]


def text_of(args, count):
    """The beginning of a text of the tree that has about `count` tokens."""
    with open(TEXT) as file:
        text = file.read()
    ids = tokens_of(args, text)[:count]
    done = subprocess.run([f"{args.bin}/weir", "tokens", "decode", "--tokenizer", args.file, "-"], input=" ".join(map(str, ids)), capture_output=True,
                          text=True, check=True)
    return done.stdout.rstrip("\n")


def loop(args, threads):
    """Tokens/s if a token were the sum of the file's bytes."""
    parts = np.array_split(np.memmap(args.file, np.int64, "r", shape=(os.path.getsize(args.file) // 8,)), threads)
    start = time.perf_counter()
    for _ in range(16):
        list(args.pool.map(np.sum, parts))
    return 16 / (time.perf_counter() - start)


# ---- memory ----

def memory(process, kind):
    """MiB; 0: it has ended."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup") as file:
            return int(re.search(rf"^{kind}: +(\d+)", file.read(), re.M).group(1)) / 1024
    except (OSError, AttributeError):
        return 0


def largest_pss(run):
    most = 0
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, memory(process, "Pss"))
            time.sleep(0.05)
        return most, process.stderr.read().strip()


def growth(args):
    """MiB of anonymous memory behind the first of 20 texts of 502 tokens, and before the last."""
    lines = b"".join(b"500 %d %d\n" % (504 + i, 1343 + i) for i in range(20))
    found = []
    with subprocess.Popen([args.memory, args.file, "rounded"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(lines)
        process.stdin.close()
        for _ in range(19):
            process.stdout.read(502 * 4 * (1 + VOCAB))
            found.append(memory(process, "Pss_Anon"))
        process.stdout.read()
    return found[0], found[-1]


# ---- all ----

def spread(values):
    return f"{min(values):.0f} {statistics.median(values):.0f} {max(values):.0f}"


def show(name, unit, turns, key, more=""):
    ours, theirs = ([turn[side][key] for turn in turns] for side in range(2))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    print(f"{name:28} weir {spread(ours):>16}   llama.cpp {spread(theirs):>16} {unit}   ratio {ratio:.2f}{more}", flush=True)


def compare(args, threads, count):
    text = text_of(args, count)
    ids = tokens_of(args, text)
    turns = [(weir(args, threads, text, args.tokens), llama(args, threads, ids, args.tokens), loop(args, threads)) for _ in range(args.turns)]
    share = statistics.median(turn[0]["decode"] / turn[2] for turn in turns)
    show(f"{threads} threads, read {len(ids)}", "tokens/s", turns, "read")
    show(f"{threads} threads, decode behind {len(ids)}", "tokens/s", turns, "decode", f"   loop {spread([turn[2] for turn in turns])}, share {share:.2f}")


def first_token(args, threads):
    text = text_of(args, FIRST)
    ids = tokens_of(args, text)
    turns = [(weir(args, threads, text, 1), llama(args, threads, ids, 1)) for _ in range(args.turns)]
    show(f"{threads} threads, first of {len(ids)}", "ms", turns, "first")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("file")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, nargs="*", default=[16, 241, 512])
    parser.add_argument("--memory", metavar="LOGITS")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.file, args.threads[0], json.load(sys.stdin), args.tokens)
    args.pool = multiprocessing.pool.ThreadPool(max(args.threads))
    for threads in args.threads:
        for count in args.prompts:
            compare(args, threads, count)
        first_token(args, threads)
    if args.memory:
        most, said = largest_pss(command(args, 1, text_of(args, 896), 128))
        print(f"PSS of weir-gpt: {most:.0f} MiB ({said})", flush=True)
        print("anonymous memory behind 502 and 9,538 tokens: {:.1f} MiB, {:.1f} MiB".format(*growth(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
