"""Constants in other containers; edges that change nothing."""

import numpy as np
from onnx import helper, numpy_helper

from registry import at, whole

LARGE = 1 << 16  # constants of more elements are left alone where each would be copied


def _constant_input(g, node, rng):
    """(index, array) of a constant input of a node, or None."""
    found = [(i, g.array(n)) for i, n in enumerate(node.input) if n]
    found = [(i, a) for i, a in found if a is not None and a.size <= LARGE]
    return rng.choice(found) if found else None


@whole
def constants_as_initializers(g, rng):
    """Every Constant node as an initializer."""
    nodes = [n for n in g.nodes if n.op_type == "Constant" and n.attribute[0].name == "value"]
    for node in nodes:
        g.inits[node.output[0]] = numpy_helper.from_array(numpy_helper.to_array(node.attribute[0].t), node.output[0])
    g.nodes = [n for n in g.nodes if not any(n is x for x in nodes)]
    return bool(nodes)


@whole
def initializers_as_constants(g, rng):
    """Every initializer as a Constant node."""
    taken = set(g.outputs) | {v.name for v in g.model.graph.input}
    names = [n for n in g.inits if n not in taken]
    made = [helper.make_node("Constant", [], [n], value=g.inits.pop(n)) for n in names]
    g.nodes[:0] = made
    return bool(made)


@at()
def constant_behind_identity(g, node, rng):
    """A constant input behind Identity."""
    found = _constant_input(g, node, rng)
    if not found:
        return False
    return g.set_input(node, found[0], g.op("Identity", node.input[found[0]]))


@at()
def constant_from_double(g, node, rng):
    """A constant of floats stored as float64, one of int64 as int32, and cast."""
    found = _constant_input(g, node, rng)
    if not found or found[1].dtype not in (np.float32, np.float16, np.int64):
        return False
    index, array = found
    if array.dtype == np.int64 and np.abs(array).max(initial=0) > 2 ** 30:
        return False
    stored = array.astype(np.int32 if array.dtype == np.int64 else np.float64)
    return g.set_input(node, index, g.cast(g.const(stored), array.dtype))


@at()
def constant_of_shape(g, node, rng):
    """A constant of equal numbers as ConstantOfShape."""
    found = _constant_input(g, node, rng)
    if not found or found[1].size == 0 or not (found[1] == found[1].flat[0]).all() or found[1].dtype == np.float16:
        return False
    index, array = found
    value = numpy_helper.from_array(array.reshape(-1)[:1].copy())
    return g.set_input(node, index, g.op("ConstantOfShape", g.ints(*array.shape), value=value))


@at()
def constant_in_pieces(g, node, rng):
    """A constant as Concat of two."""
    found = _constant_input(g, node, rng)
    if not found or found[1].ndim == 0:
        return False
    index, array = found
    axis = rng.randrange(array.ndim)
    if array.shape[axis] < 2:
        return False
    cut = rng.randrange(1, array.shape[axis])
    parts = [g.const(p.copy()) for p in np.split(array, [cut], axis)]
    return g.set_input(node, index, g.op("Concat", *parts, axis=axis))


@at()
def constant_transposed(g, node, rng):
    """A constant matrix as Transpose of another."""
    found = _constant_input(g, node, rng)
    if not found or found[1].ndim != 2:
        return False
    return g.set_input(node, found[0], g.op("Transpose", g.const(found[1].T.copy()), perm=[1, 0]))


@at()
def constant_reshaped(g, node, rng):
    """A constant as Reshape of a vector."""
    found = _constant_input(g, node, rng)
    if not found or found[1].ndim < 2 or found[1].size == 0:
        return False
    flat = g.const(found[1].reshape(-1).copy())
    return g.set_input(node, found[0], g.op("Reshape", flat, g.ints(*found[1].shape)))


@at()
def constant_negated(g, node, rng):
    """A constant as Neg of another."""
    found = _constant_input(g, node, rng)
    if not found or found[1].dtype not in (np.float32, np.float16, np.int64) or (found[1] == np.iinfo(np.int64).min).any():
        return False
    return g.set_input(node, found[0], g.op("Neg", g.const(-found[1])))


@at()
def constant_as_exp(g, node, rng):
    """A constant of positive numbers as Exp of their logarithms, in float64."""
    found = _constant_input(g, node, rng)
    if not found or found[1].dtype != np.float32 or not (np.isfinite(found[1]).all() and found[1].size and found[1].min() > 0):
        return False
    return g.set_input(node, found[0], g.cast(g.op("Exp", g.const(np.log(found[1].astype(np.float64)))), np.float32))


@at()
def constant_as_sum(g, node, rng):
    """A constant of integers as the sum of two."""
    found = _constant_input(g, node, rng)
    if not found or found[1].dtype != np.int64 or np.abs(found[1]).max(initial=0) > 2 ** 60:
        return False
    part = rng.randrange(1, 7)
    return g.set_input(node, found[0], g.op("Add", g.const(found[1] - part), g.const(part, np.int64)))


def _edge(g, node, rng, kinds):
    indices = [i for i, n in enumerate(node.input) if n and g.dtype(n) is not None and g.dtype(n).kind in kinds]
    return rng.choice(indices) if indices else None


@at()
def identity_on_edge(g, node, rng):
    """Identity before a node."""
    index = _edge(g, node, rng, "fib")
    return index is not None and g.set_input(node, index, g.op("Identity", node.input[index]))


@at()
def double_on_edge(g, node, rng):
    """Cast to float64 and back before a node; of integers to int32."""
    index = _edge(g, node, rng, "fi")
    if index is None:
        return False
    name = node.input[index]
    kind = g.dtype(name)
    if kind not in (np.float32, np.float16, np.int64):
        return False
    if kind == np.int64 and any(np.abs(r).max(initial=0) > 2 ** 30 for r in g.runs(name)):
        return False
    wide = np.int32 if kind == np.int64 else np.float64
    return g.set_input(node, index, g.cast(g.cast(name, wide), kind))


@at()
def zero_added_on_edge(g, node, rng):
    """x + 0 or x · 1 before a node."""
    index = _edge(g, node, rng, "fi")
    if index is None or g.dtype(node.input[index]) not in (np.float32, np.float16, np.int64):
        return False
    kind = g.dtype(node.input[index])
    kind_, number = rng.choice([("Add", 0), ("Mul", 1), ("Sub", 0), ("Div", 1)])
    return g.set_input(node, index, g.op(kind_, node.input[index], g.const(number, kind)))


@whole
def constants_folded(g, rng):
    """Nodes that depend on no input replaced by their values, all of them or every second one. What takes a part of a stored
    table stays, and what is made of that: folded, the model would no longer hold the rest."""
    dependent, _ = g.dependent()
    parts = ("Slice", "Gather", "GatherND", "GatherElements", "Split")
    share = rng.choice([1.0, 0.5])
    gone, kept = [], set()
    for node in g.nodes:
        if set(node.input) & kept:
            kept.update(node.output)
            continue
        if node.op_type == "Constant" or set(node.output) & dependent or any(o in g.outputs or o not in g.trace for o in node.output if o):
            continue
        if node.op_type in parts and (g.rank(node.input[0]) or 0) > 1:
            kept.update(node.output)
            continue
        if any(g.trace[o][0].size > LARGE for o in node.output if o) or rng.random() > share:
            continue
        for name in node.output:
            if name:
                g.inits[name] = numpy_helper.from_array(np.asarray(g.trace[name][0]), name)
        gone.append(node)
    g.nodes = [n for n in g.nodes if not any(n is x for x in gone)]
    return bool(gone)
