#!/usr/bin/env python3
"""Large models for benchmarks: `workloads.py w1|w2|w3|w3x2|nodes|absent FOLDER`.

w1    16 layers, width 2048, float16, 1.8 GB in one file
w2    14 layers, width 4096, float16, 6 GB of external data
w3    1,176 layers of width 16, float32, 60,000 nodes
w3x2  twice as many layers
nodes a chain of a million Relu
absent 32 layers, width 4096, float16, 13 GB of external data that is not there

All but `nodes` are decoders with RoPE. Cos and sin are computed in the graph, once for all
layers, from a constant of frequencies. The weights are noise: nothing is to be learned from what
such a model says.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

ALIGN = 4096
NOISE = np.random.default_rng(7).standard_normal(1 << 20).astype(np.float32) * 0.02
END = np.iinfo(np.int64).max


class Absent:
    """A file that is not written: only where its payloads would stand counts."""

    def __init__(self, name):
        self.name, self.end = name, 0

    def skip(self, size):
        at = -(-self.end // ALIGN) * ALIGN
        self.end = at + size
        return at


class Decoder:
    """A decoder of equal layers, written node by node."""

    def __init__(self, layers, width, inner, words, heads, dtype, data=None):
        self.width, self.inner, self.words, self.heads = width, inner, words, heads
        self.dtype = np.dtype(dtype)
        self.code = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.data = data
        self.nodes, self.constants, self.names = [], [], 0
        self.frame()
        hidden = self.node("Gather", self.weight(words, width), "input_ids")
        for _ in range(layers):
            hidden = self.node("Add", hidden, self.attention(self.norm(hidden)))
            hidden = self.node("Add", hidden, self.mlp(self.norm(hidden)))
        self.node("Identity", hidden, output="hidden")

    def model(self):
        ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
               for name in ("input_ids", "position_ids")]
        hidden = helper.make_tensor_value_info("hidden", self.code, ["batch", "sequence", self.width])
        graph = helper.make_graph(self.nodes, "decoder", ids, [hidden], self.constants)
        opset = helper.make_opsetid("", 18)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9)

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def node(self, op, *inputs, output=None, **attributes):
        output = output or self.fresh("t")
        node = helper.make_node(op, inputs, [output], name=f"{op}/{output}", **attributes)
        self.nodes.append(node)
        return output

    def constant(self, array):
        name = self.fresh("c")
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        name = self.fresh("w")
        count = int(np.prod(shape))
        if isinstance(self.data, Absent):
            size = count * self.dtype.itemsize
            self.constants.append(self.elsewhere(name, shape, self.data.skip(size), size))
            return name
        values = np.resize(NOISE, count).astype(self.dtype)
        if self.data is None:
            tensor = onnx.numpy_helper.from_array(values.reshape(shape), name)
        else:
            tensor = self.outside(name, shape, values)
        self.constants.append(tensor)
        return name

    def outside(self, name, shape, values):
        self.data.write(b"\0" * (-self.data.tell() % ALIGN))
        tensor = self.elsewhere(name, shape, self.data.tell(), values.nbytes)
        self.data.write(values.tobytes())
        return tensor

    def elsewhere(self, name, shape, offset, length):
        tensor = TensorProto(name=name, dims=shape, data_type=self.code)
        tensor.data_location = TensorProto.EXTERNAL
        where = [("location", Path(self.data.name).name), ("offset", offset), ("length", length)]
        for key, value in where:
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def frame(self):
        """Constants that all layers share, and cos and sin."""
        dim = self.width // self.heads
        at = self.axes = {n: self.constant(np.array([n], np.int64)) for n in (-1, 0, 1)}
        self.middle = self.constant(np.array([dim // 2], np.int64))
        self.end = self.constant(np.array([END], np.int64))
        self.split = self.constant(np.array([0, 0, self.heads, dim], np.int64))
        self.join = self.constant(np.array([0, 0, self.width], np.int64))
        self.epsilon = self.constant(np.array(1e-5, self.dtype))
        self.two = self.constant(np.array(2, self.dtype))
        self.scale = self.constant(np.array(dim**-0.5, self.dtype))
        exponents = np.arange(0, dim, 2, dtype=np.float32) / dim
        frequencies = self.constant((1 / 10000**exponents).reshape(1, dim // 2, 1))
        positions = self.node("Unsqueeze", "position_ids", at[1])
        positions = self.node("Cast", positions, to=TensorProto.FLOAT)
        angles = self.node("MatMul", frequencies, positions)
        angles = self.node("Transpose", angles, perm=[0, 2, 1])
        angles = self.node("Concat", angles, angles, axis=-1)
        self.waves = [self.node("Unsqueeze", self.cast(self.node(wave, angles)), at[1])
                      for wave in ("Cos", "Sin")]

    def cast(self, value):
        return self.node("Cast", value, to=self.code)

    def norm(self, x):
        square = self.node("ReduceMean", self.node("Pow", x, self.two), self.axes[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", square, self.epsilon))
        return self.node("Mul", self.node("Div", x, root), self.weight(self.width))

    def turned(self, x):
        cos, sin = self.waves
        first = self.node("Slice", x, self.axes[0], self.middle, self.axes[-1])
        second = self.node("Slice", x, self.middle, self.end, self.axes[-1])
        other = self.node("Concat", self.node("Neg", second), first, axis=-1)
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", other, sin))

    def attention(self, x):
        def heads():
            y = self.node("MatMul", x, self.weight(self.width, self.width))
            return self.node("Transpose", self.node("Reshape", y, self.split), perm=[0, 2, 1, 3])

        query, key, value = self.turned(heads()), self.turned(heads()), heads()
        key = self.node("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.node("Mul", self.node("MatMul", query, key), self.scale)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        mixed = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), self.join)
        return self.node("MatMul", mixed, self.weight(self.width, self.width))

    def mlp(self, x):
        gate = self.node("MatMul", x, self.weight(self.width, self.inner))
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        up = self.node("MatMul", x, self.weight(self.width, self.inner))
        return self.node("MatMul", self.node("Mul", gate, up), self.weight(self.inner, self.width))


def chain(length):
    """As many nodes as a file of its size can hold, one after the other."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
            for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def make(name, folder):
    """Writes the workload unless it is there; returns its path."""
    path = Path(folder) / name / f"{name}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "w1":
        model = Decoder(16, 2048, 5632, 32000, 32, np.float16).model()
    elif name == "w2":
        with open(f"{path}.data", "wb") as data:
            model = Decoder(14, 4096, 11008, 32000, 32, np.float16, data).model()
    elif name == "nodes":
        model = chain(1_000_000)
    elif name == "absent":
        model = Decoder(32, 4096, 11008, 32000, 32, np.float16, Absent(f"{path}.data")).model()
    else:
        layers = {"w3": 1176, "w3x2": 2352}[name]
        model = Decoder(layers, 16, 32, 50, 2, np.float32).model()
    part = path.with_suffix(".part")
    part.write_bytes(model.SerializeToString())
    part.rename(path)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(make(sys.argv[1], sys.argv[2]))
