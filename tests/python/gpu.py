"""Checks rewritten models on an NVIDIA GPU, against the processor and against formulas in f64.

    gpu.py BUNDLE [--seconds N] [--jobs N] [--out FOLDER]

BUNDLE is what `cargo xtask gpu-check` makes: the tool, `fixtures/`, `models/` (by `gpu_models.py`), and
`forms/` where there are some. Four parts:

- every scaling of RoPE, every target of a swap and every longer table, in float32, float16 and bfloat16, in
  plain and in fused operators: `verify` compares every encoding with its formula, on CUDA and on the
  processor; where PyTorch's outputs are at hand, ONNX Runtime's on CUDA are compared with them;
- cosines and sines of 131,072 tokens against formulas that share no code with the tool;
- controls: a changed number in a rewritten model, and outputs under another factor, must be told;
- time and memory of a rewritten model, beside the original and PyTorch's own export of the same function.

Prints tables, as in docs/gpu.md, and writes FOLDER/gpu.json. Exit 1: something failed; 5: there is no GPU.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import time

UNAVAILABLE = 5
CUDA = "CUDAExecutionProvider"


def scalings(pairs):
    """The arguments of each scaling of RoPE with so many pairs."""
    ones = ",".join("1" for _ in range(pairs))
    growing = ",".join(f"{1 + pair / 2}" for pair in range(pairs))
    plain = ("linear", "ntk", "dynamic", "yarn", "llama3", "proportional")
    found = {name: ["--scale", name, "--factor", "4", "--original-length", "64"] for name in plain}
    found["alpha"] = ["--scale", "alpha", "--alpha", "4"]
    found["longrope"] = ["--scale", "longrope", "--factor", "4", "--original-length", "64",
                         "--short-factor", ones, "--long-factor", growing]
    return found


TARGETS = {
    "none": ["--to", "none"], "sinusoidal": ["--to", "sinusoidal"],
    "sinusoidal-concat": ["--to", "sinusoidal", "--layout", "half"],
    "learned": ["--to", "learned"], "rope": ["--to", "rope"],
    "rope-interleaved": ["--to", "rope", "--layout", "interleaved"],
    "rope-partial": ["--to", "rope", "--rotary-dim", "8"], "alibi": ["--to", "alibi"],
    "t5": ["--to", "t5-bias"], "relative-clipped": ["--to", "relative-bias"],
    "shaw": ["--to", "shaw"], "transformer-xl": ["--to", "transformer-xl"], "conv": ["--to", "conv"]}
PARAMS = {
    "learned": {"pos.weight": "position_embedding"}, "t5": {"table.weight": "relative_attention_bias"},
    "relative-clipped": {"table.weight": "relative_bias"},
    "shaw": {"rel_k.weight": "relative_key", "rel_v.weight": "relative_value"},
    "transformer-xl": {"u": "content_bias", "v": "position_bias", "w_r.weight": "position_projection"},
    "conv": {"conv.weight": "weight", "conv.bias": "bias"}}


class Case:
    """A rewrite: its name, the model, the arguments, and what PyTorch computes, if that is known.

    `native` is PyTorch's export of the same function: in half types, its error is the measure.
    """

    def __init__(self, part, name, model, arguments, wanted=None, native=None, batch=None):
        self.part, self.name, self.model = part, name, model
        self.arguments, self.wanted, self.native = arguments, wanted, native
        self.batch = batch  # of PyTorch's runs, where the model does not run all of it


def cases(bundle, work):
    """All cases, those that say most first."""
    models, fixtures, forms = bundle / "models/mini", bundle / "fixtures", bundle / "forms"
    for dtype in ("float32", "float16", "bfloat16"):
        for layout in ("rope", "rope-interleaved", "rope-partial"):
            model = models / dtype / layout / "model.onnx"
            pairs = 4 if layout == "rope-partial" else 8
            for name, arguments in scalings(pairs).items():
                yield Case(f"rescale {dtype}", f"{layout}, {name}", model, arguments)
        for target, arguments in TARGETS.items():
            extra = parameters(models / dtype / target, target, work / f"{dtype}-{target}.safetensors")
            source = "alibi" if target.startswith("rope") else "rope"
            native = models / dtype / target
            yield Case(f"swap {dtype}", f"{source} to {target}", models / dtype / source / "model.onnx",
                       arguments + extra, native / "oracle.npz", native / "model.onnx")
    for export in ("dynamo", "torchscript", "dynamo23", "fp16", "ort-O2"):
        folder = fixtures / "llama" / export
        for oracle in sorted((fixtures / "llama").glob("oracle_*.json")):
            config = json.loads((folder / "config.json").read_text())
            config |= json.loads(oracle.read_text())["config"]
            path = work / f"{export}-{oracle.stem}.json"
            path.write_text(json.dumps(config))
            yield Case(f"Llama, {export}", oracle.stem.removeprefix("oracle_"), folder / "model.onnx",
                       ["--to", "rope", "--hf-config", str(path)], oracle.with_suffix(".safetensors"),
                       batch=1 if export == "dynamo23" else None)
    for oracle in sorted(fixtures.glob("*/extend_*.json")):
        family = oracle.parent.name
        yield Case("longer tables", f"{family}, {oracle.stem.removeprefix('extend_')}",
                   oracle.parent / "dynamo/model.onnx", json.loads(oracle.read_text())["args"],
                   oracle.with_suffix(".safetensors"))
    for truth in sorted(forms.glob("*/**/truth.json")):
        said = json.loads(truth.read_text())
        ropes = [e for e in said.get("encodings", []) if e["kind"] == "rope"]
        if not ropes or any(e.get("scaling") for e in ropes):
            continue
        name = "/".join(truth.parts[truth.parts.index("forms") + 1:-1])
        for scale in ("linear", "yarn", "llama3"):
            yield Case("fused and quantized forms", f"{name}, {scale}", truth.parent / "model.onnx",
                       scalings(8)[scale])


def parameters(folder, encoding, path):
    """The learned numbers of a target as `--params` takes them."""
    import numpy
    from safetensors.numpy import save_file

    names = PARAMS.get(encoding)
    if not names:
        return []
    stored = numpy.load(folder / "encoding_params.npz")
    arrays = {names[key]: stored[key] for key in stored if key in names}
    squeezed = {k: v[:, 0] if v.ndim == 3 and k.endswith("_bias") else v for k, v in arrays.items()}
    save_file({k: numpy.ascontiguousarray(v, dtype=numpy.float32) for k, v in squeezed.items()}, path)
    return ["--params", str(path)]


def wanted(path):
    """Feeds and output of every case of PyTorch's run."""
    import numpy
    from safetensors.numpy import load_file

    found = {}
    if path.suffix == ".npz":
        for key, value in numpy.load(path).items():
            case, name = key.split(".", 1)
            found.setdefault(case, ({}, []))
            if name == "logits":
                found[case][1].append(value)
            else:
                found[case][0][name] = value
    else:
        for key, value in load_file(path).items():
            parts = key.split("/")
            found.setdefault(parts[0], ({}, []))
            if parts[1] == "input":
                found[parts[0]][0][parts[2]] = value
            elif parts[1] == "output":
                found[parts[0]][1].append(value)
    return found


