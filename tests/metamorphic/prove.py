"""Numeric equality: random inputs for a model's signature, runs in ONNX Runtime without optimization, comparison."""

import os
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

ort.set_default_logger_severity(4)

IDS = 50  # token ids are below this, whatever the vocabulary


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run, and on which side its second half of rows is padded."""
    batch: int
    sequence: int
    past: int
    pad: str = ""


# In the first two every value is kept, so that mutations know ranks and sizes; the third only proves.
TRACED = (Sizes(2, 7, 3, "right"), Sizes(3, 11, 5, "left"))
PROOF = TRACED + (Sizes(1, 18, 0),)
REWRITTEN = (Sizes(2, 9, 4, "right"), Sizes(1, 33, 0), Sizes(2, 23, 2, "left"), Sizes(1, 75, 0))


def options():
    """One thread, no optimization."""
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    return o


def session(model):
    """A session of a path or of a model in memory; raises if it does not load."""
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    return ort.InferenceSession(model, options(), providers=["CPUExecutionProvider"])


class Signature:
    """The inputs of a model, by names as the exporters give them."""

    def __init__(self, model):
        given = {t.name for t in model.graph.initializer}
        self.inputs = [v for v in model.graph.input if v.name not in given]
        self.cached = any(v.name.startswith("past") for v in self.inputs)

    def _shape(self, v, sizes):
        out = []
        for axis, d in enumerate(v.type.tensor_type.shape.dim):
            if d.HasField("dim_value"):
                out.append(d.dim_value)
            elif v.name.startswith("past") and axis == 2:
                out.append(9 if "encoder" in v.name else sizes.past)
            elif axis == 0:
                out.append(sizes.batch)
            elif axis == 1 and v.name.startswith("encoder"):
                out.append(9)
            elif axis == 1 and v.name == "attention_mask" and self.cached:
                out.append(sizes.past + sizes.sequence)
            elif axis == 1 and v.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
                out.append(sizes.sequence)
            else:
                out.append(sizes.sequence if axis == 1 else 8 * sizes.sequence)
        return out

    def make(self, sizes, seed):
        """Inputs of one run."""
        rng = np.random.default_rng(seed)
        feed = {}
        for v in self.inputs:
            shape = self._shape(v, sizes)
            kind = helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
            if kind.kind == "f":
                value = rng.standard_normal(shape) * 0.5
            elif kind.kind == "b":
                value = np.full(shape, sizes.past > 0)
            elif "mask" in v.name:
                value = np.ones(shape)
                cut = 2 + shape[1] // 4 if len(shape) == 2 else 0
                if sizes.pad and len(shape) == 2 and shape[1] > sizes.past + cut:
                    rows = slice(shape[0] // 2, None)
                    value[rows, slice(-cut + 1, None) if sizes.pad == "right" else slice(0, cut - 1)] = 0
            elif "position" in v.name:
                value = np.broadcast_to(np.arange(shape[-1]) + sizes.past, shape)
            elif "type" in v.name:
                value = rng.integers(0, 2, shape)
            else:
                value = rng.integers(2, IDS, shape)
            feed[v.name] = np.ascontiguousarray(value, dtype=kind)
        return feed


def tolerance(model):
    """The relative bound of a proof: rounding of the model's smallest type, and where numbers are quantized as the model runs,
    a step, since the least difference may bring a number to the next one."""
    half = any(t.data_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16) for t in model.graph.initializer)
    steps = any("Quantize" in n.op_type and "Dequantize" not in n.op_type for n in model.graph.node)
    return 2e-2 if half or steps else 5e-5


def visible(feed, array, sizes):
    """The rows of an output that a mask leaves in use; None where padding on the left makes them unclear."""
    if sizes.pad != "left":
        return array
    mask = feed.get("attention_mask")
    if mask is None or array.ndim < 2:
        return array
    mask = mask[:, mask.shape[1] - sizes.sequence:].astype(bool)
    return array[mask] if array.shape[:2] == mask.shape else None


def difference(want, got, bound, feed, sizes):
    """None if the outputs are equal; else the largest error, or what else differs."""
    if len(want) != len(got):
        return "number of outputs"
    worst = 0.0
    for a, b in zip(want, got):
        if a.shape != b.shape:
            return f"shape {list(b.shape)}, not {list(a.shape)}"
        a, b = visible(feed, a, sizes), visible(feed, b, sizes)
        if a is None or b is None or a.size == 0:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return "NaN"
        a, b = np.nan_to_num(a, nan=0.0, posinf=3e38, neginf=-3e38), np.nan_to_num(b, nan=0.0, posinf=3e38, neginf=-3e38)
        worst = max(worst, float(np.abs(a - b).max()) / max(1.0, float(np.abs(a).max())))
    return f"error {worst:.1e}" if worst > bound else None


def traced(model, feeds):
    """Every value of the top level in each run, and the graph's outputs."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    wanted = [v.name for v in model.graph.output]
    extra = [o for n in model.graph.node for o in n.output if o and o not in wanted]
    wide.graph.output.extend(onnx.ValueInfoProto(name=n) for n in extra)
    running = session(wide)
    names = wanted + extra
    results = [running.run(names, feed) for feed in feeds]
    values = {n: [r[i] for r in results] for i, n in enumerate(names) if all(isinstance(r[i], np.ndarray) for r in results)}
    for name in feeds[0]:
        values[name] = [feed[name] for feed in feeds]
    return values, [r[:len(wanted)] for r in results]


def save(model, path, external=False):
    """Writes a model, its larger tensors beside it if asked."""
    if external:
        side = os.path.basename(path) + ".data"
        if os.path.exists(os.path.join(os.path.dirname(path), side)):
            os.remove(os.path.join(os.path.dirname(path), side))
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save_model(copy, path, save_as_external_data=True, location=side, size_threshold=256)
    else:
        with open(path, "wb") as f:
            f.write(model.SerializeToString())
