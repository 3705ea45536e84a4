"""Matrix products and the scales around them."""

import numpy as np

from graph import attribute
from registry import at

LETTERS = "abcdefgh"


def _ranks(g, node):
    a, b = g.rank(node.input[0]), g.rank(node.input[1])
    return (a, b) if a and b and a >= 2 and b >= 2 and g.floating(node.input[0]) else None


def _same_batch(g, a, b):
    """Whether all axes before the matrices have equal sizes, also where these vary."""
    x, y = g.runs(a), g.runs(b)
    return all(p.shape[:-2] == q.shape[:-2] for p, q in zip(x, y))


@at("MatMul")
def matmul_as_einsum(g, node, rng):
    """A · B as Einsum, with letters or an ellipsis for the batch axes, sometimes with the operands exchanged."""
    ranks = _ranks(g, node)
    if not ranks:
        return False
    a, b = node.input
    if ranks[0] == ranks[1] and _same_batch(g, a, b):
        lead = rng.choice(["...", LETTERS[:ranks[0] - 2]])
        left = right = out = lead
    elif ranks[1] == 2:
        left = out = LETTERS[:ranks[0] - 2]
        right = ""
    else:
        return False
    first, second = f"{left}ij", f"{right}jk"
    if rng.random() < 0.3:
        a, b, first, second = b, a, second, first
    return g.replace(node, g.op("Einsum", a, b, equation=f"{first},{second}->{out}ik"))


@at("MatMul")
def matmul_as_mul_sum(g, node, rng):
    """A · B as Mul of broadcast operands and ReduceSum over the inner axis."""
    ranks = _ranks(g, node)
    if not ranks:
        return False
    a, b = (g.runs(i)[-1].shape for i in node.input)
    if np.prod(np.broadcast_shapes(a[:-2], b[:-2]), dtype=float) * a[-2] * a[-1] * b[-1] > 5e5:
        return False
    left = g.op("Unsqueeze", node.input[0], g.ints(-1))
    right = g.op("Unsqueeze", node.input[1], g.ints(-3))
    return g.replace(node, g.reduce("ReduceSum", g.op("Mul", left, right), [-2], 0))


@at("MatMul")
def matmul_as_gemm(g, node, rng):
    """x · W of a constant W as Reshape, Gemm, Reshape; sometimes W stored transposed."""
    weight = g.array(node.input[1])
    ranks = _ranks(g, node)
    if not ranks or weight is None or weight.ndim != 2:
        return False
    x = node.input[0]
    flat = g.op("Reshape", x, g.ints(-1, weight.shape[0]))
    if rng.random() < 0.5:
        product = g.op("Gemm", flat, g.const(weight.T.copy()), transB=1)
    else:
        product = g.op("Gemm", flat, node.input[1])
    if ranks[0] > 2:
        lead = g.op("Slice", g.op("Shape", x), g.ints(0), g.ints(ranks[0] - 1))
        product = g.op("Reshape", product, g.op("Concat", lead, g.ints(weight.shape[1]), axis=0))
    return g.replace(node, product)


@at("Gemm")
def gemm_as_matmul(g, node, rng):
    """Gemm as MatMul and Add."""
    if attribute(node, "alpha", 1.0) != 1.0 or attribute(node, "beta", 1.0) != 1.0:
        return False
    a, b = node.input[:2]
    a = g.op("Transpose", a, perm=[1, 0]) if attribute(node, "transA", 0) else a
    b = g.op("Transpose", b, perm=[1, 0]) if attribute(node, "transB", 0) else b
    out = g.op("MatMul", a, b)
    return g.replace(node, g.op("Add", out, node.input[2]) if len(node.input) > 2 and node.input[2] else out)


@at("MatMul")
def matmul_transposed(g, node, rng):
    """A · B as (Bᵀ · Aᵀ)ᵀ."""
    ranks = _ranks(g, node)
    if not ranks:
        return False

    def flip(value, rank):
        axes = list(range(rank))
        return g.op("Transpose", value, perm=axes[:-2] + [axes[-1], axes[-2]])
    product = g.op("MatMul", flip(node.input[1], ranks[1]), flip(node.input[0], ranks[0]))
    return g.replace(node, flip(product, max(ranks)))


