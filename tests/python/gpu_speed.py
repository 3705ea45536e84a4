"""Time and memory of rewritten models on a GPU, beside the original and PyTorch's own export.

    gpu_speed.py MODEL LENGTHS PROVIDER

measures one model in a process of its own and prints JSON.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ARGUMENTS = ["--factor", "4", "--original-length", "8192", "--max-length", "32768"]
ONES, TWOS = ",".join(["1"] * 64), ",".join(["2"] * 64)
REWRITES = {
    "yarn": ["--scale", "yarn", *ARGUMENTS], "linear": ["--scale", "linear", *ARGUMENTS],
    "dynamic": ["--scale", "dynamic", *ARGUMENTS],
    "longrope": ["--scale", "longrope", *ARGUMENTS, "--short-factor", ONES, "--long-factor", TWOS],
    "alibi": ["--to", "alibi"], "sinusoidal": ["--to", "sinusoidal", "--max-length", "32768"]}


def used():
    """MiB of the first GPU that are in use by anyone."""
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True)
    return int(said.stdout.split()[0])


def measure(model, lengths, provider):
    """Milliseconds of a run (the median) and MiB that the process then holds, at every length."""
    import numpy
    import onnxruntime
    from gpu import session

    before = used()
    loaded = session(model, provider)
    for length in lengths:
        ids = numpy.random.default_rng(0).integers(1, 256, (1, length))
        binding = loaded.io_binding()
        binding.bind_ortvalue_input("input_ids", onnxruntime.OrtValue.ortvalue_from_numpy(ids, provider, 0))
        binding.bind_output("logits", provider)
        took, until = [], time.monotonic() + 1.0
        for run in range(200):
            start = time.perf_counter()
            loaded.run_with_iobinding(binding)
            binding.synchronize_outputs()
            if run > 2:
                took.append(time.perf_counter() - start)
            if len(took) > 6 and time.monotonic() > until:
                break
        yield {"length": length, "ms": 1000 * statistics.median(took), "mib": used() - before}


def rows(check, bundle, provider):
    models = {name: bundle / f"models/speed/{name}.onnx" for name in ("original", "native")}
    found = []
    for name, arguments in REWRITES.items():
        out = check.work / f"speed-{name}.onnx"
        code, _, errors = check.call("rewrite", models["original"], *arguments, "-o", out)
        if code:
            found.append({"model": name, "why": (errors or [""])[-1]})
        else:
            models[name] = out
    # The original again at the end: the difference is noise.
    for name, model in [*models.items(), ("original, again", models["original"])]:
        lengths = ",".join(map(str, LENGTHS))
        said = subprocess.run([sys.executable, __file__, str(model), lengths, provider],
                              capture_output=True, text=True, check=False)
        measured = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        found += [{"model": name} | row for row in measured]
        if said.returncode:
            found.append({"model": name, "why": " ".join(said.stderr.split())[-300:]})
    return found


def table(found):
    """Milliseconds and MiB by model and length."""
    if not found:
        return
    print("| model | " + " | ".join(f"{length:,}" for length in LENGTHS) + " |")
    print("| --- |" + " ---: |" * len(LENGTHS))
    for name in dict.fromkeys(row["model"] for row in found):
        of = {row["length"]: row for row in found if row["model"] == name and "length" in row}
        cells = [f"{of[n]['ms']:.2f} ms, {of[n]['mib']:,} MiB" if n in of else "–" for n in LENGTHS]
        print(f"| {name} | " + " | ".join(cells) + " |")
        for row in found:
            if row["model"] == name and row.get("why"):
                print(f"{name}: {row['why']}", file=sys.stderr)


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[2].split(",")]
    for line in measure(pathlib.Path(sys.argv[1]), sizes, sys.argv[3]):
        print(json.dumps(line), flush=True)