def session(path, provider):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    chosen = [(CUDA, {"use_tf32": "0"})] if provider == "cuda" else []
    return onnxruntime.InferenceSession(str(path), options, [*chosen, "CPUExecutionProvider"])


def farthest(model, reference, provider, batch=None):
    """The largest error against PyTorch, as a part of the largest output (1 at least)."""
    import numpy

    loaded = session(model, provider)
    if provider == "cuda" and loaded.get_providers()[0] != CUDA:
        raise RuntimeError("ONNX Runtime fell back to the processor")
    taken, far = {i.name for i in loaded.get_inputs()}, 0.0
    for feeds, outputs in wanted(reference).values():
        feeds = {k: v for k, v in feeds.items() if k in taken}
        if "position_ids" in taken:
            ids = feeds["input_ids"]
            feeds["position_ids"] = numpy.broadcast_to(numpy.arange(ids.shape[1]), ids.shape).copy()
        if "token_type_ids" in taken:
            feeds["token_type_ids"] = numpy.zeros_like(feeds["input_ids"])
        feeds, outputs = {k: v[:batch] for k, v in feeds.items()}, [v[:batch] for v in outputs]
        got = loaded.run(None, feeds)[0].astype(numpy.float64)
        want = outputs[0].astype(numpy.float64)
        if got.shape != want.shape or not numpy.isfinite(got).all():
            return float("inf")
        far = max(far, float(numpy.abs(got - want).max() / max(1.0, numpy.abs(want).max())))
    return far


