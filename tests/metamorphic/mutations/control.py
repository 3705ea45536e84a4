"""If, Loop, Scan and functions around parts of a graph."""

import numpy as np
import onnx
from onnx import helper

from graph import captured, reads, subgraphs
from registry import at, whole

LONGEST = 12  # nodes that go into one body


def _window(g, node, rng, functions=False):
    """Consecutive nodes from `node` on, what they read from outside and what of theirs is read outside; or None."""
    start = g.place(node)
    nodes = g.nodes[start:start + rng.choice([1, 1, 2, 3, 5, 8, LONGEST])]
    made = {o for n in nodes for o in n.output if o}
    if functions and any(list(subgraphs(n)) for n in nodes):
        return None
    outside = set(g.outputs)
    for n in g.nodes:
        if not any(n is m for m in nodes):
            outside |= reads(n)
    needs = sorted({r for n in nodes for r in reads(n)} - made)
    gives = sorted(made & outside)
    if not gives or any(g.runs(o) is None or g.rank(o) is None or g.dtype(o).kind not in "fib" for o in gives):
        return None
    return nodes, needs, gives


def _body(g, nodes, gives, name, inputs=(), extra=(), outputs=()):
    """A body of copies of the nodes, every value of theirs renamed."""
    new = {o: g.fresh() for n in nodes for o in n.output if o}
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = g.fresh()
        copy.output[:] = [new.get(o, o) for o in node.output]
        _renamed_reads(copy, new)
        copies.append(copy)
    results = [helper.make_tensor_value_info(new[o], g.onnx_type(o), [None] * g.rank(o)) for o in gives]
    return helper.make_graph([*extra, *copies], name, list(inputs), [*outputs, *results])


def _renamed_reads(node, new):
    """Renames what a node reads, captures included."""
    node.input[:] = [new.get(i, i) for i in node.input]
    for body in subgraphs(node):
        here = {k: v for k, v in new.items() if k in captured(body)}
        if here:
            for inner in body.node:
                _renamed_reads(inner, here)
            for out in body.output:
                out.name = here.get(out.name, out.name)


def _put(g, nodes, pending, results, gives):
    """Places nodes where a window was; the results take the names of what it gave."""
    for made in pending:
        made.output[:] = [dict(zip(results, gives)).get(o, o) for o in made.output]
    at_ = g.place(nodes[0])
    g.nodes[at_:at_ + len(nodes)] = pending
    g.pending = []
    return True


@at()
def if_around(g, node, rng):
    """Nodes in both branches of an If with a constant condition."""
    found = _window(g, node, rng)
    if not found or node.op_type == "Constant":
        return False
    nodes, _, gives = found
    then, other = (_body(g, nodes, gives, g.fresh()) for _ in range(2))
    results = g.op("If", g.const(rng.random() < 0.5), outputs=len(gives), then_branch=then, else_branch=other)
    return _put(g, nodes, g.pending, [results] if len(gives) == 1 else results, gives)


@at()
def if_on_length(g, node, rng):
    """Nodes in both branches of an If whose condition depends on the sequence's length."""
    sizes = [n for n in g.inputs if (g.rank(n) or 0) >= 2]
    found = _window(g, node, rng)
    if not found or not sizes or node.op_type == "Constant":
        return False
    nodes, _, gives = found
    then, other = (_body(g, nodes, gives, g.fresh()) for _ in range(2))
    condition = g.op("Greater", g.size(sizes[0], 1, keep=False), g.const(9, np.int64))
    results = g.op("If", condition, outputs=len(gives), then_branch=then, else_branch=other)
    return _put(g, nodes, g.pending, [results] if len(gives) == 1 else results, gives)


@at()
def loop_around(g, node, rng):
    """Nodes in the body of a Loop with one trip."""
    found = _window(g, node, rng)
    if not found or node.op_type == "Constant":
        return False
    nodes, _, gives = found
    i, go, on = (g.fresh() for _ in range(3))
    body = _body(g, nodes, gives, g.fresh(),
                 [helper.make_tensor_value_info(i, onnx.TensorProto.INT64, []), helper.make_tensor_value_info(go, onnx.TensorProto.BOOL, [])],
                 [helper.make_node("Identity", [go], [on])], [helper.make_tensor_value_info(on, onnx.TensorProto.BOOL, [])])
    stacked = g.op("Loop", g.const(1, np.int64), g.const(True), outputs=len(gives), body=body)
    stacked = [stacked] if len(gives) == 1 else stacked
    results = [g.op("Squeeze", s, g.ints(0)) for s in stacked]
    return _put(g, nodes, g.pending, results, gives)


