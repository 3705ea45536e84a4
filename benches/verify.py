"""Rewrites every model of the given folders and verifies the results, alone and with the original.

usage: verify.py BIN FOLDER ...

Every honest rewrite has to be verified: exit code 0 in ONNX Runtime, 0 or 4 in tract, or the exit
code of the original in that runtime, which may lack an operator, compute one wrongly, or have
nothing to compare in a model that already was what was asked for. Prints the rewrites that are not,
and how many there are of each exit code. ONNX Runtime is found as the tool finds it.
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ["alibi", "t5-bias", "none", "learned"]
FLAGS = {"learned": ["--max-length", "64", "--seed", "1"]}


def run(binary, *arguments):
    ran = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


def requests(binary, model):
    """A scaling for rotary models, and kinds that change from model to model."""
    code, out, _ = run(binary, "inspect", model, "--json")
    kinds = {e["kind"] for e in json.loads(out)["encodings"]} if code == 0 else set()
    first = sum(map(ord, str(model)))
    chosen = [KINDS[first % 4]]
    if "rope" in kinds:
        scale = "--scale yarn --factor 4 --original-length 64 --allow-rescale"
        yield scale.split()
    else:
        chosen.append(KINDS[(first + 1) % 4])
    for kind in chosen:
        yield ["--to", kind, *FLAGS.get(kind, [])]


def main(binary, folders):
    counts = collections.Counter()
    wrong = 0
    models = sorted(m for folder in folders for m in Path(folder).rglob("*.onnx"))
    for model in models:
        alone = {}
        for request in requests(binary, model):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out.onnx"
                code, _, _ = run(binary, "rewrite", model, "-o", out, *request)
                counts["rewrite", code] += 1
                if code != 0:
                    continue
                for provider, allowed in [("tract", {0, 4}), ("cpu", {0})]:
                    for pair in [[out], [model, out]]:
                        code, text, error = run(binary, "verify", *pair, "--provider", provider)
                        name = f"{provider}, {len(pair)} models"
                        if code not in allowed and provider not in alone:
                            alone[provider], _, _ = run(binary, "verify", model, "--provider", provider)
                        if code not in allowed and code == alone[provider]:
                            counts[name + ", as the original", code] += 1
                            continue
                        counts[name, code] += 1
                        if code not in allowed:
                            wrong += 1
                            last = (text + error).strip().splitlines()[-2:]
                            print(model, *request, name, code, *last, sep="\n  ")
    for (what, code), count in sorted(counts.items()):
        print(f"{what}: exit code {code}: {count}")
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
