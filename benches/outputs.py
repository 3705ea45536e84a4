#!/usr/bin/env python3
"""The sha256 of every model that `rewrite` writes, to tell whether a change alters any output.

    benches/outputs.py BINARY FOLDER... > outputs.txt

Each line is: model, target, exit code, sha256 over all written files. Run it with the binary from
before and from after a change and compare the two lists with diff.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

TABLES = ["learned", "t5-bias", "relative-bias", "shaw", "transformer-xl", "conv"]
FACTOR = ["--factor", "4", "--allow-rescale"]
LENGTH = [*FACTOR, "--original-length", "64"]


def requests(binary, model):
    """Every scaling and every target, by name."""
    for kind in ["none", "sinusoidal", "rope", "alibi"]:
        yield f"to {kind}", ["--to", kind]
    for kind in TABLES:
        yield f"to {kind}", ["--to", kind, "--seed", "1"]
    for law in ["linear", "ntk", "proportional"]:
        yield f"scale {law}", ["--scale", law, *FACTOR]
    for law in ["dynamic", "yarn", "llama3"]:
        yield f"scale {law}", ["--scale", law, *LENGTH]
    yield "scale none", ["--scale", "none", "--allow-rescale"]
    yield "scale longrope", ["--scale", "longrope", *LENGTH, *lists(binary, model)]


def lists(binary, model):
    """Divisors for as many pairs as the model rotates."""
    done = subprocess.run([binary, "inspect", model, "--json"], capture_output=True, text=True)
    found = json.loads(done.stdout)["encodings"] if done.returncode == 0 else []
    widths = [e["params"]["rotary_dim"] for e in found if e["kind"] == "rope"]
    pairs = widths[0] // 2 if widths else 4
    short = ",".join(str(1 + i / 8) for i in range(pairs))
    long = ",".join(str(2 + i / 4) for i in range(pairs))
    return ["--short-factor", short, "--long-factor", long]


def digest(folder):
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def row(binary, model, folder, name, flags):
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        command = [binary, "rewrite", model, "-o", out / "out.onnx", "--external-data", "inline", *flags]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        code = done.returncode
        label = f"{folder.name}/{model.relative_to(folder)}"
        return f"{label}\t{name}\t{code}\t{digest(out) if code == 0 else '-'}"


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    jobs = []
    for folder in map(pathlib.Path, sys.argv[2:]):
        for model in sorted(folder.rglob("*.onnx")):
            jobs += [(binary, model, folder, *one) for one in requests(binary, model)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line in pool.map(lambda job: row(*job), jobs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
