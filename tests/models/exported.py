"""ONNX files that weir wrote, beside ONNX Runtime.

    python tests/models/exported.py FOLDER

FOLDER is what test_export leaves (WEIR_EXPORT_KEEP): NAME.onnx and, for each output, NAME.OUTPUT.bin with the elements that weir made
of the test's inputs. Each file has to pass ONNX's own checker, and each output has to be that of ONNX Runtime.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime


def fill(port):
    """The input that the test takes: see fill() there."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    values = np.sin((7 * i + 1).astype(np.float64)) * 1.5 if dtype.kind == "f" else i * 5 % 3
    return values.astype(dtype).reshape(shape)


def difference(ours, theirs):
    if ours.dtype.kind != "f":
        return float(np.count_nonzero(ours != theirs))
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    return float(np.max(np.where(alike, 0, np.abs(a - b) / np.maximum(1, np.abs(b))), initial=0))


def compare(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {port.name: fill(port) for port in model.graph.input}
    faults, worst = [], 0.0
    for port, theirs in zip(session.get_outputs(), session.run(None, feeds)):
        ours = np.fromfile(path.with_suffix(f".{port.name}.bin"), theirs.dtype).reshape(theirs.shape)
        error = difference(ours, theirs)
        worst = max(worst, error)
        if not error < (1e-2 if theirs.dtype == np.float16 else 1e-5):
            faults.append(f"{path.name}: {port.name} is off by {error:.2g}")
    print(f"{path.name}: {len(session.get_outputs())} outputs, at most {worst:.2g} off")
    return faults


def main(folder):
    faults = [fault for path in sorted(pathlib.Path(folder).glob("*.onnx")) for fault in compare(path)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main(sys.argv[1]))
