"""Splits, joins, rotations, transposes and reshapes."""

import numpy as np
from onnx import numpy_helper

from graph import attribute
from registry import at


def cut(g, node):
    """(value, axis, start, end) of a Slice of one axis with constant bounds and step 1, its size fixed; or None."""
    if node.op_type != "Slice" or len(node.input) < 4:
        return None
    starts, ends, axes = (g.array(i) for i in node.input[1:4])
    steps = g.array(node.input[4]) if len(node.input) > 4 and node.input[4] else np.ones(1, np.int64)
    dims = g.dims(node.input[0])
    if any(a is None or a.size != 1 for a in (starts, ends, axes, steps)) or int(steps.item()) != 1 or not dims:
        return None
    axis = int(axes.item()) % len(dims)
    size = dims[axis]
    if not size:
        return None
    start, end, _ = slice(int(starts.item()), int(ends.item())).indices(size)
    return node.input[0], axis, start, end


@at("Split")
def split_as_slices(g, node, rng):
    """Split as one Slice for each part."""
    rank = g.rank(node.input[0])
    if rank is None or any(g.dims(o) is None for o in node.output):
        return False
    axis = attribute(node, "axis", 0) % rank
    sizes = [g.dims(o)[axis] for o in node.output]
    if None in sizes:
        return False
    ends = np.cumsum(sizes)
    parts = [g.op("Slice", node.input[0], g.ints(int(e - s)), g.ints(int(e)), g.ints(axis)) for s, e in zip(sizes, ends)]
    return g.replace_many(node, parts)


@at("Slice")
def slices_as_split(g, node, rng):
    """Slices that together make up an axis as one Split."""
    found = cut(g, node)
    if not found:
        return False
    value, axis = found[:2]
    total = g.dims(value)[axis]
    others = [(cut(g, n), n) for n in g.nodes if n.op_type == "Slice" and n.input[0] == value]
    parts = sorted(((c[2], c[3], n.output[0]) for c, n in others if c and c[1] == axis and c[2] < c[3]))
    chain, at_ = [], 0
    for start, end, name in parts:
        if start == at_:
            chain.append((start, end, name))
            at_ = end
    if at_ != total or len(chain) < 2 or node.output[0] not in [c[2] for c in chain]:
        return False
    sizes = [e - s for s, e, _ in chain]
    g.op("Split", value, g.ints(*sizes), outputs=len(sizes), axis=axis)
    split = g.pending.pop()
    split.output[:] = [c[2] for c in chain]
    gone = [n for n in g.nodes if n.op_type == "Slice" and n.output[0] in split.output]
    first = min(g.place(n) for n in gone)
    g.nodes[first] = split
    g.nodes = [n for n in g.nodes if not any(n is x for x in gone)]
    return True


@at("Slice")
def slice_as_gather_of_constants(g, node, rng):
    """A Slice with constant bounds as Gather of its indices."""
    found = cut(g, node)
    if not found:
        return False
    value, axis, start, end = found
    return g.replace(node, g.op("Gather", value, g.const(np.arange(start, end), np.int64), axis=axis))


@at("Concat")
def concat_as_padded_sum(g, node, rng):
    """Concat as the sum of its parts, each padded with zeros."""
    rank = g.rank(node.output[0])
    if rank is None or not g.floating(node.output[0]):
        return False
    axis = attribute(node, "axis") % rank
    dims = [g.dims(i) for i in node.input]
    if any(d is None or d[axis] is None for d in dims):
        return False
    sizes = [d[axis] for d in dims]
    out = None
    for i, value in enumerate(node.input):
        pads = [0] * (2 * rank)
        pads[axis], pads[rank + axis] = sum(sizes[:i]), sum(sizes[i + 1:])
        part = g.op("Pad", value, g.ints(*pads))
        out = part if out is None else g.op("Add", out, part)
    return g.replace(node, out)


@at("Concat")
def concat_nested(g, node, rng):
    """Concat of three or more as Concat of a Concat."""
    if len(node.input) < 3:
        return False
    at_ = rng.randrange(1, len(node.input) - 1) + 1
    axis = attribute(node, "axis")
    first = g.op("Concat", *node.input[:at_], axis=axis)
    return g.replace(node, g.op("Concat", first, *node.input[at_:], axis=axis))


