"""Masks, comparisons and sums in other forms."""

import numpy as np
from onnx import numpy_helper

from graph import attribute
from registry import at

BLOCKED = -1e9  # added where nothing may be seen


def _blocking(g, name):
    """Whether a value is one number that hides what it stands for."""
    value = g.scalar(name)
    return value is not None and value < -1e3


@at("Where")
def where_as_added_mask(g, node, rng):
    """Where(seen, x, −∞) as x plus a large negative number where it is hidden."""
    c, a, b = node.input
    kind = g.dtype(node.output[0])
    if kind is None or kind.kind != "f" or g.dtype(c) is None:
        return False
    if _blocking(g, b):
        hidden, x = g.op("Not", c), a
    elif _blocking(g, a):
        hidden, x = c, b
    else:
        return False
    low = BLOCKED if kind != np.float16 else -6e4
    return g.replace(node, g.op("Add", x, g.op("Mul", g.cast(hidden, kind), g.const(low, kind))))


@at("Where")
def where_as_added_where(g, node, rng):
    """Where(seen, x, −∞) as x + Where(seen, 0, −∞)."""
    c, a, b = node.input
    kind = g.dtype(node.output[0])
    if kind is None or kind.kind != "f":
        return False
    zero = g.const(0, kind)
    if _blocking(g, b):
        return g.replace(node, g.op("Add", a, g.op("Where", c, zero, b)))
    if _blocking(g, a):
        return g.replace(node, g.op("Add", b, g.op("Where", c, a, zero)))
    return False


@at("Add")
def added_mask_as_where(g, node, rng):
    """x + mask of zeros and large negative numbers as Where(mask > −1, x, −∞)."""
    for side in (1, 0):
        mask, x = node.input[side], node.input[1 - side]
        runs = g.runs(mask)
        if runs is None or g.runs(x) is None or not g.floating(mask) or not any((r < -1e3).any() for r in runs):
            continue
        shapes = zip(g.runs(x), runs)
        if all(((r == 0) | (r < -1e3)).all() for r in runs) and all(a.ndim >= b.ndim for a, b in shapes):
            kind = g.dtype(x)
            low = {np.dtype(np.float16): -6e4}.get(kind, rng.choice([BLOCKED, -3e38]))
            return g.replace(node, g.op("Where", g.op("Greater", mask, g.const(-1, kind)), x, g.const(low, kind)))
    return False


@at("Where", "Mul", "ScatterND")
def mask_number_changed(g, node, rng):
    """Another large negative number in a mask."""
    for index, name in enumerate(node.input):
        if _blocking(g, name) and g.dtype(name) == np.float32:
            node.input[index] = g.const(np.full(g.array(name).shape, rng.choice([-1e9, -3e38, -1e30])), np.float32)
            return True
    return False


@at("Where")
def where_as_arithmetic(g, node, rng):
    """Where(c, a, b) of finite values as c · a + (1 − c) · b."""
    c, a, b = node.input
    kind = g.dtype(node.output[0])
    if kind is None or kind.kind not in "fi" or any(g.runs(i) is None or not all(np.isfinite(r).all() for r in g.runs(i)) for i in (a, b)):
        return False
    one = g.cast(c, kind)
    other = g.op("Sub", g.const(1, kind), one)
    return g.replace(node, g.op("Add", g.op("Mul", one, a), g.op("Mul", other, b)))


@at("Where")
def where_exchanged(g, node, rng):
    """Where(c, a, b) as Where(not c, b, a)."""
    c, a, b = node.input
    return g.replace(node, g.op("Where", g.op("Not", c), b, a))


@at("And", "Or")
def and_by_de_morgan(g, node, rng):
    """And by Or of the opposites, and the reverse."""
    a, b = (g.op("Not", i) for i in node.input)
    return g.replace(node, g.op("Not", g.op("Or" if node.op_type == "And" else "And", a, b)))


@at("And")
def and_as_product(g, node, rng):
    """And as a product of numbers."""
    kind = rng.choice([np.int64, np.float32])
    a, b = (g.cast(i, kind) for i in node.input)
    return g.replace(node, g.cast(g.op("Mul", a, b), np.bool_))


@at("Not")
def not_as_compare(g, node, rng):
    """Not as Equal with 0."""
    return g.replace(node, g.op("Equal", g.cast(node.input[0], np.int64), g.const(0, np.int64)))


