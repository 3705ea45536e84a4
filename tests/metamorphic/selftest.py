"""Checks of the tester itself: every mutation fires and holds, and what is wrong is seen. `python selftest.py`."""

import os
import sys

import numpy as np

import mutate
import product
import prove
import run
from mutate import Step
from registry import TABLE, Mutation

FIRST = {"functions_inlined": "function_around", "gemm_as_matmul": "matmul_as_gemm", "einsum_exchanged": "matmul_as_einsum",
         "outer_product_as_mul": "mul_as_outer_product", "mask_behind_softmax": "added_mask_as_where", "scale_after_the_layout": "scale_before_the_layout"}  # what makes the pattern
SIZES = prove.Sizes(1, 4, 0)


def every_mutation_fires(paths):
    """Each entry of the table fires on some fixture, and no more than a few of its places are unproven."""
    fired, unproven = set(), []
    for path in paths:
        original = mutate.Original(path, 3)
        for name in TABLE:
            first = [Step(FIRST[name], 3, True)] if name in FIRST else []
            _, done, failed = original.mutated([*first, Step(name, 4, False)])
            if any(s.mutation == name for s in done):
                fired.add(name)
            unproven += [(s.mutation, os.path.relpath(path, run.ROOT), why) for s, why in failed]
    assert not set(TABLE) - fired, f"never fire: {sorted(set(TABLE) - fired)}"
    assert not unproven, f"unproven: {unproven}"


def a_wrong_mutation_is_unproven(path):
    """A softmax of scores that are 1 % larger, and a mask left out."""
    def sharper(g, node, rng):
        x = node.input[0]
        return g.set_input(node, 0, g.op("Mul", x, g.const(1.01, g.dtype(x))))

    def unmasked(g, node, rng):
        for i in range(2):
            if any((r < -1e3).any() for r in g.runs(node.input[i]) or []):
                node.input[i] = g.const(0, np.float32)
                return True
        return False
    original = mutate.Original(path, 3)
    for name, f, ops in (("sharper", sharper, ("Softmax",)), ("unmasked", unmasked, ("Add",))):
        TABLE[name] = Mutation(name, f, ops, False)
        _, done, failed = original.mutated([Step(name, 1, True)])
        del TABLE[name]
        assert not done and failed and failed[0][1].startswith("error"), f"{name} went unnoticed: {done} {failed}"


def differences_are_seen():
    """Sign, order, NaN, shape and a small error."""
    want = np.array([[0.5, -1.0, 2.0]])
    assert prove.difference([want], [want + 1e-6], 5e-5, {}, SIZES) is None
    for name, bad in (("sign", -want), ("order", want[:, ::-1]), ("nan", want * np.nan), ("shape", want[0]), ("small", want * 1.001)):
        assert prove.difference([want], [bad], 5e-5, {}, SIZES), f"{name} went unnoticed"


def findings_are_compared():
    """A site less is a difference; with a warning more it is said."""
    site = {"name": "a", "stack": None, "layer": 0, "kind": "self", "heads": 3, "form": "ops"}
    both = {"encodings": [], "attention": [site, site | {"layer": 1}], "limits": [], "warnings": []}
    one = both | {"attention": [site]}
    assert product.compared(both, both)[0] == "equal"
    assert product.compared(both, both | {"attention": [site | {"name": "b"}, site | {"layer": 1}]})[0] == "equal"
    assert product.compared(both, one)[0] == "findings differ"
    assert product.compared(both, one | {"warnings": ["not read as attention"]})[0] == "less, and says so"


def main():
    """All of them."""
    fixtures = os.path.join(run.ROOT, "fixtures")
    names = ("mini/rope", "mini/t5", "mini/learned", "mini/alibi", "mini/shaw", "mini-encoder/rope", "mini-encoder/shaw", "mini-encoder/transformer-xl",
             "mini-cached/learned", "llama/dynamo", "gptj/torchscript", "gpt2/optimum", "bloom/dynamo", "gpt2/dynamo")
    paths = [os.path.join(fixtures, n, "model.onnx") for n in names]
    differences_are_seen()
    findings_are_compared()
    a_wrong_mutation_is_unproven(paths[0])
    every_mutation_fires(paths)
    print(f"{len(TABLE)} mutations fire and hold; what is wrong is seen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