@at()
def scan_around(g, node, rng):
    """Nodes in the body of a Scan with one step."""
    found = _window(g, node, rng)
    if not found or node.op_type == "Constant":
        return False
    nodes, needs, gives = found
    needs = [n for n in needs if g.runs(n) is not None and g.rank(n) is not None and g.array(n) is None and g.dtype(n).kind in "fib"]
    if not needs:
        return False
    source = rng.choice(needs)
    row = g.fresh()
    body = _body(g, nodes, gives, g.fresh(), [helper.make_tensor_value_info(row, g.onnx_type(source), [None] * g.rank(source))])
    for inner in body.node:
        _renamed_reads(inner, {source: row})
    stacked = g.op("Scan", g.op("Unsqueeze", source, g.ints(0)), outputs=len(gives), body=body, num_scan_inputs=1)
    stacked = [stacked] if len(gives) == 1 else stacked
    results = [g.op("Squeeze", s, g.ints(0)) for s in stacked]
    return _put(g, nodes, g.pending, results, gives)


@at("Softmax", "MatMul", "Add", "Mul", "Cos", "Reshape", "Transpose", "Range", "Gather", "Slice", "Concat", "Unsqueeze", "Where", "Shape")
def function_around(g, node, rng):
    """Nodes in a function of the model."""
    found = _window(g, node, rng, functions=True)
    if not found:
        return False
    nodes, needs, gives = found
    own = {"posenc.test"} | {f.domain for f in g.model.functions}
    if any(n.domain in own for n in nodes):
        return False
    name = f"f{len(g.model.functions)}"
    domains = {n.domain for n in nodes} | {""}
    imports = [o for o in g.model.opset_import if o.domain in domains]
    g.model.functions.append(helper.make_function("posenc.test", name, needs, gives, nodes, imports))
    _import(g)
    results = g.op(name, *needs, outputs=len(gives), domain="posenc.test")
    return _put(g, nodes, g.pending, [results] if len(gives) == 1 else results, gives)


@whole
def function_shared(g, rng):
    """One function in the place of all nodes of one operator with the same attributes."""
    kinds = sorted({n.op_type for n in g.nodes if n.op_type in ("Softmax", "LayerNormalization", "MatMul", "Add", "Mul", "Gelu", "Transpose", "Cos")})
    if not kinds:
        return False
    kind = rng.choice(kinds)
    first = next(n for n in g.nodes if n.op_type == kind)

    def form(n):
        return n.domain, len(n.input), len(n.output), sorted(a.SerializeToString() for a in n.attribute)
    name, names = f"f{len(g.model.functions)}", [f"x{i}" for i in range(len(first.input))]
    nodes = [n for n in g.nodes if n.op_type == kind and form(n) == form(first)]
    inner = helper.make_node(kind, names, ["y"], domain=first.domain)
    inner.attribute.extend(first.attribute)
    if len(first.output) != 1:
        return False
    imports = [o for o in g.model.opset_import if o.domain in ("", first.domain)]
    g.model.functions.append(helper.make_function("posenc.test", name, names, ["y"], [inner], imports))
    _import(g)
    for node in nodes:
        node.op_type, node.domain = name, "posenc.test"
        del node.attribute[:]
    return True


def _import(g):
    """Lets the model use its functions."""
    if not any(o.domain == "posenc.test" for o in g.model.opset_import):
        g.model.opset_import.append(helper.make_opsetid("posenc.test", 1))
    g.model.ir_version = max(g.model.ir_version, 8)


@whole
def functions_inlined(g, rng):
    """Functions of the model inlined."""
    if not g.model.functions:
        return False
    from onnx import inliner
    return inliner.inline_local_functions(g.proto())