@at("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def compare_exchanged(g, node, rng):
    """a < b as b > a, or as not (a ≥ b)."""
    kinds = {"Less": ("Greater", "GreaterOrEqual"), "Greater": ("Less", "LessOrEqual"),
             "LessOrEqual": ("GreaterOrEqual", "Greater"), "GreaterOrEqual": ("LessOrEqual", "Less")}
    swapped, opposite = kinds[node.op_type]
    a, b = node.input
    if rng.random() < 0.5:
        return g.replace(node, g.op(swapped, b, a))
    return g.replace(node, g.op("Not", g.op(opposite, a, b)))


@at("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def compare_of_difference(g, node, rng):
    """a < b as a − b < 0."""
    kind = g.dtype(node.input[0])
    if kind is None or kind.kind not in "if" or any(g.runs(i) is None or not all(np.isfinite(r).all() for r in g.runs(i)) for i in node.input):
        return False
    return g.replace(node, g.op(node.op_type, g.op("Sub", *node.input), g.const(0, kind)))


@at("Trilu")
def trilu_as_compare(g, node, rng):
    """Trilu as Where of a comparison of rows and columns."""
    rank, kind = g.rank(node.input[0]), g.dtype(node.input[0])
    shift = g.array(node.input[1]) if len(node.input) > 1 and node.input[1] else np.zeros((), np.int64)
    if rank is None or shift is None:
        return False
    x = node.input[0]
    rows = g.op("Unsqueeze", g.arange(g.size(x, rank - 2, keep=False)), g.ints(1))
    columns = g.arange(g.size(x, rank - 1, keep=False))
    if int(shift.item()):
        rows = g.op("Add", rows, g.const(int(shift.item()), np.int64))
    keep = g.op("LessOrEqual" if attribute(node, "upper", 1) else "GreaterOrEqual", rows, columns)
    if kind == np.bool_:
        return g.replace(node, g.op("And", keep, x))
    return g.replace(node, g.op("Where", keep, x, g.const(0, kind)))


@at("LessOrEqual", "GreaterOrEqual", "Less", "Greater")
def compare_as_trilu(g, node, rng):
    """A comparison of positions that is a triangle in every run as Trilu of ones."""
    runs = g.runs(node.output[0])
    if runs is None or runs[0].ndim < 2 or len({r.shape[-1] for r in runs}) < 2 or node.output[0] in g.dependent()[1]:
        return False
    for upper, shift in ((0, 0), (1, 0), (0, -1), (1, 1)):
        triangle = np.triu if upper else np.tril
        if all(np.array_equal(r, np.broadcast_to(triangle(np.ones(r.shape[-2:], bool), shift), r.shape)) for r in runs):
            whole = g.op("Shape", g.op(node.op_type, *node.input))
            ones = g.op("ConstantOfShape", whole, value=numpy_helper.from_array(np.ones(1, np.float32)))
            return g.replace(node, g.cast(g.op("Trilu", ones, g.const(shift, np.int64), upper=upper), np.bool_))
    return False


@at("Add", "Mul", "And", "Or", "Equal", "Max", "Min")
def operands_exchanged(g, node, rng):
    """a + b as b + a."""
    if len(node.input) != 2:
        return False
    node.input[:] = [node.input[1], node.input[0]]
    return True


@at("Add", "Mul")
def sum_regrouped(g, node, rng):
    """(a + b) + c as a + (b + c), of products too."""
    for side in (0, 1):
        made = g.producer(node.input[side])
        if made is not None and made.op_type == node.op_type:
            names = [*made.input, node.input[1 - side]]
            if any(g.runs(i) is None or not all(np.isfinite(r).all() for r in g.runs(i)) for i in names):
                continue
            return g.replace(node, g.op(node.op_type, names[0], g.op(node.op_type, *names[1:])))
    return False


@at("Sub")
def sub_as_add(g, node, rng):
    """a − b as a + (−b)."""
    kind = g.dtype(node.input[1])
    if kind is None or kind.kind not in "fi":
        return False
    return g.replace(node, g.op("Add", node.input[0], g.op("Neg", node.input[1])))


@at("Neg")
def neg_as_product(g, node, rng):
    """−x as x · (−1) or 0 − x."""
    kind = g.dtype(node.input[0])
    if kind is None:
        return False
    if rng.random() < 0.5:
        return g.replace(node, g.op("Mul", node.input[0], g.const(-1, kind)))
    return g.replace(node, g.op("Sub", g.const(0, kind), node.input[0]))


@at("Add", "Sub")
def sum_spread(g, node, rng):
    """(a + b) · c as a · c + b · c, where one product reads the sum."""
    users = g.users(node.output[0])
    if not g.only_use(node.output[0]) or users[0].op_type != "Mul" or not g.floating(node.output[0]):
        return False
    product = users[0]
    factor = next(i for i in product.input if i != node.output[0])
    if any(g.runs(i) is None or not all(np.isfinite(r).all() and np.abs(r).max(initial=0) < 1e6 for r in g.runs(i)) for i in (*node.input, factor)):
        return False
    return g.replace(product, g.op(node.op_type, *(g.op("Mul", i, factor) for i in node.input)))
