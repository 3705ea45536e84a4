#!/usr/bin/env python3
"""Speed and memory of a rewrite on large models, beside `cp` and what people do in Python.

    benches/files.py [--inputs DIR] [--outputs DIR] [--runs N] [--only w1,w3] [--without onnx,…]

Builds the workloads (8 GB) once, installs the Python libraries into target/bench-packages, runs
every tool in turn N times, each in a process of its own, and prints a table: the median of wall
time with its range, its ratio to `cp` of the same run, and the most memory a process held. Wall
time includes starting up. Results of the tools are thrown away, but for what the table says of
them: a run that fails or writes nothing is a failure of the table too.

Outputs go to memory (/dev/shm) where that is, so that tools are measured and not the disk; w2 is
written beside its data, as is usual. Needs `cargo build --release` first.
"""

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BINARY = TARGET / "release" / "posenc-onnx"
PACKAGES = TARGET / "bench-packages"
NEEDS = ["numpy==2.4.6", "onnx==1.23.2", "onnx_ir==1.1.0", "onnx_graphsurgeon==0.6.1"]
PEERS = ["onnx", "onnx_ir", "onnx_graphsurgeon"]
WORKLOADS = ["w1", "w2", "w3", "w3x2", "nodes", "absent"]
# Workloads that are only looked at.
INSPECTED = ["nodes", "absent"]
OURS = "posenc-onnx"
# Address space of a run: what wants more has failed.
MOST = 17 << 30
# What must hold: wall time as a share of cp's or in seconds, and memory in MB; for a million
# nodes, 200 MB and four times the file.
GOALS = {"w1": (("cp", 1.0), 100), "w2": (("s", 0.1), 50), "w3": (("s", 0.6), None),
         "w3x2": (("w3", 2.2), None), "nodes": (("s", 2.0), 298), "absent": (("s", 1.0), 150)}


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--inputs", type=Path, default=TARGET / "bench")
    flags.add_argument("--outputs", type=Path)
    flags.add_argument("--runs", type=int, default=5)
    flags.add_argument("--only", default=",".join(WORKLOADS))
    flags.add_argument("--without", default="")
    flags = flags.parse_args()
    if not BINARY.exists():
        sys.exit(f"{BINARY} is missing: build with `cargo build --release` first")
    install()
    memory = Path("/dev/shm")
    outputs = flags.outputs or (memory if memory.is_dir() else flags.inputs) / "posenc-bench"
    tools = ["cp", OURS, *(p for p in PEERS if p not in flags.without.split(","))]
    print(f"{describe()}; outputs in {outputs}; {flags.runs} runs\n")
    print("| workload | tool | wall, s | × cp | memory, MB |")
    print("|---|---|---|---|---|")
    ours = {}
    for name in flags.only.split(","):
        source = build(name, flags.inputs)
        folder = source.parent / "out" if name == "w2" else outputs
        measured = measure(source, tools, folder, flags.runs)
        copied = statistics.median(w for w, _ in measured["cp"])
        for tool, runs in measured.items():
            print(row(name, tool, runs, copied))
        ours[name] = (statistics.median(w for w, _ in measured[OURS]),
                      max(m for _, m in measured[OURS]), copied)
    print()
    sys.exit(0 if all([judge(name, ours) for name in ours]) else 1)


def describe():
    return f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


def install():
    """Into a folder of its own: no virtual environment is needed, nothing else is touched."""
    stamp = PACKAGES / "complete"
    if not stamp.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--upgrade", "--target", PACKAGES, *NEEDS], check=True)
        stamp.touch()


def environment():
    path = [str(PACKAGES), str(ROOT / "benches")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def build(name, folder):
    script = ROOT / "benches" / "workloads.py"
    done = subprocess.run([sys.executable, script, name, folder], check=True, env=environment(),
                          stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def measure(source, tools, folder, runs):
    """Wall seconds and megabytes of each run, by tool. Where a ratio is the goal, the tools take
    turns; where seconds are, ours comes first: a copy of gigabytes leaves the machine busy."""
    measured = {tool: [] for tool in tools}
    warm(source)
    kind = GOALS[source.stem][0][0]
    turns = [tool for _ in range(runs) for tool in tools]
    if kind == "s":
        turns.sort(key=lambda tool: tool != OURS)
    for tool in turns:
        if measured[tool] != [None]:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            # What the tool before has left to be written is its own.
            os.sync()
            try:
                measured[tool].append(once(command(tool, source, folder)))
                if tool == OURS:
                    beside(source).unlink(missing_ok=True)
            except RuntimeError as failure:
                print(f"{tool} on {source.name}: {failure}", file=sys.stderr)
                if tool in ("cp", OURS):
                    sys.exit(1)
                measured[tool] = [None]
    shutil.rmtree(folder, ignore_errors=True)
    return measured


def warm(source):
    """Inputs come from the page cache, as far as it holds them."""
    for file in source.parent.iterdir():
        if file.is_file():
            with open(file, "rb", buffering=0) as stream:
                while stream.read(1 << 24):
                    pass


def beside(source):
    return source.with_suffix(".yarn.onnx")


def command(tool, source, folder):
    data = Path(f"{source}.data")
    target = folder / source.name
    if tool == "cp":
        files = [source, *([data] if data.exists() else [])]
        return ["cp", "--reflink=never", *files, folder]
    if tool == OURS and source.stem in INSPECTED:
        return [BINARY, "inspect", source, "--json"]
    if tool == OURS:
        # With external data the result stands beside it.
        target = beside(source) if data.exists() else target
        return [BINARY, "rewrite", source, "--scale", "yarn", "--original-length", "2048",
                "--factor", "4", "-o", target, "--json"]
    return [sys.executable, ROOT / "benches" / "peers.py", tool, source, target]


def once(command):
    """Runs a command; wall seconds and the most megabytes that it held."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, preexec_fn=bounded)
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        words = errors.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"exit {process.returncode}: {words[-1] if words else 'no word'}")
    return wall, used.ru_maxrss / 1024


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))


def row(name, tool, runs, copied):
    if runs == [None]:
        return f"| {name} | {tool} | failed | | |"
    walls = [wall for wall, _ in runs]
    middle, memory = statistics.median(walls), max(memory for _, memory in runs)
    spread = f"{middle:.3f} ({min(walls):.3f}–{max(walls):.3f})"
    return f"| {name} | {tool} | {spread} | {middle / copied:.2f} | {memory:.0f} |"


def judge(name, ours):
    """Whether our own figures reach what must hold."""
    wall, memory, copied = ours[name]
    (unit, most), limit = GOALS[name]
    if unit == "w3" and "w3" not in ours:
        return True
    figure = {"cp": wall / copied, "s": wall, "w3": wall / ours.get("w3", (1,))[0]}[unit]
    word = {"cp": "× cp", "s": "s", "w3": "× w3"}[unit]
    ok = figure <= most and (limit is None or memory <= limit)
    of = "" if limit is None else f", {memory:.0f} MB of {limit}"
    print(f"{'ok' if ok else 'MISSED'}: {name} {figure:.2f} {word} of {most}{of}")
    return ok


if __name__ == "__main__":
    main()