class Check:
    """Runs cases with the tool of a bundle."""

    def __init__(self, bundle, work, provider, deadline):
        self.tool = str(bundle / "posenc-onnx")
        self.work, self.provider, self.deadline = work, provider, deadline

    def call(self, *arguments):
        left = max(5.0, self.deadline - time.monotonic())
        done = subprocess.run([self.tool, *map(str, arguments)], capture_output=True, text=True,
                              timeout=min(left, 120), check=False)
        return done.returncode, done.stdout, done.stderr.strip().splitlines()

    def verified(self, path, providers):
        flags = [word for provider in providers for word in ("--provider", provider)]
        code, out, errors = self.call("verify", path, *flags, "--json")
        return code, json.loads(out) if code in (0, 1) else None, errors[-1:] or [""]

    def run(self, number, case):
        row = {"part": case.part, "name": case.name, "state": "ok", "why": ""}
        if time.monotonic() > self.deadline:
            return row | {"state": "not run", "why": "out of time"}
        try:
            self.fill(row, self.work / f"{number}.onnx", case)
        except (OSError, ValueError, RuntimeError, subprocess.TimeoutExpired) as error:
            row |= {"state": "failed", "why": f"{type(error).__name__}: {error}"}
        except Exception as error:  # ONNX Runtime's errors share no class
            row |= {"state": "failed", "why": str(error)}
        row["why"] = " ".join(row["why"].split())[:300]
        return row

    def fill(self, row, out, case):
        code, _, errors = self.call("rewrite", case.model, *case.arguments, "-o", out)
        if code:
            row |= {"state": "refused" if code == 4 else "failed", "why": (errors or [""])[-1]}
            return
        here = self.provider
        code, report, errors = self.verified(out, [here] if here == "cpu" else ["cpu", here])
        if report is None and here != "cpu":  # the processor has no kernels for some types
            row["cpu"] = errors[0]
            code, report, errors = self.verified(out, [here])
        if report is None:
            # Nothing is wrong with the rewrite only where the original does not run, either.
            original, _, _ = self.verified(case.model, [here])
            state = "failed" if original in (0, 1) else "cannot run"
            row |= {"state": state, "why": errors[0]}
            return
        compared = [s for s in report["sites"] if s["bound"]]
        row["formula"] = max((s["max_error"] / s["bound"] for s in compared), default=None)
        row["comparisons"] = len(report["sites"]) + len(report["runs"])
        for run in report["runs"]:
            if run["provider"] == here:
                for name, count in (run["placement"] or {}).items():
                    row.setdefault("placement", {}).setdefault(name, 0)
                    row["placement"][name] += count
        if code:
            wrong = [s for s in report["sites"] + report["runs"] if not s["ok"]]
            row |= {"state": "failed", "why": f"verify: {json.dumps(wrong[:1])}"}
            return
        if case.wanted:
            row["pytorch"] = farthest(out, case.wanted, here, case.batch)
            half = "16" in case.part or "16" in str(case.model)
            bound = (1e-1 if "bfloat16" in case.part else 2e-2) if half else 2e-4
            if half and case.native:
                # A half type is as far from f32 as the export of the same function is.
                try:
                    row["native"] = farthest(case.native, case.wanted, here)
                    bound = 2 * row["native"] + 1e-3
                except Exception as error:  # exporters write operators that have no such type
                    row["native"] = str(error)
            if not row["pytorch"] <= bound:
                row |= {"state": "failed", "why": f"{row['pytorch']:.2g} from PyTorch, over {bound:.2g}"}

    def controls(self, bundle):
        """Wrong models, and what tells them."""
        import numpy
        import onnx

        for dtype in ("float32", "float16", "bfloat16"):
            out = self.work / f"control-{dtype}.onnx"
            source = bundle / f"models/mini/{dtype}/rope/model.onnx"
            code, _, errors = self.call("rewrite", source, *scalings(8)["yarn"], "-o", out)
            model = onnx.load(out)
            known = {t.name: t.SerializeToString() for t in onnx.load(source).graph.initializer}
            new = [t for t in model.graph.initializer
                   if known.get(t.name) != t.SerializeToString() and t.data_type == 1]
            table = max(new, key=lambda t: numpy.prod(t.dims))
            values = onnx.numpy_helper.to_array(table).copy()
            values.flat[values.size // 2] *= 1.2
            table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
            onnx.save(model, out)
            code, report, _ = self.verified(out, [self.provider])
            sites = report["sites"] if report else []
            # What is read off the file fails too; the control is of numbers that were run.
            told = [s["quantity"] for s in sites if not s["ok"] and s["quantity"] in ("cos", "sin", "q", "k")]
            yield {"part": "controls", "name": f"a frequency 20% off, {dtype}",
                   "state": "ok" if code == 1 and told else "failed",
                   "why": f"verify exits {code}: {', '.join(sorted(set(told)))}"}
        out = self.work / "control.onnx"
        self.call("rewrite", bundle / "fixtures/llama/dynamo/model.onnx", "--scale", "yarn",
                  "--factor", "3", "--original-length", "64", "-o", out)
        far = farthest(out, bundle / "fixtures/llama/oracle_yarn.safetensors", self.provider)
        yield {"part": "controls", "name": "factor 3 against PyTorch's 4", "pytorch": far,
               "state": "ok" if far > 2e-4 else "failed", "why": ""}


def libraries():
    """The folders of NVIDIA's libraries in the Python packages, for the loader."""
    folders = {sysconfig.get_paths()["purelib"], *sys.path}
    found = [p for f in folders if f for p in glob.glob(os.path.join(f, "nvidia", "*", "lib"))]
    return ":".join([*sorted(set(found)), os.environ.get("LD_LIBRARY_PATH", "")])


def device():
    query = "name,driver_version,memory.total"
    try:
        said = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
                              capture_output=True, text=True, check=False)
        return said.stdout.strip() or "no GPU"
    except OSError:
        return "no GPU"


