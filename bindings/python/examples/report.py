"""Prints what encodes positions, as a notebook and a script would use it: `python report.py model.onnx`."""

from __future__ import annotations

import json
import sys

import posenc_onnx as pe


def main(path: str) -> None:
    report = pe.inspect(path)
    for encoding in report.encodings:
        longest = encoding.max_length or "any length"
        print(f"{encoding.kind} in layers {list(encoding.layers)}: {longest}")
    print(json.dumps(report.to_dict()["model"], indent=2))
    try:
        pe.plan(path, to="learned", theta=1e4)
    except pe.UsageError as why:
        print(f"refused: {why}")


if __name__ == "__main__":
    main(sys.argv[1])