@at("MatMul")
def matmul_in_two_sums(g, node, rng):
    """A · B as the sum of two products, the inner axis cut in two."""
    ranks = _ranks(g, node)
    inner = g.dims(node.input[0])[-1] if ranks else None
    if not inner or inner < 2:
        return False
    cut = rng.randrange(1, inner)

    def part(value, axis, start, end):
        return g.op("Slice", value, g.ints(start), g.ints(end), g.ints(axis))
    parts = [g.op("MatMul", part(node.input[0], -1, s, e), part(node.input[1], -2, s, e)) for s, e in ((0, cut), (cut, inner))]
    return g.replace(node, g.op("Add", *parts))


@at("MatMul")
def matmul_in_columns(g, node, rng):
    """x · W of a constant W as two products whose columns are joined."""
    weight = g.array(node.input[1])
    if not _ranks(g, node) or weight is None or weight.shape[-1] < 2:
        return False
    cut = rng.randrange(1, weight.shape[-1])
    parts = [g.op("MatMul", node.input[0], g.const(w.copy())) for w in (weight[..., :cut], weight[..., cut:])]
    return g.replace(node, g.op("Concat", *parts, axis=-1))


@at("MatMul")
def matmul_folded(g, node, rng):
    """A product of [batch, heads, …] with both axes folded into one, as torch.bmm does."""
    ranks = _ranks(g, node)
    if ranks != (4, 4) or not _same_batch(g, *node.input):
        return False

    def fold(value):
        tail = g.op("Slice", g.op("Shape", value), g.ints(2), g.ints(4))
        return g.op("Reshape", value, g.op("Concat", g.ints(-1), tail, axis=0))
    product = g.op("MatMul", fold(node.input[0]), fold(node.input[1]))
    lead = g.op("Slice", g.op("Shape", node.input[0]), g.ints(0), g.ints(3))
    shape = g.op("Concat", lead, g.size(node.input[1], 3), axis=0)
    return g.replace(node, g.op("Reshape", product, shape))


@at("MatMul")
def matmul_per_head(g, node, rng):
    """A product of [batch, heads, …] as one product for each head, stacked."""
    ranks = _ranks(g, node)
    heads = g.dims(node.input[0])[1] if ranks == (4, 4) else None
    if not heads or not 2 <= heads <= 4 or not _same_batch(g, *node.input):
        return False
    parts = []
    for head in range(heads):
        a, b = (g.op("Gather", i, g.const(head, np.int64), axis=1) for i in node.input)
        parts.append(g.op("Unsqueeze", g.op("MatMul", a, b), g.ints(1)))
    return g.replace(node, g.op("Concat", *parts, axis=1))


@at("MatMul")
def matmul_reversed(g, node, rng):
    """A · B with the inner axis of both in reverse: keys from the last to the first."""
    ranks = _ranks(g, node)
    if not ranks:
        return False

    def turn(value, axis):
        return g.op("Slice", value, g.ints(-1), g.ints(-(1 << 62)), g.ints(axis), g.ints(-1))
    return g.replace(node, g.op("MatMul", turn(node.input[0], -1), turn(node.input[1], -2)))


@at("MatMul")
def matmul_in_chunks(g, node, rng):
    """A · B by the first rows of A and the others: queries in chunks."""
    if not _ranks(g, node):
        return False
    cut = rng.choice([1, 4, 16])
    parts = [g.op("MatMul", g.op("Slice", node.input[0], g.ints(s), g.ints(e), g.ints(-2)), node.input[1]) for s, e in ((0, cut), (cut, 1 << 62))]
    return g.replace(node, g.op("Concat", *parts, axis=-2))


@at("MatMul", "Add", "Sub", "Mul", "Div", "Cos", "Sin", "Exp", "Where", "ReduceSum", "Neg")
def computed_in_double(g, node, rng):
    """A node between casts to float64 and back."""
    kind = g.dtype(node.output[0])
    if kind not in (np.float32, np.float16) or len(node.output) > 1:
        return False
    names = [g.cast(i, np.float64) if i and g.floating(i) else i for i in node.input]
    out = g.op(node.op_type, *names)
    g.pending[-1].attribute.extend(node.attribute)
    return g.replace(node, g.cast(out, kind))


