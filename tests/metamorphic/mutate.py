"""Applies steps of mutations to a model and proves after each that the outputs stay."""

import random
from dataclasses import asdict, dataclass, replace

import onnx

import prove
from graph import Graph
from mutations import constants, control, layout, masks, positions, products, softmax, wholes  # noqa: F401 (they fill the table)
from registry import TABLE

PLACES = 40  # the most places of one step


@dataclass(frozen=True)
class Step:
    """One mutation with its seed, at one place or wherever it fits."""
    mutation: str
    seed: int
    everywhere: bool

    def as_json(self):
        """For a file."""
        return asdict(self)


def apply(model, trace, step):
    """The mutated model and the number of places; (None, 0) where the mutation does not fit."""
    graph = Graph(model, trace)
    rng = random.Random(step.seed)
    entry = TABLE[step.mutation]
    if entry.whole:
        done = entry.apply(graph, rng)
        if isinstance(done, onnx.ModelProto):
            return done, 1
        return (graph.proto(), 1) if done else (None, 0)
    nodes = [n for n in graph.nodes if entry.ops is None or n.op_type in entry.ops]
    rng.shuffle(nodes)
    count = 0
    for node in nodes:
        if not any(n is node for n in graph.nodes):
            continue
        if entry.apply(graph, node, rng):
            count += 1
            if not step.everywhere or count == PLACES:
                break
        assert not graph.pending, f"{step.mutation} leaves nodes behind"
    return (graph.proto(), count) if count else (None, 0)


class Original:
    """A model as it is, with its runs."""

    def __init__(self, path, seed):
        self.path = path
        self.model = onnx.load(path)
        self.signature = prove.Signature(self.model)
        self.bound = prove.tolerance(self.model)
        try:
            self._run(prove.PROOF, seed)
            self.rewritten_sizes = prove.REWRITTEN
        except Exception:  # a graph that holds for one sequence at a time
            self._run([replace(s, batch=1) for s in prove.PROOF], seed)
            self.rewritten_sizes = [replace(s, batch=1) for s in prove.REWRITTEN]

    def _run(self, sizes, seed):
        self.sizes = sizes
        self.feeds = [self.signature.make(s, seed + i) for i, s in enumerate(sizes)]
        self.trace, self.want = prove.traced(self.model, self.feeds[:2])
        self.want.append(prove.session(self.model).run(None, self.feeds[2]))

    def proven(self, model):
        """(trace, None) of a model that computes the same, or (None, why not)."""
        try:
            trace, got = prove.traced(model, self.feeds[:2])
            got.append(prove.session(model).run(None, self.feeds[2]))
        except Exception as error:  # ONNX Runtime has no class of its own for a model that it refuses
            return None, "does not load: " + str(error).splitlines()[0][:300]
        for want, have, feed, sizes in zip(self.want, got, self.feeds, self.sizes):
            wrong = prove.difference(want, have, self.bound, feed, sizes)
            if wrong:
                return None, wrong
        return trace, None

    def mutated(self, steps, most=None):
        """The model after the steps that fit and hold, at most so many: (model, those steps, [(step, why)] of the unproven ones)."""
        model, trace, done, unproven = self.model, self.trace, [], []
        for step in steps:
            if len(done) == most:
                break
            try:
                new, count = apply(model, trace, step)
            except Exception as error:  # a fault of the mutator, counted apart
                unproven.append((step, f"raises {type(error).__name__}: {error}"))
                continue
            if not count:
                continue
            seen, why = self.proven(new)
            if why:
                unproven.append((step, why))
                continue
            model, trace = new, seen
            done.append(step)
        return model, done, unproven
