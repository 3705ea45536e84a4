"""Positions and tables by other operators."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from graph import attribute
from registry import at

BUFFER = 4096  # rows of a constant that is sliced where a Range was


def _range(g, node):
    """(start, limit, dtype) of a Range of step 1 whose start is not negative; or None."""
    kind = g.dtype(node.output[0])
    if g.scalar(node.input[2]) != 1 or kind is None or kind.kind not in "if":
        return None
    if any(float(r) < 0 or float(r) % 1 for r in g.runs(node.input[0]) or [-1]):
        return None
    return node.input[0], node.input[1], kind


def _counted(g, start, limit, kind):
    """limit − start as a vector of one int64."""
    count = g.op("Sub", limit, start)
    count = count if kind == np.int64 else g.cast(count if kind.kind == "i" else g.op("Ceil", count), np.int64)
    return g.op("Reshape", count, g.ints(1))


def _shifted(g, node, counted, start, kind):
    """Adds the start to 0, 1, … and gives it the type of the Range."""
    out = counted if kind == np.int64 else g.cast(counted, kind)
    return g.replace(node, out if g.scalar(start) == 0 else g.op("Add", out, start))


def _filled(g, shape, number, kind=np.int64):
    return g.op("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([number], kind)))


@at("Range")
def range_as_cumsum(g, node, rng):
    """Range as CumSum of ones, minus one or exclusive."""
    found = _range(g, node)
    if not found:
        return False
    start, limit, kind = found
    ones = _filled(g, _counted(g, start, limit, kind), 1)
    if rng.random() < 0.5:
        counted = g.op("CumSum", ones, g.const(0, np.int64), exclusive=1)
    else:
        counted = g.op("Sub", g.op("CumSum", ones, g.const(0, np.int64)), g.const(1, np.int64))
    return _shifted(g, node, counted, start, kind)


@at("Range")
def range_as_nonzero(g, node, rng):
    """Range as NonZero of ones."""
    found = _range(g, node)
    if not found:
        return False
    start, limit, kind = found
    counted = g.op("Squeeze", g.op("NonZero", _filled(g, _counted(g, start, limit, kind), 1)), g.ints(0))
    return _shifted(g, node, counted, start, kind)


@at("Range")
def range_as_buffer(g, node, rng):
    """Range as a slice of a constant."""
    found = _range(g, node)
    if not found:
        return False
    start, limit, kind = found
    count = _counted(g, start, limit, kind)
    counted = g.op("Slice", g.const(np.arange(BUFFER), np.int64), g.ints(0), count)
    return _shifted(g, node, counted, start, kind)


@at("Range")
def range_as_loop(g, node, rng):
    """Range as the numbers of a Loop's trips."""
    found = _range(g, node)
    if not found:
        return False
    start, limit, kind = found
    trips = g.op("Squeeze", _counted(g, start, limit, kind), g.ints(0))
    i, go, on, out = (g.fresh() for _ in range(4))
    body = helper.make_graph(
        [helper.make_node("Identity", [go], [on]), helper.make_node("Identity", [i], [out])], "count",
        [helper.make_tensor_value_info(i, TensorProto.INT64, []), helper.make_tensor_value_info(go, TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(on, TensorProto.BOOL, []), helper.make_tensor_value_info(out, TensorProto.INT64, [])])
    return _shifted(g, node, g.op("Loop", trips, g.const(True), body=body), start, kind)


@at("Range")
def range_by_compare(g, node, rng):
    """Range as the number of elements before each: row sums of a triangle."""
    found = _range(g, node)
    if not found or g.runs(node.output[0])[0].ndim != 1:
        return False
    start, limit, kind = found
    count = _counted(g, start, limit, kind)
    triangle = g.op("Trilu", _filled(g, g.op("Concat", count, count, axis=0), 1), g.const(-1, np.int64), upper=0)
    return _shifted(g, node, g.reduce("ReduceSum", triangle, [1], 0), start, kind)


@at("CumSum")
def cumsum_as_product(g, node, rng):
    """CumSum over the last axis as a product with a triangle of ones."""
    rank, kind = g.rank(node.input[0]), g.dtype(node.input[0])
    axis = g.scalar(node.input[1])
    if rank != 2 or axis is None or int(axis) % 2 != 1 or attribute(node, "exclusive", 0) or attribute(node, "reverse", 0):
        return False
    count = g.size(node.input[0], 1)
    triangle = g.op("Trilu", _filled(g, g.op("Concat", count, count, axis=0), 1, np.float32), upper=1)
    return g.replace(node, g.cast(g.op("MatMul", g.cast(node.input[0], np.float32), triangle), kind))


def _table(g, node):
    """The table of a Gather of rows of a constant matrix, or None."""
    table = g.array(node.input[0])
    if table is None or table.ndim != 2 or table.dtype.kind != "f" or attribute(node, "axis", 0) != 0:
        return None
    return table if (g.rank(node.input[1]) or 0) >= 1 else None


@at("Gather")
def gather_as_one_hot(g, node, rng):
    """Rows of a table as OneHot · table."""
    table = _table(g, node)
    if table is None:
        return False
    hot = g.op("OneHot", node.input[1], g.const(table.shape[0], np.int64), g.const([0, 1], table.dtype))
    return g.replace(node, g.op("MatMul", hot, node.input[0]))


@at("Gather")
def gather_as_compare(g, node, rng):
    """Rows of a table as (index == 0, 1, …) · table."""
    table = _table(g, node)
    if table is None:
        return False
    index = g.op("Unsqueeze", g.cast(node.input[1], np.int64), g.ints(-1))
    hot = g.cast(g.op("Equal", index, g.const(np.arange(table.shape[0]), np.int64)), table.dtype)
    return g.replace(node, g.op("MatMul", hot, node.input[0]))


@at("Gather")
def gather_as_gather_nd(g, node, rng):
    """Gather of the first axis as GatherND."""
    rank = g.rank(node.input[0])
    if rank is None or attribute(node, "axis", 0) != 0 or g.dtype(node.input[1]) != np.int64 or g.rank(node.input[1]) is None:
        return False
    return g.replace(node, g.op("GatherND", node.input[0], g.op("Unsqueeze", node.input[1], g.ints(-1))))


@at("Gather")
def gather_as_slice(g, node, rng):
    """Gather of rows that are always consecutive from a fixed first one as Slice."""
    index, dims = g.runs(node.input[1]), g.dims(node.input[0])
    if index is None or dims is None or attribute(node, "axis", 0) != 0 or index[0].ndim not in (1, 2):
        return False
    if index[0].ndim == 2 and any(i.shape[0] != 1 for i in index):
        return False
    first = int(index[0].reshape(-1)[0]) if index[0].size else -1
    if first < 0 or any(not np.array_equal(i.reshape(-1), first + np.arange(i.size)) for i in index):
        return False
    if node.input[1] in g.dependent()[1] or len({i.size for i in index}) < 2:
        return False
    end = g.op("Add", g.size(node.input[1], -1), g.ints(first))
    rows = g.op("Slice", node.input[0], g.ints(first), end, g.ints(0))
    return g.replace(node, g.op("Unsqueeze", rows, g.ints(0)) if index[0].ndim == 2 else rows)


@at("Slice")
def slice_as_gather(g, node, rng):
    """A Slice of one axis as Gather of a Range."""
    if len(node.input) < 4 or any(g.runs(i) is None for i in node.input[1:]):
        return False
    axes, dims = g.array(node.input[3]), g.dims(node.input[0])
    if axes is None or axes.size != 1 or dims is None or g.dtype(node.input[1]) != np.int64:
        return False
    if len(node.input) > 4 and node.input[4] and not all((r == 1).all() for r in g.runs(node.input[4])):
        return False
    if any((r < 0).any() for i in node.input[1:3] for r in g.runs(i)):
        return False
    axis = int(axes.item()) % len(dims)
    empty = g.ints()
    start, end = (g.op("Reshape", i, empty) for i in node.input[1:3])
    end = g.op("Min", end, g.size(node.input[0], axis, keep=False))
    return g.replace(node, g.op("Gather", node.input[0], g.op("Range", start, end, g.const(1, np.int64)), axis=axis))


@at("Cos")
def cos_as_sin(g, node, rng):
    """cos x as sin (x + π/2), where the angles are small enough to keep the digits."""
    runs = g.runs(node.input[0])
    if runs is None or max(float(np.abs(r).max()) for r in runs) > 40 or g.dtype(node.input[0]) == np.float16:
        return False
    wide = g.cast(node.input[0], np.float64)
    return g.replace(node, g.cast(g.op("Sin", g.op("Add", wide, g.const(np.pi / 2, np.float64))), g.dtype(node.input[0])))
