#!/usr/bin/env python3
"""What people do today, one process a run: `peers.py TOOL IN OUT` halves the frequencies of a
workload with a Python library. TOOL is onnx, onnx_ir or onnx_graphsurgeon; the last one and onnx
read external data, onnx_ir refers to it."""

import sys
from pathlib import Path


def is_frequencies(shape, name):
    """The constant [1, pairs, 1] that the workloads compute their angles from."""
    return len(shape) == 3 and shape[0] == shape[2] == 1 and name.startswith("c")


def with_onnx(source, target):
    import onnx
    from onnx import numpy_helper

    model = onnx.load(source)
    outside = Path(f"{source}.data").exists()
    for tensor in model.graph.initializer:
        if is_frequencies(tensor.dims, tensor.name):
            half = numpy_helper.to_array(tensor) / 2
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    onnx.save(model, target, save_as_external_data=outside, location=Path(target).name + ".data")


def with_onnx_ir(source, target):
    import onnx_ir

    model = onnx_ir.load(source)
    outside = Path(f"{source}.data").exists()
    for value in model.graph.initializers.values():
        if is_frequencies(value.shape, value.name):
            half = value.const_value.numpy() / 2
            value.const_value = onnx_ir.tensor(half, name=value.name)
    data = Path(target).name + ".data" if outside else None
    onnx_ir.save(model, target, external_data=data)


def with_onnx_graphsurgeon(source, target):
    import onnx
    import onnx_graphsurgeon

    graph = onnx_graphsurgeon.import_onnx(onnx.load(source))
    outside = Path(f"{source}.data").exists()
    for name, tensor in graph.tensors().items():
        constant = isinstance(tensor, onnx_graphsurgeon.Constant)
        if constant and is_frequencies(tensor.shape, name):
            tensor.values = tensor.values / 2
    model = onnx_graphsurgeon.export_onnx(graph)
    onnx.save(model, target, save_as_external_data=outside, location=Path(target).name + ".data")


if __name__ == "__main__":
    tool, source, target = sys.argv[1:]
    tools = {"onnx": with_onnx, "onnx_ir": with_onnx_ir,
             "onnx_graphsurgeon": with_onnx_graphsurgeon}
    tools[tool](source, target)
