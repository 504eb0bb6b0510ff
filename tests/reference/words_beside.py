#!/usr/bin/env python3
"""Counts the words of a text with weir-words and with two threads written by hand (words_threads.c), in turns.

    make build/bin/weir-words && python3 tests/reference/words_beside.py [--rounds 7] [--mib 256] [--file FILE]

Without a file a text is made: words of an invented vocabulary, as frequent as Zipf says. Prints both rates and their
ratio, as medians, and whether both counted the same.
"""
import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile


def make_text(path, mib):
    rng = random.Random(1)
    lengths = [1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 12]
    letters = "abcdefghijklmnopqrstuvwxyzABC"
    vocabulary = ["".join(rng.choice(letters) for _ in range(rng.choice(lengths))) for _ in range(60000)]
    weights = [1 / (i + 1) for i in range(len(vocabulary))]
    chunk = (" ".join(rng.choices(vocabulary, weights, k=2000000)) + "\n").encode()
    with open(path, "wb") as file:
        for _ in range(max(1, (mib << 20) // len(chunk))):
            file.write(chunk)


def count(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(re.search(r"([0-9.]+) MB/s", done.stderr).group(1)), done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--file")
    parser.add_argument("--bin", default="build/bin")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        threads = os.path.join(folder, "words_threads")
        subprocess.run(["gcc", "-std=gnu17", "-O3", "-march=native", "-I.", "-o", threads,
                        "tests/reference/words_threads.c", "apps/weir-words/table.c", "-lpthread"], check=True)
        text = args.file or os.path.join(folder, "text")
        if not args.file:
            make_text(text, args.mib)
        graph, hand, same = [], [], True
        for _ in range(args.rounds + 1):
            rate, words = count([os.path.join(args.bin, "weir-words"), "--lanes", str(args.threads), text])
            beside, others = count([threads, text, str(args.threads)])
            same &= words == others
            graph.append(rate)
            hand.append(beside)
    graph, hand = graph[1:], hand[1:]  # the first round brings the file into memory
    ratios = [g / h for g, h in zip(graph, hand)]
    print(f"weir-words {statistics.median(graph):.1f} MB/s, {args.threads} threads by hand "
          f"{statistics.median(hand):.1f} MB/s: {statistics.median(ratios):.2f} of their rate "
          f"({min(ratios):.2f} to {max(ratios):.2f}); {'the same words' if same else 'OTHER WORDS'}")
    return not same


if __name__ == "__main__":
    sys.exit(main())
