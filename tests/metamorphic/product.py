"""The command line under test: what is asked of it, and how its answers are read."""

import json
import os
import re
import struct
import subprocess

import numpy as np

FAR = 4096  # limits from here on may be those of a constant that a mutation put in
SECONDS = 60  # a command that takes longer hangs
PARAMS = "{params}"  # stands for a file of random parameters in a command

PLAIN = [["--to", k] for k in ("none", "sinusoidal", "rope", "alibi", "kerple", "fire")] + [
    ["--to", "sinusoidal", "--layout", "half"],
    ["--to", "rope", "--theta", "500"],
    ["--to", "rope", "--layout", "interleaved"],
    ["--to", "learned", "--max-length", "80", "--params", PARAMS],
] + [["--to", k, "--params", PARAMS] for k in ("t5-bias", "relative-bias", "shaw", "transformer-xl", "conv")]
ROTARY = [["--scale", s, "--factor", "4"] for s in ("linear", "ntk", "proportional")] + [
    ["--scale", s, "--factor", "4", "--original-length", "16"] for s in ("dynamic", "yarn", "llama3")]
TABLES = [["--scale", s, "--factor", "2"] for s in ("linear", "cubic", "tile", "hierarchical")]


def commands(found):
    """Command lines that fit a model, by what `inspect` says of it."""
    kinds = {e["kind"] for e in found["encodings"]}
    asked = list(PLAIN)
    if "rope" in kinds:
        asked += ROTARY * 2
        pairs = max(e["params"]["rotary_dim"] // 2 for e in found["encodings"] if e["kind"] == "rope" and e["params"].get("rotary_dim"))
        factors = [",".join(str(f + i / 4) for i in range(pairs)) for f in (1, 3)]
        asked.append(["--scale", "longrope", "--factor", "4", "--original-length", "16", "--short-factor", factors[0], "--long-factor", factors[1]])
    if kinds & {"learned", "sinusoidal", "alibi", "t5-bias"}:
        asked += TABLES * 2
    return asked


def parameters(found, path):
    """Writes random learned parameters of every kind, in the sizes of the first attention site."""
    rng = np.random.default_rng(7)
    site = next((s for s in found["attention"] if s["heads"] and s["head_dim"]), None)
    if site is None:
        return
    h, d = site["heads"], site["head_dim"]
    shapes = {"position_embedding": (80, h * d), "relative_attention_bias": (32, h), "relative_bias": (17, h),
              "relative_key": (17, d), "relative_value": (17, d), "content_bias": (h, d), "position_bias": (h, d),
              "position_projection": (h * d, h * d), "weight": (h * d, 1, 3), "bias": (h * d,)}
    for name, shape in shapes.items():
        save_safetensors(f"{path}.{name}", {name: rng.standard_normal(shape).astype(np.float32) * 0.4})
    groups = {"learned": ["position_embedding"], "t5-bias": ["relative_attention_bias"], "relative-bias": ["relative_bias"],
              "shaw": ["relative_key", "relative_value"], "transformer-xl": ["content_bias", "position_bias", "position_projection"],
              "conv": ["weight", "bias"]}
    for kind, names in groups.items():
        save_safetensors(f"{path}.{kind}", {n: rng.standard_normal(shapes[n]).astype(np.float32) * 0.4 for n in names})


def save_safetensors(path, arrays):
    """Writes float32 arrays in the safetensors format."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in arrays.values()))


class Answer:
    """Exit status and words of one run."""

    def __init__(self, binary, arguments):
        try:
            done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=SECONDS, errors="replace")
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            self.code, self.out, self.err = None, "", "hangs"

    def crash(self):
        """'panic' or 'hang', or None."""
        if self.code is None:
            return "hang"
        return "panic" if self.code < 0 or self.code >= 101 else None

    def sentence(self):
        """The error, its names and numbers taken out."""
        lines = [line for line in self.err.splitlines() if line.startswith("error:")] or self.err.splitlines()[-1:] or self.out.splitlines()[-1:] or [""]
        text = re.sub(r"^error: (\S+\.onnx: )?", "", lines[0])
        text = re.sub(r"\[[^\]]*\]|`[^`]*`|\"[^\"]*\"|“[^”]*”", "…", text)
        text = re.sub(r"\S*[/_]\S*", "…", text)
        text = re.sub(r"-?\d[\d.,e+-]*", "N", text)
        return text[:150]


def inspect(binary, path):
    """The answer of `inspect --json`."""
    return Answer(binary, ["inspect", "--json", path])


def rewrite(binary, path, command, params, out):
    """The answer of `rewrite`."""
    kind = command[command.index("--to") + 1] if "--to" in command else ""
    arguments = [f"{params}.{kind}" if a == PARAMS else a for a in command]
    if os.path.exists(out):
        os.remove(out)
    return Answer(binary, ["rewrite", path, "-o", out, "-q", *arguments])


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return value


def findings(found):
    """What two spellings of one model must have in common."""
    encodings = [{k: _rounded(e[k]) for k in ("kind", "stack", "layers", "sites", "params", "max_length")} for e in found["encodings"]]
    for e in encodings:
        e["max_length"] = e["max_length"] if (e["max_length"] or FAR) < FAR else None
    attention = [{k: v for k, v in s.items() if k not in ("name", "form")} for s in found["attention"]]
    shortest = min((limit["length"] for limit in found["limits"] if limit["length"] < FAR), default=None)
    return {"encodings": sorted(encodings, key=json.dumps), "attention": attention, "limit": shortest}


def compared(want, got):
    """'equal', 'less, and says so' (another warning, an unknown entry, or parameters that are said to be inexact) or what
    differs."""
    a, b = findings(want), findings(got)
    if a == b:
        return "equal", ""
    detail = []
    for key in a:
        if a[key] != b[key]:
            detail.append(f"{key}: {_short(a[key], b[key])} became {_short(b[key], a[key])}")
    said = len(got["warnings"]) > len(want["warnings"])
    said = said or sum(e["kind"] == "unknown" for e in got["encodings"]) > sum(e["kind"] == "unknown" for e in want["encodings"])
    inexact = [sum(e["params"].get("exact") is False for e in found["encodings"] if e.get("params")) for found in (want, got)]
    said = said or inexact[1] > inexact[0]
    return ("less, and says so" if said else "findings differ"), "; ".join(detail)


def _short(here, there):
    if not isinstance(here, list):
        return json.dumps(here)
    only = [x for x in here if x not in there]
    return json.dumps(only if only else f"{len(here)} entries")[:400]
