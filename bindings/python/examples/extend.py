"""Gives a RoPE model four times its context: `python extend.py model.onnx`."""

from __future__ import annotations

import sys
from pathlib import Path

import posenc_onnx as pe


def main(model: Path) -> None:
    plan = pe.plan(model, scale="yarn", factor=4)
    print(plan)
    done = plan.apply(progress=lambda stage: print(f"… {stage}"))
    out = model.with_name(f"{model.stem}.long.onnx")
    done.save(out)
    report = pe.verify(model, out)
    report.ensure_ok()
    print(f"{out}: {len(report.sites)} comparisons with formulas, {len(report.runs)} runs")
    for reason in report.unchecked:
        print(f"not checked: {reason}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
