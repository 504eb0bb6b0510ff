#!/usr/bin/python3
"""Measures the cost of a checkpoint in PyTorch, for the bytes of `weir bench save`, as one JSON object.

Parameters and AdamW's two moments of a GPT of 6 layers, dim 384, seq 256 and a vocabulary of 256: 131 MB of f32. In a
round: torch.save() and fsync; torch.distributed.checkpoint.async_save(), which copies the state, says so by returning,
and writes while training goes on; and the same bytes by hand, with fsync, in the same folder. Medians. Training is
played by matrix products of one thread, which a step of `weir bench gpt` has as many of; what they take longer while
something is written is the rest of its cost, in per cent of such a step.

    python3 -m venv venv && venv/bin/pip install torch && venv/bin/python tests/reference/save_torch.py [rounds] [folder]
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

LAYERS, DIM, SEQ, VOCAB, STEP_SECONDS = 6, 384, 256, 256, 0.7


def parameters():
    shapes = {"wte/weight": (VOCAB, DIM), "wpe": (SEQ, DIM), "ln/gain": (DIM,), "ln/bias": (DIM,), "head": (DIM, VOCAB)}
    for i in range(LAYERS):
        for name, shape in {"q": (DIM, DIM), "k": (DIM, DIM), "v": (DIM, DIM), "o": (DIM, DIM), "up": (DIM, 4 * DIM),
                            "down": (4 * DIM, DIM)}.items():
            shapes[f"h{i}/{name}/weight"], shapes[f"h{i}/{name}/bias"] = shape, shape[1:]
        for name in ("ln1/gain", "ln1/bias", "ln2/gain", "ln2/bias"):
            shapes[f"h{i}/{name}"] = (DIM,)
    return shapes


def state():
    return {name + suffix: torch.randn(shape) for name, shape in parameters().items() for suffix in ("", ":m", ":v")}


def step_of(seconds):
    """A function that computes for about so long, on one thread."""
    a, b = torch.randn(2048, DIM), torch.randn(DIM, 4 * DIM)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        a @ b
        count += 1

    def step():
        start = time.perf_counter()
        for _ in range(count):
            a @ b
        return time.perf_counter() - start
    return step


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def by_torch_save(tensors, path):
    with open(path, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())


def by_hand(count, path):
    part = b"w" * (1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(count // len(part) + 1):
            file.write(part)
        os.fsync(file.fileno())


def asynchronously(tensors, folder, step, alone):
    """Seconds of the call, of the rest of its cost, and until it is written, to within a step."""
    start = time.perf_counter()
    future = dcp.async_save(tensors, checkpoint_id=folder)
    copied, steps = time.perf_counter(), 0
    while not future.done() or not steps:
        step()
        steps += 1
    end = time.perf_counter()
    future.result()
    return copied - start, end - copied - steps * alone, end - start


def play_round(tensors, bytes_, folder, step):
    alone = step()
    copy, rest, written = asynchronously(tensors, os.path.join(folder, "async"), step, alone)
    found = {"step_ms": 1e3 * alone, "async_call_ms": 1e3 * copy, "async_rest_percent": 100 * rest / alone,
             "async_written_ms": 1e3 * written,
             "save_ms": 1e3 * timed(lambda: by_torch_save(tensors, os.path.join(folder, "plain.pt"))),
             "disk_ms": 1e3 * timed(lambda: by_hand(bytes_, os.path.join(folder, "hand")))}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    return found


def main():
    warnings.simplefilter("ignore")
    rounds, above = int(sys.argv[1]) if len(sys.argv) > 1 else 9, sys.argv[2] if len(sys.argv) > 2 else None
    torch.set_num_threads(1)
    tensors, folder = state(), tempfile.mkdtemp(dir=above)
    bytes_ = sum(t.numel() * t.element_size() for t in tensors.values())
    dist.init_process_group("gloo", init_method=f"file://{folder}/.meet", rank=0, world_size=1)
    step = step_of(STEP_SECONDS)
    played = [play_round(tensors, bytes_, folder, step) for _ in range(rounds + 1)][1:]
    median = {name: round(statistics.median(p[name] for p in played), 2) for name in played[0]}
    print(json.dumps({"torch": torch.__version__, "rounds": rounds, "bytes": bytes_, **median,
                      "save_mb_per_s": round(bytes_ / median["save_ms"] / 1e3, 1),
                      "disk_mb_per_s": round(bytes_ / median["disk_ms"] / 1e3, 1)}))
    dist.destroy_process_group()
    shutil.rmtree(folder)


main()
