"""Spellings of softmax and of normalizations."""

import numpy as np

from graph import attribute
from registry import at


def _axis(g, node):
    """The axis, counted from the front; None where it is unclear."""
    rank = g.rank(node.input[0])
    if rank is None or g.opset() < 13:
        return None
    return attribute(node, "axis", -1) % rank


@at("Softmax")
def softmax_as_exp(g, node, rng):
    """Exp(x − max) ÷ ReduceSum."""
    axis = _axis(g, node)
    if axis is None:
        return False
    x = node.input[0]
    e = g.op("Exp", g.op("Sub", x, g.reduce("ReduceMax", x, [axis])))
    if rng.random() < 0.3 and g.dtype(x) == np.float32:
        wide = g.cast(e, np.float64)
        return g.replace(node, g.cast(g.op("Div", wide, g.reduce("ReduceSum", wide, [axis])), np.float32))
    total = g.reduce("ReduceSum", e, [axis])
    if rng.random() < 0.3:
        return g.replace(node, g.op("Mul", e, g.op("Reciprocal", total)))
    return g.replace(node, g.op("Div", e, total))


@at("Softmax")
def softmax_as_plain_exp(g, node, rng):
    """Exp(x) ÷ ReduceSum, where the scores are small enough."""
    axis = _axis(g, node)
    if axis is None or not all(r.max() < 20 and (r.max(axis) > -20).all() for r in g.runs(node.input[0])):
        return False
    e = g.op("Exp", node.input[0])
    return g.replace(node, g.op("Div", e, g.reduce("ReduceSum", e, [axis])))


@at("Softmax")
def softmax_as_log_softmax(g, node, rng):
    """Exp(LogSoftmax(x))."""
    axis = _axis(g, node)
    return axis is not None and g.replace(node, g.op("Exp", g.op("LogSoftmax", node.input[0], axis=axis)))


@at("Softmax")
def softmax_as_log_sum_exp(g, node, rng):
    """Exp(x − ReduceLogSumExp(x))."""
    axis = _axis(g, node)
    if axis is None:
        return False
    x = node.input[0]
    return g.replace(node, g.op("Exp", g.op("Sub", x, g.reduce("ReduceLogSumExp", x, [axis]))))


@at("Softmax")
def softmax_in_double(g, node, rng):
    """Softmax between casts to float64 and back."""
    axis, kind = _axis(g, node), g.dtype(node.input[0])
    if axis is None or kind == np.float64:
        return False
    return g.replace(node, g.cast(g.op("Softmax", g.cast(node.input[0], np.float64), axis=axis), kind))


@at("Softmax")
def softmax_of_transposed(g, node, rng):
    """Softmax over the last axis but one of the transposed scores."""
    axis = _axis(g, node)
    rank = g.rank(node.input[0])
    if axis is None or axis != rank - 1 or rank < 2:
        return False
    perm = list(range(rank))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return g.replace(node, g.op("Transpose", g.op("Softmax", g.op("Transpose", node.input[0], perm=perm), axis=-2), perm=perm))


@at("Softmax")
def softmax_of_rows(g, node, rng):
    """Softmax of the scores as one matrix of rows."""
    axis, rank = _axis(g, node), g.rank(node.input[0])
    if axis is None or axis != rank - 1 or rank < 3:
        return False
    x = node.input[0]
    rows = g.op("Reshape", x, g.op("Concat", g.ints(-1), g.size(x, rank - 1), axis=0))
    return g.replace(node, g.op("Reshape", g.op("Softmax", rows, axis=1), g.op("Shape", x)))


@at("Softmax")
def mask_behind_softmax(g, node, rng):
    """Softmax(Where(seen, x, −∞)) as Softmax(x) · seen, divided by its sum."""
    axis, made = _axis(g, node), g.producer(node.input[0])
    if axis is None or made is None or made.op_type != "Where":
        return False
    c, x, low = made.input
    seen = g.runs(c)
    if (g.scalar(low) or 0) > -1e3 or seen is None or not all(r.shape[-1] > 1 and r.any(-1).all() for r in seen):
        return False
    p = g.op("Mul", g.op("Softmax", x, axis=axis), g.cast(c, g.dtype(x)))
    return g.replace(node, g.op("Div", p, g.reduce("ReduceSum", p, [axis])))


@at("LayerNormalization")
def layer_norm_in_pieces(g, node, rng):
    """LayerNormalization by means, Sub, Mul and Sqrt."""
    rank = g.rank(node.input[0])
    if rank is None or attribute(node, "axis", -1) % rank != rank - 1 or len(node.output) > 1:
        return False
    x, kind = node.input[0], g.dtype(node.input[0])
    centred = g.op("Sub", x, g.reduce("ReduceMean", x, [-1]))
    variance = g.reduce("ReduceMean", g.op("Mul", centred, centred), [-1])
    spread = g.op("Sqrt", g.op("Add", variance, g.const(attribute(node, "epsilon", 1e-5), kind)))
    out = g.op("Mul", g.op("Div", centred, spread), node.input[1])
    return g.replace(node, g.op("Add", out, node.input[2]) if len(node.input) > 2 and node.input[2] else out)