@at("Cast")
def cast_moved(g, node, rng):
    """A Cast of a sum, difference or product of integers to floats as one of its operands."""
    made, kind = g.producer(node.input[0]), g.dtype(node.output[0])
    if made is None or made.op_type not in ("Add", "Sub", "Mul") or kind != np.float32 or g.dtype(node.input[0]) is None:
        return False
    if g.dtype(node.input[0]).kind != "i":
        return False
    return g.replace(node, g.op(made.op_type, *(g.cast(i, kind) for i in made.input)))


@at("MatMul")
def outer_product_as_mul(g, node, rng):
    """A product over an inner axis of size 1 as Mul."""
    ranks = _ranks(g, node)
    if not ranks or g.dims(node.input[0])[-1] != 1:
        return False
    return g.replace(node, g.op("Mul", *node.input))


@at("Mul")
def mul_as_outer_product(g, node, rng):
    """A column times a row as MatMul."""
    for a, b in (node.input, node.input[::-1]):
        x, y = g.dims(a), g.dims(b)
        if x and y and len(x) >= 2 and len(y) >= 2 and x[-1] == 1 and y[-2] == 1 and g.floating(a) and y[-1] != 1:
            return g.replace(node, g.op("MatMul", a, b))
    return False


@at("MatMul")
def products_merged(g, node, rng):
    """Products of one value with several matrices as one product that is split: queries, keys and values together."""
    def weight(n):
        return g.array(n.input[1]) if n.op_type == "MatMul" and n.input[0] == node.input[0] else None
    nodes = [n for n in g.nodes if n.op_type == "MatMul" and n.input[0] == node.input[0]]
    nodes = [n for n in nodes if weight(n) is not None and weight(n).ndim == 2]
    if len(nodes) < 2 or not any(n is node for n in nodes):
        return False
    weights = [weight(n) for n in nodes]
    product = g.op("MatMul", node.input[0], g.const(np.concatenate(weights, 1)))
    g.op("Split", product, g.ints(*(w.shape[1] for w in weights)), outputs=len(nodes), axis=-1)
    g.pending[-1].output[:] = [n.output[0] for n in nodes]
    first = min(g.place(n) for n in nodes)
    g.nodes[first:first] = g.pending
    g.pending = []
    g.nodes = [n for n in g.nodes if not any(n is x for x in nodes)]
    return True


def _scale(g, node):
    """(value, factor) of a Mul or Div by one number, or None."""
    if node is None or node.op_type not in ("Mul", "Div") or not g.floating(node.input[0]):
        return None
    x, c = node.input
    if node.op_type == "Mul" and g.single(x) and not g.single(c):
        x, c = c, x
    return (x, c) if g.single(c) and not g.single(x) and not _rounded_below(g, node) else None


def _rounded_below(g, node):
    """Whether a value ends in integers soon, so that its last digit matters: buckets of distances."""
    front = [node]
    for _ in range(4):
        front = [u for n in front for o in n.output for u in g.users(o)][:20]
        for n in front:
            kind = g.dtype(n.output[0]) if n.output else None
            if n.op_type in ("Floor", "Ceil", "Round") or n.op_type == "Cast" and kind is not None and kind.kind == "i":
                return True
    return False


@at("Mul", "Div")
def scale_inverted(g, node, rng):
    """x ÷ c as x · (1/c) and the reverse."""
    found = _scale(g, node)
    if not found or not np.all(g.runs(found[1])[0]):
        return False
    x, c = found
    value = g.array(c)
    inverse = g.const((1 / value.astype(np.float64)).astype(value.dtype)) if value is not None else g.op("Reciprocal", c)
    return g.replace(node, g.op("Mul" if node.op_type == "Div" else "Div", x, inverse))


