"""A model as mutations see it: a list of nodes that can be edited, and what every value was in traced runs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def subgraphs(node):
    """The bodies that a node holds."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(body):
    """Names that a body reads from outside of it."""
    own = {v.name for v in body.input} | {t.name for t in body.initializer}
    own |= {o for n in body.node for o in n.output}
    read = {v.name for v in body.output}
    for node in body.node:
        read |= reads(node)
    return read - own


def reads(node):
    """Every name that a node reads, captures of its bodies included."""
    names = {i for i in node.input if i}
    for body in subgraphs(node):
        names |= captured(body)
    return names


class Graph:
    """A copy of `model`; `trace` maps a value's name to one array per traced run."""

    def __init__(self, model, trace=None):
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.nodes = list(self.model.graph.node)
        self.trace = trace or {}
        self.pending = []
        self.names = {v.name for v in self.model.graph.input} | {t.name for t in self.model.graph.initializer}
        self.count = 0
        self._collect(self.model.graph)
        for function in self.model.functions:
            for node in function.node:
                self.names.add(node.name)
                self.names.update(node.output)
        self.inits = {t.name: t for t in self.model.graph.initializer}
        self.outputs = [v.name for v in self.model.graph.output]
        self.inputs = [v.name for v in self.model.graph.input if v.name not in self.inits]

    def _collect(self, body):
        self.names |= {v.name for v in body.input} | {t.name for t in body.initializer}
        for node in body.node:
            self.names.add(node.name)
            self.names.update(node.output)
            self.names.update(node.input)
            for inner in subgraphs(node):
                self._collect(inner)

    def proto(self):
        """The edited model."""
        out = onnx.ModelProto()
        out.CopyFrom(self.model)
        del out.graph.node[:]
        out.graph.node.extend(self.nodes)
        del out.graph.initializer[:]
        out.graph.initializer.extend(self.inits.values())
        alive = {o for n in self.nodes for o in n.output}
        kept = [v for v in out.graph.value_info if v.name in alive]
        del out.graph.value_info[:]
        out.graph.value_info.extend(kept)
        return out

    # What is known of a value.

    def opset(self):
        """The version of the default operator set."""
        return next((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 1)

    def array(self, name):
        """The value of a constant, or None."""
        if name in self.inits:
            return numpy_helper.to_array(self.inits[name])
        made = self.producer(name)
        if made is not None and made.op_type == "Constant" and made.attribute[0].name == "value":
            return numpy_helper.to_array(made.attribute[0].t)
        return None

    def runs(self, name):
        """The value in each traced run; of a constant its number twice; None if unknown."""
        if name in self.trace:
            return self.trace[name]
        array = self.array(name)
        return None if array is None else [array, array]

    def dims(self, name):
        """The sizes, None where they vary with the runs; None if unknown or of varying rank."""
        runs = self.runs(name)
        if runs is None or len({r.ndim for r in runs}) != 1:
            return None
        return [d[0] if len(set(d)) == 1 else None for d in zip(*(r.shape for r in runs))]

    def rank(self, name):
        """The rank, or None."""
        dims = self.dims(name)
        return None if dims is None else len(dims)

    def dtype(self, name):
        """The element type as numpy knows it, or None."""
        runs = self.runs(name)
        return None if runs is None else runs[0].dtype

    def floating(self, name):
        """Whether the value is known to hold floats."""
        kind = self.dtype(name)
        return kind is not None and kind.kind == "f"

    def onnx_type(self, name):
        """The element type as ONNX numbers it."""
        return helper.np_dtype_to_tensor_dtype(self.dtype(name))

    def scalar(self, name):
        """The one number of a constant of size 1, or None."""
        array = self.array(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def single(self, name):
        """Whether the value has one element in every run and a rank of at most 1."""
        runs = self.runs(name)
        return runs is not None and all(r.size == 1 and r.ndim <= 1 for r in runs)

    def producer(self, name):
        """The node that makes a value, or None."""
        return next((n for n in self.nodes if name in n.output), None) if name else None

    def users(self, name):
        """Nodes that read a value, bodies included."""
        return [n for n in self.nodes if name in reads(n)]

    def only_use(self, name):
        """Whether one input of one node reads the value, and nothing else."""
        users = self.users(name)
        return len(users) == 1 and list(users[0].input).count(name) == 1 and name not in self.outputs

    def dependent(self):
        """Names that depend on a graph input at all, and those that depend on its numbers, not on sizes alone."""
        any_, data = set(self.inputs), set(self.inputs)
        for node in self.nodes:
            names = reads(node)
            random_ = node.op_type.startswith("Random")
            if names & any_ or random_:
                any_.update(node.output)
            if (names & data and node.op_type not in ("Shape", "Size")) or random_:
                data.update(node.output)
        return any_, data

    # Making nodes.

    def fresh(self):
        """A name that nothing has."""
        while True:
            self.count += 1
            name = f"v{self.count}"
            if name not in self.names:
                self.names.add(name)
                return name

    def const(self, array, dtype=None):
        """A new initializer."""
        array = np.asarray(array, dtype=dtype)
        name = self.fresh()
        self.inits[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def ints(self, *numbers):
        """A new 1-D constant of int64."""
        return self.const(numbers, np.int64)

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        """Adds a node to those that `replace` or `before` will place; its output's name, or a list of them."""
        names = [self.fresh() for _ in range(outputs)]
        self.pending.append(helper.make_node(kind, list(inputs), names, name=self.fresh(), domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def reduce(self, kind, value, axes, keepdims=1):
        """A reduction, with its axes where the operator set has them."""
        by_input = self.opset() >= (13 if kind == "ReduceSum" else 18)
        if by_input:
            return self.op(kind, value, self.ints(*axes), keepdims=keepdims)
        return self.op(kind, value, axes=list(axes), keepdims=keepdims)

    def reshape(self, value, shape):
        """A Reshape to sizes that may be 0 where a cache is empty."""
        empty = {"allowzero": 1} if any(n.startswith("past") for n in self.inputs) and self.opset() >= 14 else {}
        return self.op("Reshape", value, shape, **empty)

    def size(self, value, axis, keep=True):
        """The size of an axis, as a vector of one number or as a scalar."""
        index = self.ints(axis) if keep else self.const(axis, np.int64)
        return self.op("Gather", self.op("Shape", value), index, axis=0)

    def cast(self, value, to):
        """A Cast to a type of numpy."""
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))

    def arange(self, count):
        """0, 1, … up to a scalar of int64."""
        return self.op("Range", self.const(0, np.int64), count, self.const(1, np.int64))

    def place(self, node):
        """The index of a node."""
        return next(i for i, n in enumerate(self.nodes) if n is node)

    def replace(self, node, result, output=0):
        """Puts the pending nodes in a node's place; `result` becomes the value that the node made."""
        wanted = node.output[output]
        made = next((n for n in self.pending if result in n.output), None)
        if made is None:
            self.pending.append(helper.make_node("Identity", [result], [wanted]))
        else:
            for n in self.pending:
                n.input[:] = [wanted if i == result else i for i in n.input]
            made.output[:] = [wanted if o == result else o for o in made.output]
        at = self.place(node)
        self.nodes[at:at + 1] = self.pending
        self.pending = []
        return True

    def replace_many(self, node, results):
        """As `replace` for a node of several outputs."""
        for wanted, result in zip(node.output, results):
            self.pending.append(helper.make_node("Identity", [result], [wanted]))
        at = self.place(node)
        self.nodes[at:at + 1] = self.pending
        self.pending = []
        return True

    def before(self, node):
        """Puts the pending nodes before a node."""
        at = self.place(node)
        self.nodes[at:at] = self.pending
        self.pending = []
        return True

    def set_input(self, node, index, name):
        """Lets one input of a node read another value, made by the pending nodes."""
        node.input[index] = name
        return self.before(node)


def attribute(node, name, default=None):
    """The value of an attribute."""
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return default
