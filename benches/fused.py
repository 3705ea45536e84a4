#!/usr/bin/env python3
"""Rotations that are fused by `rewrite --form contrib`, against those that ONNX Runtime's tools fuse.

    benches/fused.py [--lengths 16,256] [--runs 31] [--families llama,gpt_neox,gptj,phi3]
                     [--exporters torchscript,dynamo] [--same]

Every model goes through the optimizer of onnxruntime.transformers twice, with and without its fusion of
rotations; the second result is rewritten with `--form contrib`. All other fusions are the same. The two models
take turns in one process: the table shows how many RotaryEmbedding each has, the run time, its ratio (below 1:
the rewritten model is faster). `--same` runs the model of the optimizer twice, which tells how far the ratios wander.

The models are the fixtures' families with width 256, 8 heads and 4 layers, exported once into target/bench/fused:
needs a Python with fixtures/requirements.txt, and `cargo build --release`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BINARY = TARGET / "release" / "posenc-onnx"
FOLDER = TARGET / "bench" / "fused"
sys.path.insert(0, str(ROOT / "fixtures"))

from turns import in_turn, session  # noqa: E402, beside this file

# Larger than the fixtures, by the names that families have for it.
SIZES = {
    "hidden_size": 256, "n_embd": 256, "head_dim": 32, "rotary_dim": 16, "intermediate_size": 512,
    "n_inner": 512, "num_attention_heads": 8, "n_head": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "n_layer": 4, "max_position_embeddings": 2048, "n_positions": 2048,
}
# The most that a rewritten model may take, as a share of the time of the other.
MOST = 1.05


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--lengths", default="16,256")
    flags.add_argument("--runs", type=int, default=31)
    flags.add_argument("--families", default="llama,gpt_neox,gptj,phi3")
    flags.add_argument("--exporters", default="torchscript,dynamo")
    flags.add_argument("--same", action="store_true")
    flags = flags.parse_args()
    if not BINARY.exists():
        sys.exit(f"{BINARY} is missing: build with `cargo build --release` first")
    import onnxruntime

    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, "
          f"ONNX Runtime {onnxruntime.__version__}; {flags.runs} runs of each, in turn.\n")
    print("| family | exporter | length | rotations | of the optimizer | run time, ms | of the optimizer | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    missed = []
    for family in flags.families.split(","):
        for exporter in flags.exporters.split(","):
            try:
                missed += measured(flags, family, exporter)
            except Exception as failure:  # an exporter or an optimizer that fails is told
                last = str(failure).strip().splitlines() or [type(failure).__name__]
                print(f"| {family} | {exporter} | failed: {last[-1][:120]} | | | | | |", flush=True)
    print()
    for line in missed:
        print(f"MISSED: {line}")
    sys.exit(1 if missed else 0)


def exported(family, exporter):
    """A larger model of a family, as the exporter writes it."""
    folder = FOLDER / family / exporter
    model = folder / "model.onnx"
    if model.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    from regenerate import build, export, feeds_of

    known = sorted((ROOT / "fixtures" / family).glob("*/config.json"))
    if not known:
        raise RuntimeError("there is no such family among the fixtures")
    config = json.loads(known[0].read_text())
    config |= {name: size for name, size in SIZES.items() if config.get(name) is not None}
    made = build(config, family)
    export(made, feeds_of(made, family), "logits", exporter, model)
    return folder


def optimized(folder, fuses_rotations):
    """What the optimizer of ONNX Runtime makes of an export."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("gpt2")
    options.enable_rotary_embeddings = fuses_rotations
    done = optimize_model(str(folder / "model.onnx"), model_type="gpt2", num_heads=8, hidden_size=256,
                          optimization_options=options, opt_level=0, use_gpu=False)
    path = folder / ("fused.onnx" if fuses_rotations else "unfused.onnx")
    done.save_model_to_file(str(path))
    return path


def rewritten(path):
    out = path.parent / "rewritten.onnx"
    command = [BINARY, "rewrite", path, "--form", "contrib", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return out


def rotations(path):
    import onnx

    nodes = onnx.load(path, load_external_data=False).graph.node
    return sum(node.op_type == "RotaryEmbedding" for node in nodes)


def measured(flags, family, exporter):
    """Prints the rows of a model, and returns what is missed."""
    import numpy as np

    folder = exported(family, exporter)
    theirs = optimized(folder, True)
    ours = theirs if flags.same else rewritten(optimized(folder, False))
    counts = rotations(ours), rotations(theirs)
    pair = [session(path) for path in (ours, theirs)]
    missed = []
    for length in map(int, flags.lengths.split(",")):
        ids = np.random.default_rng(length).integers(3, 90, (1, length))
        given = {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}
        names = {port.name for port in pair[0].get_inputs()}
        given = {name: value for name, value in given.items() if name in names}
        first, second = (own.run(None, given)[0] for own in pair)
        far = float(np.abs(first - second).max() / np.abs(second).max())
        middle, ratio = in_turn(pair, given, flags.runs)
        print(f"| {family} | {exporter} | {length} | {counts[0]} | {counts[1]} | {middle[0]:.2f} | "
              f"{middle[1]:.2f} | {ratio:.3f} |", flush=True)
        name = f"{family} of {exporter} at {length}"
        if ratio > MOST:
            missed.append(f"{name}: {ratio:.3f} times the run time")
        if not far < 1e-4:
            missed.append(f"{name}: other numbers, off by {far:.2g}")
    return missed


if __name__ == "__main__":
    main()
