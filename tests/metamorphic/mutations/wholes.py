"""Names, order, versions, sharing, and ONNX Runtime's optimizer."""

import os
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, version_converter

from graph import captured, reads, subgraphs
from registry import at, whole


def _rename_body(body, new):
    """Renames captures in a body."""
    here = {k: v for k, v in new.items() if k in captured(body)}
    for node in body.node:
        node.input[:] = [here.get(i, i) for i in node.input]
        for inner in subgraphs(node):
            _rename_body(inner, here)
    for out in body.output:
        out.name = here.get(out.name, out.name)


@whole
def values_renamed(g, rng):
    """Other names for all values but the graph's inputs and outputs."""
    fixed = {v.name for v in g.model.graph.input} | set(g.outputs) | {""}
    old = [o for n in g.nodes for o in n.output if o not in fixed] + [n for n in g.inits if n not in fixed]
    numbers = rng.sample(range(10 * len(old) + 10), len(old))
    style = rng.choice(["t{}", "/a/b/{}/out", "{}", "model.layers.{}.weight"])
    new = {o: style.format(f"{k}x" if style == "{}" else k) for o, k in zip(old, numbers)}
    if set(new.values()) & (fixed | g.names):
        return False
    for node in g.nodes:
        node.input[:] = [new.get(i, i) for i in node.input]
        node.output[:] = [new.get(o, o) for o in node.output]
        for body in subgraphs(node):
            _rename_body(body, new)
    for name, tensor in g.inits.items():
        tensor.name = new.get(name, name)
    g.inits = {t.name: t for t in g.inits.values()}
    for v in g.model.graph.value_info:
        v.name = new.get(v.name, v.name)
    return True


@whole
def nodes_renamed(g, rng):
    """Other names for all nodes, or none."""
    empty = rng.random() < 0.5
    for i, node in enumerate(g.nodes):
        node.name = "" if empty else f"n{(i * 7919) % 100003}"
    return True


@whole
def sizes_renamed(g, rng):
    """Other names for symbolic sizes."""
    values = [*g.model.graph.input, *g.model.graph.output, *g.model.graph.value_info]
    dims = [d for v in values for d in v.type.tensor_type.shape.dim if d.dim_param]
    new = {p: f"d{i}" for i, p in enumerate(rng.sample(sorted({d.dim_param for d in dims}), len({d.dim_param for d in dims})))}
    for d in dims:
        d.dim_param = new[d.dim_param]
    return bool(dims)


@whole
def reordered(g, rng):
    """Another topological order."""
    made = {o: i for i, n in enumerate(g.nodes) for o in n.output if o}
    waits = [{made[r] for r in reads(n) if r in made} for n in g.nodes]
    after = [[] for _ in g.nodes]
    for i, w in enumerate(waits):
        for k in w:
            after[k].append(i)
    left = [len(w) for w in waits]
    ready = [i for i, n in enumerate(left) if n == 0]
    order = []
    while ready:
        i = ready.pop(rng.randrange(len(ready)))
        order.append(i)
        for k in after[i]:
            left[k] -= 1
            if not left[k]:
                ready.append(k)
    g.nodes = [g.nodes[i] for i in order]
    return True


@whole
def opset_raised(g, rng):
    """A later operator set, by ONNX's converter."""
    now = g.opset()
    if now >= 24 or g.model.functions:
        return False
    try:
        new = version_converter.convert_version(g.proto(), rng.randrange(now + 1, 25))
    except Exception:  # the converter has no adapter for everything
        return False
    new.ir_version = max(g.model.ir_version, min(new.ir_version, 11))
    return new


def _optimized(g, level):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "o.onnx")
        o = ort.SessionOptions()
        o.graph_optimization_level = level
        o.optimized_model_filepath = path
        o.intra_op_num_threads = 1
        o.log_severity_level = 4
        ort.InferenceSession(g.proto().SerializeToString(), o, providers=["CPUExecutionProvider"])
        return onnx.load(path)