def _turned(g, node):
    """(source, indices, signs) if the node's value is a turned copy of a value above it, in halves or neighbours."""
    out = g.runs(node.output[0])
    if out is None or out[0].ndim < 2 or out[0].shape[-1] % 2 or not g.floating(node.output[0]):
        return None
    d = out[0].shape[-1]
    if g.dims(node.output[0])[-1] is None:
        return None
    half, pairs = np.arange(d), np.arange(d).reshape(-1, 2)
    kinds = [(np.concatenate([half[d // 2:], half[:d // 2]]), np.repeat([-1.0, 1.0], d // 2)),
             (pairs[:, ::-1].reshape(-1), np.tile([-1.0, 1.0], d // 2))]
    seen, front = set(), list(node.input)
    for _ in range(7):
        after = []
        for name in front:
            runs = g.runs(name)
            if runs is not None and all(r.shape == o.shape and r.dtype == o.dtype for r, o in zip(runs, out)):
                for index, sign in kinds:
                    if all(np.array_equal(r[..., index] * sign.astype(r.dtype), o) and r.any() for r, o in zip(runs, out)):
                        return name, index, sign
            made = g.producer(name)
            if made is not None and name not in seen and made.op_type in ("Slice", "Neg", "Split", "Unsqueeze", "Squeeze", "Gather", "Mul", "Reshape", "Concat"):
                seen.add(name)
                after += [i for i in made.input if i]
        front = after
    return None


@at("Concat", "Reshape", "Flatten")
def rotation_as_product(g, node, rng):
    """rotate_half, or its form for neighbours, as a product with a constant matrix."""
    found = _turned(g, node)
    if not found:
        return False
    source, index, sign = found
    matrix = np.zeros((len(index), len(index)), g.dtype(source))
    matrix[index, np.arange(len(index))] = sign
    return g.replace(node, g.op("MatMul", source, g.const(matrix)))


@at("Concat", "Reshape", "Flatten")
def rotation_as_gather(g, node, rng):
    """rotate_half, or its form for neighbours, as Gather and a vector of signs."""
    found = _turned(g, node)
    if not found:
        return False
    source, index, sign = found
    moved = g.op("Gather", source, g.const(index, np.int64), axis=-1)
    return g.replace(node, g.op("Mul", moved, g.const(sign, g.dtype(source))))


@at("Concat", "Reshape", "Flatten")
def rotation_as_split(g, node, rng):
    """rotate_half as Split, a product with −1, and Concat."""
    found = _turned(g, node)
    if not found or found[1][0] == 1 and len(found[1]) > 2:
        return False
    source, index, _ = found
    low, high = g.op("Split", source, g.ints(len(index) // 2, len(index) // 2), outputs=2, axis=-1)
    return g.replace(node, g.op("Concat", g.op("Mul", high, g.const(-1, g.dtype(source))), low, axis=-1))


def _turned_product(g, name):
    """(x, factor) of a product of a value with a turned x, or None."""
    made = g.producer(name)
    if made is None or made.op_type != "Mul":
        return None
    for side in (0, 1):
        turned = g.producer(made.input[side])
        found = _turned(g, turned) if turned is not None else None
        if found and found[1][0] * 2 == len(found[1]):
            return found[0], made.input[1 - side]
    return None


@at("Add")
def rotation_in_halves(g, node, rng):
    """x · cos + rotate_half(x) · sin as its two halves, x₁ cos − x₂ sin and x₂ cos + x₁ sin, joined."""
    for side in (0, 1):
        found = _turned_product(g, node.input[side])
        straight = g.producer(node.input[1 - side])
        if not found or straight is None or straight.op_type != "Mul" or found[0] not in straight.input:
            continue
        x, sine = found
        cosine = next((i for i in straight.input if i != x), None)
        half = g.dims(x)[-1] // 2
        if cosine is None or any((g.dims(i) or [0])[-1] != 2 * half for i in (sine, cosine)):
            continue
        (x1, x2), (c1, c2), (s1, s2) = (g.op("Split", i, g.ints(half, half), outputs=2, axis=-1) for i in (x, cosine, sine))
        low = g.op("Sub", g.op("Mul", x1, c1), g.op("Mul", x2, s1))
        high = g.op("Add", g.op("Mul", x2, c2), g.op("Mul", x1, s2))
        return g.replace(node, g.op("Concat", low, high, axis=-1))
    return False


@at()
def transposed_and_back(g, node, rng):
    """Two Transposes that undo each other, on an edge."""
    index = rng.randrange(len(node.input)) if node.input else None
    rank = g.rank(node.input[index]) if index is not None and node.input[index] else None
    if not rank or rank < 2:
        return False
    perm = rng.sample(range(rank), rank)
    there = g.op("Transpose", node.input[index], perm=perm)
    return g.set_input(node, index, g.op("Transpose", there, perm=[int(i) for i in np.argsort(perm)]))


@at("Transpose")
def transpose_in_two(g, node, rng):
    """A Transpose as two."""
    rank = g.rank(node.input[0])
    perm = attribute(node, "perm")
    if not rank or rank < 3 or perm is None:
        return False
    first = rng.sample(range(rank), rank)
    second = [first.index(p) for p in perm]
    return g.replace(node, g.op("Transpose", g.op("Transpose", node.input[0], perm=first), perm=second))


@at("Transpose")
def transpose_as_einsum(g, node, rng):
    """A Transpose as Einsum of one operand."""
    perm = attribute(node, "perm")
    if perm is None or not g.floating(node.input[0]):
        return False
    letters = "abcdefgh"[:len(perm)]
    return g.replace(node, g.op("Einsum", node.input[0], equation=f"{letters}->{''.join(letters[p] for p in perm)}"))


@at()
def merged_and_back(g, node, rng):
    """The first two axes of a value merged by Reshape, and taken apart again."""
    index = rng.randrange(len(node.input)) if node.input else None
    rank = g.rank(node.input[index]) if index is not None and node.input[index] else None
    if not rank or rank < 3:
        return False
    value = node.input[index]
    shape = g.op("Shape", value)
    lead, tail = (g.op("Slice", shape, g.ints(s), g.ints(e)) for s, e in ((0, 2), (2, rank)))
    both = g.reduce("ReduceProd", lead, [0])
    merged = g.reshape(value, g.op("Concat", both, tail, axis=0))
    return g.set_input(node, index, g.reshape(merged, shape))


@at("Unsqueeze")
def unsqueeze_as_reshape(g, node, rng):
    """Unsqueeze as Reshape to a shape put together from that of the value."""
    axes = g.array(node.input[1]) if len(node.input) > 1 else None
    rank, dims = g.rank(node.input[0]), g.dims(node.output[0])
    if axes is None or rank is None or dims is None:
        return False
    axes = {int(a) % len(dims) for a in axes.reshape(-1)}
    parts, k = [], 0
    for i in range(len(dims)):
        if i in axes:
            parts.append(g.ints(1))
        else:
            parts.append(g.size(node.input[0], k))
            k += 1
    shape = g.op("Concat", *parts, axis=0)
    return g.replace(node, g.reshape(node.input[0], shape))


@at("Squeeze")
def squeeze_as_reshape(g, node, rng):
    """Squeeze as Reshape."""
    axes = g.array(node.input[1]) if len(node.input) > 1 else None
    rank = g.rank(node.input[0])
    if axes is None or rank is None:
        return False
    axes = {int(a) % rank for a in axes.reshape(-1)}
    parts = [g.size(node.input[0], i) for i in range(rank) if i not in axes]
    shape = g.op("Concat", *parts, axis=0) if parts else g.const([], np.int64)
    return g.replace(node, g.reshape(node.input[0], shape))


@at("Reshape")
def reshape_as_unsqueeze(g, node, rng):
    """A Reshape that inserts or drops an axis of size 1 as Unsqueeze or Squeeze."""
    before, after = g.runs(node.input[0]), g.runs(node.output[0])
    if before is None or after is None:
        return False
    shapes = [(a.shape, b.shape) for a, b in zip(before, after)]
    for kind, step in (("Unsqueeze", 1), ("Squeeze", -1)):
        if any(len(b) - len(a) != step for a, b in shapes):
            continue
        for axis in range(max(len(shapes[0][0]), len(shapes[0][1]))):
            longer = [b if step == 1 else a for a, b in shapes]
            shorter = [a if step == 1 else b for a, b in shapes]
            if all(x[axis] == 1 and x[:axis] + x[axis + 1:] == y for x, y in zip(longer, shorter)):
                return g.replace(node, g.op(kind, node.input[0], g.ints(axis)))
    return False


@at("Cos", "Sin", "Neg", "Exp", "Cast", "Sigmoid", "Tanh")
def unary_before_concat(g, node, rng):
    """f(a ‖ b) as f(a) ‖ f(b)."""
    made = g.producer(node.input[0])
    if made is None or made.op_type != "Concat":
        return False
    parts = []
    for value in made.input:
        parts.append(g.op(node.op_type, value))
        g.pending[-1].attribute.extend(node.attribute)
    return g.replace(node, g.op("Concat", *parts, axis=attribute(made, "axis")))


@at("Expand")
def expand_as_product(g, node, rng):
    """Expand as a product with ones."""
    kind = g.dtype(node.input[0])
    if kind is None or kind.kind not in "fi":
        return False
    ones = g.op("ConstantOfShape", node.input[1], value=numpy_helper.from_array(np.ones(1, kind)))
    return g.replace(node, g.op("Mul", node.input[0], ones))
