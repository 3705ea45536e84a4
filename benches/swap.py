#!/usr/bin/env python3
"""What a swapped model costs in ONNX Runtime on the CPU.

    benches/swap.py native [--length 1024] [--runs 31] [--targets rope,alibi] [--exporters ts,dynamo]
    benches/swap.py cost [--lengths 256,1024,4096] [--rounds 5] [--runs 5] [--exporter dynamo]

`native` compares the rewritten model with one that was exported with the encoding: nodes, and run
time as a ratio, the two taking turns in one process. `cost` compares every encoding with none on
the same weights, in latency and peak memory; each measurement is a process of its own, and every
round runs all of them. Both print a table.

The models are those of `fixtures/mini.py` (width 256, 8 heads, 4 layers), exported once into
target/bench/swap: needs a Python with fixtures/requirements.txt, and `cargo build --release`.
`--sources native` measures exports alone, without the binary: `native` then compares a file with
itself, which tells how far the ratios wander.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BINARY = TARGET / "release" / "posenc-onnx"
FOLDER = TARGET / "bench" / "swap"
sys.path.insert(0, str(ROOT / "fixtures"))

from mini import Architecture  # noqa: E402, the path comes first
from turns import in_turn, session  # noqa: E402

ARCHITECTURE = Architecture(vocabulary=512, width=256, heads=8, kv_heads=8, layers=4,
                            positions=4096, table=4096)
ROWS = ["--max-length", str(ARCHITECTURE.positions)]
# What `rewrite` is asked for to make each encoding of the mini models.
FLAGS = {
    "none": ["--to", "none"],
    "learned": ["--to", "learned"],
    # The mini models hold tables; without the length, sines are computed.
    "sinusoidal": ["--to", "sinusoidal", *ROWS],
    "sinusoidal-concat": ["--to", "sinusoidal", "--layout", "half", *ROWS],
    "rope": ["--to", "rope"],
    "rope-interleaved": ["--to", "rope", "--layout", "interleaved"],
    "rope-partial": ["--to", "rope", "--rotary-dim", str(ARCHITECTURE.size // 2)],
    "alibi": ["--to", "alibi"],
    "t5": ["--to", "t5-bias"],
    "relative-clipped": ["--to", "relative-bias"],
    "shaw": ["--to", "shaw"],
    "transformer-xl": ["--to", "transformer-xl"],
    "conv": ["--to", "conv"],
}
# The most that a rewritten model may take, as a share of the native one's time.
MOST = 1.05
# Nodes that do nothing when a model runs.
FREE = ("Constant", "Identity")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = flags.add_subparsers(dest="what", required=True)
    native = parts.add_parser("native")
    native.add_argument("--length", type=int, default=1024)
    native.add_argument("--runs", type=int, default=31)
    native.add_argument("--exporters", default="ts,dynamo")
    native.add_argument("--sources", default="rope,learned",
                        help="the first that is not the target is rewritten; or `native`")
    cost = parts.add_parser("cost")
    cost.add_argument("--lengths", default="256,1024,4096")
    cost.add_argument("--rounds", type=int, default=5)
    cost.add_argument("--runs", type=int, default=5)
    cost.add_argument("--exporter", default="dynamo")
    cost.add_argument("--sources", default="none")
    cost.add_argument("--denormal-as-zero", action="store_true",
                      help="numbers that are too small for a normal float count as zero")
    for part in (native, cost):
        part.add_argument("--targets", default=",".join(FLAGS))
    once = parts.add_parser("once")
    once.add_argument("model", type=Path)
    once.add_argument("length", type=int)
    once.add_argument("runs", type=int)
    once.add_argument("--denormal-as-zero", action="store_true")
    flags = flags.parse_args()
    if flags.what == "once":
        print(json.dumps(alone(flags)))
        return
    if flags.sources != "native" and not BINARY.exists():
        sys.exit(f"{BINARY} is missing: build with `cargo build --release` first")
    targets = flags.targets.split(",")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, "
          f"ONNX Runtime {version()}\n")
    (compared if flags.what == "native" else priced)(flags, targets)


def version():
    import onnxruntime

    return onnxruntime.__version__


# ---- models ----


def exported(exporter, name):
    """The native export of an encoding, with its parameters beside it; written where it is not."""
    folder = FOLDER / exporter / name
    said = json.dumps(dataclasses.asdict(ARCHITECTURE) | {"encoding": name, "exporter": exporter})
    # What was made by other code is made again.
    made_by = hashlib.sha256(said.encode())
    for file in sorted((ROOT / "fixtures").glob("mini*.py")):
        made_by.update(file.read_bytes())
    stamp = folder / "made-by.sha256"
    if not stamp.exists() or stamp.read_text() != made_by.hexdigest():
        print(f"exporting {exporter}/{name}", file=sys.stderr)
        command = [sys.executable, "-c", EXPORT, said, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines() or ["it says nothing"]
            raise RuntimeError(f"its export fails: {last[-1]}")
        stamp.write_text(made_by.hexdigest())
    return folder / "model.onnx"


# A process of its own: PyTorch's memory and threads stay away from what is measured.
EXPORT = f"""
import json, pathlib, sys
sys.path.insert(0, {str(ROOT / "fixtures")!r})
from safetensors.torch import save_file
from mini import configured
from mini_export import export, model, params
config, folder = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
a = configured(config)
made = model(a, config["encoding"])
export(a, made, config["exporter"], folder / "model.onnx")
numbers = {{k: v.contiguous() for k, v in params(made).items()}}
if numbers:
    save_file(numbers, folder / "params.safetensors")
