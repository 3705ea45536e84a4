#!/usr/bin/env python3
"""Writes seeds/model: the fixtures without their weights, and the small broken models.

Needs `onnx` and `numpy`: python3 seeds.py ../fixtures [../../shared/bad]
Weights of 1 KiB and more become references to an absent file; names, operators and small constants
stay. Other files in seeds/model are not changed.
"""

import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = """llama/dynamo23 llama/torchscript llama/optimum llama/ort-O2 llama/fp16 llama/dynamo-static
llama-llama3/torchscript phi3-longrope/optimum gptj/torchscript gpt_neox/dynamo gemma3-text/optimum
bert/dynamo bloom/dynamo t5-encoder/dynamo""".split()


def slim(tensor):
    """Replaces a large payload by a reference to an absent file."""
    raw = len(tensor.raw_data)
    if raw < 1024:
        return
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ("location", "data.bin"), ("offset", "0"), ("length", str(raw)):
        tensor.external_data.add(key=key, value=value)


def walk(graph, names):
    """Slims a graph and the graphs in it; `names` maps the names so far to short ones."""
    short = lambda name: names.setdefault(name, f"v{len(names)}") if name else name
    names |= {v.name: v.name for v in (*graph.input, *graph.output)}
    graph.ClearField("doc_string")
    graph.ClearField("metadata_props")
    del graph.value_info[8:]
    for tensor in graph.initializer:
        slim(tensor)
        tensor.name = short(tensor.name)
    for info in graph.value_info:
        info.name = short(info.name)
    for node in graph.node:
        node.ClearField("name")
        for names_of in node.input, node.output:
            names_of[:] = [short(n) for n in names_of]
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                slim(attribute.t)
            if attribute.HasField("g"):
                walk(attribute.g, names)


def small(op, inputs, outputs, **more):
    """A model of few nodes."""
    nodes = more.pop("nodes", None) or [helper.make_node(op, inputs, outputs, **more.pop("attributes", {}))]
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, op, [value("x")], [value(outputs[0])], more.pop("initializer", []))
    functions = more.pop("functions", [])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)


def forms():
    """Containers and payloads that no fixture has."""
    tensor = numpy_helper.from_array
    one = tensor(numpy.array([1], numpy.int64), "one")
    body = lambda name, op: helper.make_graph(
        [helper.make_node(op, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)]
    )
    yes = tensor(numpy.array(True), "yes")
    branch = {"then_branch": body("a", "Neg"), "else_branch": body("b", "Abs")}
    yield "if", small("If", ["yes"], ["y"], attributes=branch, initializer=[yes])
    state = helper.make_graph(
        [helper.make_node("Add", ["s", "i"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "body",
        [helper.make_tensor_value_info(n, 1, [4]) for n in ("s", "i")],
        [helper.make_tensor_value_info(n, 1, [4]) for n in ("t", "u")],
    )
    start = tensor(numpy.zeros(4, numpy.float32), "zero")
    scan = helper.make_node("Scan", ["zero", "x"], ["last", "y"], body=state, num_scan_inputs=1)
    yield "scan", small("Scan", [], ["y"], nodes=[scan], initializer=[start])
    turn = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Mul", ["v", "v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("n", 7, []), helper.make_tensor_value_info("c", 9, [])]
        + [helper.make_tensor_value_info("v", 1, None)],
        [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("w", 1, None)],
    )
    loop = helper.make_node("Loop", ["one", "yes", "x"], ["y"], body=turn)
    yield "loop", small("Loop", [], ["y"], nodes=[loop], initializer=[one, yes])
    call = [helper.make_node("Twice", ["x"], ["m"], "first", domain="own", by=2.0)]
    call += [helper.make_node("Twice", ["m"], ["y"], "second", domain="own")]
    scaled = helper.make_node("Constant", [], ["k"])
    scaled.attribute.add(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [scaled, helper.make_node("Mul", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)], attribute_protos=[helper.make_attribute("by", 3.0)],
    )
    yield "function", small("f", [], ["y"], nodes=call, functions=[function])
    nodes = []
    for i, dtype in enumerate(range(1, 24)):
        if dtype == TensorProto.STRING:
            held = helper.make_tensor("t", dtype, [2], [b"a", b"\xff"])
        else:
            held = helper.make_tensor("t", dtype, [2], [1, 0])
        nodes.append(helper.make_node("Constant", [], [f"t{i}"], value=held))
    lists = {"value_int": 1, "value_ints": [1, 2], "value_float": 0.5, "value_floats": [0.5, 2.0]}
    lists |= {"value_string": "s", "value_strings": ["s", "t"]}
    for key, value in lists.items():
        nodes.append(helper.make_node("Constant", [], [key], **{key: value}))
    nodes.append(helper.make_node("Identity", ["x"], ["y"]))
    yield "types", small("types", [], ["y"], nodes=nodes)
    axes = tensor(numpy.array([0, 2], numpy.int64), "axes")
    picks = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("ConstantOfShape", ["s"], ["z"]), helper.make_node("Unsqueeze", ["x", "axes"], ["u"]),
        helper.make_node("Slice", ["x", "one", "n", "one"], ["c"]),
        helper.make_node("Einsum", ["x", "z"], ["e"], equation="ij,kj->ik"),
        helper.make_node("Split", ["x"], ["p", "q"], axis=1), helper.make_node("Tile", ["s", "one"], ["r"]),
        helper.make_node("CumSum", ["z", "one"], ["y"]), helper.make_node("Trilu", ["e", "one"], ["tri"]),
        helper.make_node("Range", ["zero", "last", "step"], ["range"]),
        helper.make_node("Pad", ["x", "pads"], ["padded"]), helper.make_node("Mod", ["range", "three"], ["m"]),
        helper.make_node("Resize", ["x", "", "", "s"], ["resized"]),
    ]
    scalars = {"zero": 0, "last": 9, "step": 2, "three": 3}
    initial = [one, axes, tensor(numpy.array([0, 1, 0, 1], numpy.int64), "pads")]
    initial += [tensor(numpy.array(v, numpy.int64), k) for k, v in scalars.items()]
    yield "picks", small("picks", [], ["y"], nodes=picks, initializer=initial)


def main():
    folder = HERE / "seeds/model"
    folder.mkdir(parents=True, exist_ok=True)
    for name in FIXTURES:
        model = onnx.load(pathlib.Path(sys.argv[1]) / name / "model.onnx")
        model.ClearField("metadata_props")
        walk(model.graph, {})
        (folder / f"{name.replace('/', '-')}.onnx").write_bytes(model.SerializeToString())
    for name, model in forms():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    for bad in sorted(pathlib.Path(sys.argv[2]).glob("*/model.onnx")) if len(sys.argv) > 2 else []:
        if bad.stat().st_size < 16384:
            (folder / f"bad-{bad.parent.name}.onnx").write_bytes(bad.read_bytes())


if __name__ == "__main__":
    main()
