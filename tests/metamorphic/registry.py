"""The table of mutations. Each keeps what a model computes, at the inputs that the model is made for."""

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Mutation:
    """One entry: at nodes of the listed operators (None: of any), or of the whole graph."""
    name: str
    apply: Callable
    ops: tuple | None
    whole: bool


TABLE: dict[str, Mutation] = {}


def at(*ops):
    """Registers `f(graph, node, rng) -> bool`, which mutates at one node or says that it does not fit."""
    def register(f):
        TABLE[f.__name__] = Mutation(f.__name__, f, ops or None, False)
        return f
    return register


def whole(f):
    """Registers `f(graph, rng) -> bool | ModelProto`."""
    TABLE[f.__name__] = Mutation(f.__name__, f, None, True)
    return f