@at("Mul", "Div")
def scale_in_roots(g, node, rng):
    """x · c as (x · √c) · √c."""
    found = _scale(g, node)
    if not found or g.runs(found[1])[0].min() <= 0:
        return False
    x, c = found
    root = g.op("Sqrt", c)
    return g.replace(node, g.op(node.op_type, g.op(node.op_type, x, root), root))


@at("Mul", "Div")
def scale_by_pow(g, node, rng):
    """x · c and x ÷ c with c as a power of its square, computed in the graph."""
    found = _scale(g, node)
    value = g.array(found[1]) if found else None
    if value is None or value.min() <= 0:
        return False
    square = g.const((value.astype(np.float64) ** 2).astype(value.dtype))
    sign = 0.5 if node.op_type == "Mul" else -0.5
    return g.replace(node, g.op("Mul", found[0], g.op("Pow", square, g.const(sign, value.dtype))))


@at("Mul", "Div")
def scale_onto_an_operand(g, node, rng):
    """(A · B) · c as (A · c) · B or A · (B · c)."""
    found = _scale(g, node)
    made = g.producer(found[0]) if found else None
    if made is None or made.op_type != "MatMul" or not g.only_use(found[0]):
        return False
    operands = list(made.input)
    side = rng.randrange(2)
    operands[side] = g.op(node.op_type, operands[side], found[1])
    return g.replace(node, g.op("MatMul", *operands))


@at("MatMul")
def scale_after_the_product(g, node, rng):
    """(A · c) · B as (A · B) · c."""
    for side in rng.sample([0, 1], 2):
        made = g.producer(node.input[side])
        found = _scale(g, made)
        if found:
            operands = list(node.input)
            operands[side] = found[0]
            return g.replace(node, g.op(made.op_type, g.op("MatMul", *operands), found[1]))
    return False


@at("Mul", "Div")
def scale_into_weights(g, node, rng):
    """(x · W + b) · c with c in W and b."""
    found = _scale(g, node)
    c = g.scalar(found[1]) if found else None
    made = g.producer(found[0]) if c else None
    if not c:
        return False
    c = c if node.op_type == "Mul" else 1 / c
    bias = None
    if made is not None and made.op_type == "Add":
        arrays = [g.array(i) for i in made.input]
        if sum(a is not None for a in arrays) != 1:
            return False
        which = 0 if arrays[0] is not None else 1
        bias, made = arrays[which], g.producer(made.input[1 - which])
    if made is None or made.op_type != "MatMul":
        return False
    weight = g.array(made.input[1])
    if weight is None:
        return False
    out = g.op("MatMul", made.input[0], g.const((weight * c).astype(weight.dtype)))
    return g.replace(node, g.op("Add", out, g.const((bias * c).astype(bias.dtype))) if bias is not None else out)


@at("Mul", "Div")
def scale_before_the_layout(g, node, rng):
    """A scale that moves before a Transpose, Reshape, Unsqueeze or Identity."""
    found = _scale(g, node)
    made = g.producer(found[0]) if found else None
    if made is None or made.op_type not in ("Transpose", "Reshape", "Unsqueeze", "Identity"):
        return False
    moved = g.op(node.op_type, made.input[0], found[1])
    out = g.op(made.op_type, moved, *made.input[1:])
    g.pending[-1].attribute.extend(made.attribute)
    return g.replace(node, out)


@at("Transpose", "Reshape", "Unsqueeze")
def scale_after_the_layout(g, node, rng):
    """A scale that moves behind a Transpose, Reshape or Unsqueeze."""
    made = g.producer(node.input[0])
    found = _scale(g, made)
    if not found or g.rank(node.output[0]) is None:
        return False
    out = g.op(node.op_type, found[0], *node.input[1:])
    g.pending[-1].attribute.extend(node.attribute)
    return g.replace(node, g.op(made.op_type, out, found[1]))


@at("Einsum")
def einsum_exchanged(g, node, rng):
    """Einsum of two operands in the other order."""
    equation = attribute(node, "equation").decode().replace(" ", "")
    terms, arrow, out = equation.partition("->")
    if terms.count(",") != 1 or not arrow:
        return False
    first, second = terms.split(",")
    return g.replace(node, g.op("Einsum", node.input[1], node.input[0], equation=f"{second},{first}->{out}"))
