"""Whole nets, one image at a time on one thread: `weir run` and ONNX Runtime in turns.

    speed.py WEIR PLACE

The nets are those with random weights that compare.py leaves in PLACE. A line says, for each, the median milliseconds of a step of weir,
and of a run of ONNX Runtime.
"""
import glob
import os
import re
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime

WEIR, PLACE = sys.argv[1], sys.argv[2]
TURNS, STEPS = 5, 30


def weir_ms(plan, name):
    feed = ["--feed", f"{name}={PLACE}/images.npy"]
    run = [WEIR, "run", plan, "--load-params", plan.replace(".plan", ".params.safetensors"), *feed, "--steps", str(STEPS), "--workers", "1"]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    return float(re.search(r"([\d.]+) ms each", done.stdout + done.stderr).group(1))


def runtime_ms(session, name, image):
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        session.run(None, {name: image})
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(path, images):
    net = os.path.basename(path)[6:-5]
    plan = f"{PLACE}/{net}.plan"
    subprocess.run([WEIR, "import", path, "-o", plan], check=True, capture_output=True)
    session = session_of(path)
    name = session.get_inputs()[0].name
    pairs = [(weir_ms(plan, name), runtime_ms(session, name, images[0])) for _ in range(TURNS)]
    ours, theirs = (statistics.median(p[i] for p in pairs) for i in range(2))
    print(f"{net}: weir {ours:.1f} ms, ONNX Runtime {theirs:.1f} ms, ratio {ours / theirs:.2f}", flush=True)


def main():
    images = np.random.default_rng(4711).random((STEPS, 1, 3, 224, 224), dtype=np.float32)
    np.save(f"{PLACE}/images.npy", images)
    for path in sorted(glob.glob(f"{PLACE}/light_*.onnx")):
        compare(path, images)


main()