"""


def rewritten(exporter, source, target):
    """What the tool makes of a source's export for a target; the source where they are one."""
    model, native = exported(exporter, source), exported(exporter, target)
    if source == target:
        return model
    out = native.parent / f"from-{source}.onnx"
    numbers = native.parent / "params.safetensors"
    given = ["--params", numbers] if numbers.exists() else []
    command = [BINARY, "rewrite", model, *FLAGS[target], *given, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return out


def nodes(path):
    """How many nodes do something."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return sum(node.op_type not in FREE for node in graph.node)


def feeds(length):
    import numpy as np

    ids = np.random.default_rng(length).integers(1, ARCHITECTURE.vocabulary, (1, length))
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}


# ---- against native exports ----


def compared(flags, targets):
    print(f"Length {flags.length}, {flags.runs} runs of each, in turn.\n")
    print("| encoding | exporter | source | nodes | native | run time, ms | native | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    missed = []
    for target in targets:
        for exporter in flags.exporters.split(","):
            name = f"{target} of {exporter}"
            try:
                source, *figures = against(flags, exporter, target)
            except RuntimeError as failure:
                print(f"| {target} | {exporter} | failed: {failure} | | | | | |")
                missed.append(f"{name}: {failure}")
                continue
            ours, native, wall, wanted, ratio, far = figures
            print(f"| {target} | {exporter} | {source} | {ours} | {native} | {wall:.2f} | "
                  f"{wanted:.2f} | {ratio:.3f} |", flush=True)
            if ours > native:
                missed.append(f"{name}: {ours} nodes, {native} in the native export")
            if ratio > MOST:
                missed.append(f"{name}: {ratio:.3f} times the native run time")
            if not far < 1e-3:
                missed.append(f"{name}: other numbers, off by {far:.2g}")
    print()
    for line in missed:
        print(f"MISSED: {line}")
    sys.exit(1 if missed else 0)


def against(flags, exporter, target):
    """Source, nodes, native nodes, milliseconds, native milliseconds, their ratio, and how far the
    two models' numbers are apart."""
    import numpy as np

    native = exported(exporter, target)
    source = target
    if flags.sources != "native":
        source = next(s for s in flags.sources.split(",") if s != target)
    ours = rewritten(exporter, source, target)
    given = feeds(flags.length)
    pair = [session(ours), session(native)]
    first, second = (s.run(None, given)[0] for s in pair)
    far = float(np.abs(first - second).max() / max(1.0, np.abs(second).max()))
    middle, ratio = in_turn(pair, given, flags.runs)
    return source, nodes(ours), nodes(native), *middle, ratio, far


# ---- what each encoding costs ----


def priced(flags, targets):
    lengths = [int(n) for n in flags.lengths.split(",")]
    order = ["none", *(t for t in targets if t != "none")]
    models, failed = {}, []
    for target in order:
        source = target if flags.sources == "native" else flags.sources
        try:
            models[target] = rewritten(flags.exporter, source, target)
        except RuntimeError as failure:
            failed.append(f"{target}: {failure}")
    print(f"{flags.rounds} rounds of {flags.runs} runs; exporter {flags.exporter}. `none` in ms "
          "and MB, the others as ratios to it: latency, memory.\n")
    print("| encoding | " + " | ".join(f"{n:,}" for n in lengths) + " |")
    print("|---|" + "---|" * len(lengths))
    found = {n: measured(models, n, flags) for n in lengths}
    for target in models:
        cells = []
        for n in lengths:
            rounds, base = found[n][target], found[n]["none"]
            if target == "none":
                wall, memory = typical(base)
                cells.append(f"{1e3 * wall:.1f} ms, {memory:.0f} MB")
            else:
                wall, memory = (a / b for a, b in zip(typical(rounds), typical(base)))
                cells.append(f"{wall:.2f}, {memory:.2f}")
        print(f"| {target} | " + " | ".join(cells) + " |")
    print()
    for line in failed:
        print(f"MISSED: {line}")
    sys.exit(1 if failed else 0)


def typical(rounds):
    """The seconds of the best run of all, and the megabytes of the middle round."""
    walls, memory = zip(*rounds)
    return min(walls), statistics.median(memory)


def measured(models, length, flags):
    """Seconds of the best run and megabytes of each round, by encoding."""
    found = {target: [] for target in models}
    for _ in range(flags.rounds):
        for target, model in models.items():
            command = [sys.executable, __file__, "once", model, str(length), str(flags.runs)]
            command += ["--denormal-as-zero"] * flags.denormal_as_zero
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[target].append(tuple(json.loads(done.stdout)))
    return found


def alone(flags):
    """The seconds of the best run, and the megabytes that loading and running took at most."""
    import onnxruntime  # noqa: F401, loaded before memory is looked at

    given = feeds(flags.length)
    before = resident()
    loaded = session(flags.model, flags.denormal_as_zero)
    loaded.run(None, given)
    walls = []
    for _ in range(flags.runs):
        begin = time.perf_counter()
        loaded.run(None, given)
        walls.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return min(walls), peak - before


def resident():
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()
