"""Replaces RoPE by ALiBi with slopes of one's own, in memory: `python swap.py model.onnx`."""

from __future__ import annotations

import sys

import numpy as np
import onnx

import posenc_onnx as pe


def main(path: str) -> None:
    model = onnx.load(path)
    heads = pe.inspect(model).attention[0].heads
    assert heads is not None
    slopes = 2.0 ** -np.arange(1, heads + 1)
    done = pe.rewrite(model, to="alibi", params={"slopes": slopes})
    print(done, done.check)
    swapped = done.to_proto()
    onnx.checker.check_model(swapped)
    print(pe.inspect(swapped).encodings[0].params["slopes"])


if __name__ == "__main__":
    main(sys.argv[1])