@whole
def runtime_optimized_basic(g, rng):
    """ONNX Runtime's basic optimizations, saved."""
    return _optimized(g, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC)


@whole
def runtime_optimized_extended(g, rng):
    """ONNX Runtime's extended optimizations, saved."""
    return _optimized(g, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


@at()
def unshared(g, node, rng):
    """A node whose value several read, once more for one of them."""
    if len(node.output) != 1 or list(subgraphs(node)) or node.op_type.startswith("Random"):
        return False
    users = [n for n in g.nodes if node.output[0] in n.input]
    if len(users) < 2:
        return False
    user = rng.choice(users)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name, copy.output[0] = g.fresh(), g.fresh()
    user.input[:] = [copy.output[0] if i == node.output[0] else i for i in user.input]
    g.nodes.insert(g.place(node) + 1, copy)
    return True


@whole
def shared(g, rng):
    """Nodes that compute the same merged into one."""
    seen, new, gone = {}, {}, []
    for node in g.nodes:
        node.input[:] = [new.get(i, i) for i in node.input]
        for body in subgraphs(node):
            _rename_body(body, new)
        if list(subgraphs(node)) or set(node.output) & set(g.outputs) or node.op_type.startswith("Random"):
            continue
        key = (node.domain, node.op_type, tuple(node.input), len(node.output), tuple(sorted(a.SerializeToString() for a in node.attribute)))
        if key in seen:
            new.update(zip(node.output, seen[key].output))
            gone.append(node)
        else:
            seen[key] = node
    g.nodes = [n for n in g.nodes if not any(n is x for x in gone)]
    return bool(gone)


@whole
def dead_nodes(g, rng):
    """Nodes that nobody reads, behind values and constants: a second softmax, a sine, a table."""
    values = [n for n in g.trace if g.floating(n) and (g.rank(n) or 0) >= 2]
    for name in rng.sample(values, min(4, len(values))):
        kind = rng.choice(["Softmax", "Sin", "Neg", "Cos", "Identity"])
        g.op(kind, name)
    if g.trace and values:
        table = g.const(np.linspace(0, 1, 5000 * 2).reshape(5000, 2), np.float32)
        g.op("Gather", table, g.arange(g.size(rng.choice(values), 1, keep=False)), axis=0)
    g.nodes += g.pending
    g.pending = []
    return bool(values)


@whole
def annotated(g, rng):
    """Metadata and doc strings."""
    g.model.doc_string, g.model.producer_name = "a \"quoted\" text\nof two lines", "no-one"
    g.model.graph.doc_string = "graph"
    for node in g.nodes:
        node.doc_string = "node"
    entry = g.model.metadata_props.add()
    entry.key, entry.value = "note", "é ∞"
    return True


@whole
def value_info_removed(g, rng):
    """No types and shapes of inner values."""
    if not g.model.graph.value_info:
        return False
    del g.model.graph.value_info[:]
    return True


@whole
def value_info_added(g, rng):
    """Types and shapes of inner values, by ONNX's inference."""
    return onnx.shape_inference.infer_shapes(g.proto())


@whole
def initializers_as_inputs(g, rng):
    """Some initializers also listed as graph inputs, so that callers may override them."""
    names = [n for n in g.inits if n not in g.model.graph.input and g.inits[n].data_type == onnx.TensorProto.FLOAT]
    for name in rng.sample(names, min(3, len(names))):
        if any(v.name == name for v in g.model.graph.input):
            continue
        g.model.graph.input.append(helper.make_tensor_value_info(name, g.inits[name].data_type, list(g.inits[name].dims)))
    return bool(names)


@whole
def external(g, rng):
    """Larger tensors in a file beside the model; the mark is read when the model is saved."""
    if any(p.key == EXTERNAL for p in g.model.metadata_props):
        return False
    entry = g.model.metadata_props.add()
    entry.key, entry.value = EXTERNAL, "1"
    return True


EXTERNAL = "saved"