def table(rows):
    """A line of Markdown for each part."""
    print("| part | ok | refused | cannot run | failed | not run | of the bound | PyTorch | nodes on CUDA |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for part in dict.fromkeys(row["part"] for row in rows):
        of = [row for row in rows if row["part"] == part]
        count = lambda state: sum(row["state"] == state for row in of)
        most = lambda key: max((row[key] for row in of if row.get(key) is not None), default=None)
        shown = lambda value: "" if value is None else f"{value:.2g}"
        placed = {}
        for row in of:
            for name, nodes in row.get("placement", {}).items():
                placed[name] = placed.get(name, 0) + nodes
        share = f"{100 * placed.get(CUDA, 0) / sum(placed.values()):.0f}%" if placed else ""
        states = " | ".join(str(count(s)) for s in ("ok", "refused", "cannot run", "failed", "not run"))
        print(f"| {part} | {states} | {shown(most('formula'))} | {shown(most('pytorch'))} | {share} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("--provider", default="cuda", help="cpu tries the script where there is no GPU")
    parser.add_argument("--seconds", type=float, default=3600, help="no new case starts after so many")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-check"))
    args = parser.parse_args()
    start, bundle = time.monotonic(), args.bundle.resolve()
    packages = bundle / "packages"
    if "GPU_CHECK_STARTED" not in os.environ:  # the loader reads its paths once, when a process starts
        environment = os.environ | {
            "GPU_CHECK_STARTED": "1", "LD_LIBRARY_PATH": libraries(),
            "ORT_DYLIB_PATH": str(packages / "onnxruntime/capi"),
            "PYTHONPATH": f"{packages}:{os.environ.get('PYTHONPATH', '')}"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
    import gpu_long
    import gpu_speed

    said = subprocess.run([str(bundle / "posenc-onnx"), "runtime", "--json"], capture_output=True,
                          text=True, check=True)
    found = next(r for r in json.loads(said.stdout)["runtimes"] if r["name"] == "onnxruntime")
    state = next((p for p in found["providers"] if p["name"] == args.provider), {"missing": found["missing"]})
    if state["missing"]:
        print(f"nothing was checked: {state['missing']}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    print(f"{device()}; ONNX Runtime {found['version']}; {time.strftime('%Y-%m-%d')}", flush=True)
    work = args.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    check = Check(bundle, work, args.provider, start + args.seconds)
    rows = list(check.controls(bundle))
    rows += gpu_long.rows(check, bundle, args.provider)
    print(f"{time.monotonic() - start:.0f} s: controls and long tables", flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        listed = list(cases(bundle, work))
        rows += pool.map(check.run, range(len(listed)), listed)
    print(f"{time.monotonic() - start:.0f} s: {len(listed)} rewrites", flush=True)
    for row in rows:
        if row["state"] in ("failed", "cannot run", "refused"):
            print(f"{row['state']}: {row['part']}: {row['name']}: {row['why']}")
    table(rows)
    times = gpu_speed.rows(check, bundle, args.provider) if args.provider == "cuda" else []
    gpu_speed.table(times)
    (args.out / "gpu.json").write_text(json.dumps({
        "device": device(), "onnxruntime": found["version"], "rows": rows, "times": times}, indent=1))
    print(f"{time.monotonic() - start:.0f} s in all")
    sys.exit(any(row["state"] in ("failed", "not run") for row in rows))


if __name__ == "__main__":
    main()
