"""From PyTorch to ONNX Runtime: exports a small decoder with RoPE, gives it linear scaling, and compares the outputs
with those of PyTorch's own model with that scaling. Needs torch, onnxscript and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import posenc_onnx as pe

HEADS, HEAD_DIM, VOCABULARY, THETA = 4, 16, 50, 10_000.0


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = HEADS * HEAD_DIM
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, HEADS, HEAD_DIM)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = (rotated(part, cos, sin) for part in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return mixed


class Decoder(nn.Module):
    """`factor` is that of linear scaling: positions are divided by it."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HEADS * HEAD_DIM)
        self.layers = nn.ModuleList(Attention() for _ in range(2))
        self.head = nn.Linear(HEADS * HEAD_DIM, VOCABULARY)
        frequencies = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM) / factor
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], dtype=torch.float32)
        angles = torch.outer(positions, self.frequencies)  # type: ignore[arg-type]
        angles = torch.cat((angles, angles), dim=-1)
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer(x, angles.cos(), angles.sin())
        logits: Tensor = self.head(x)
        return logits


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def exported(model: nn.Module) -> Any:
    ids = torch.randint(VOCABULARY, (1, 8))
    shapes = {"ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    program = torch.onnx.export(model, (ids,), dynamo=True, dynamic_shapes=shapes, input_names=["ids"])
    assert program is not None
    return program.model_proto


def main() -> None:
    torch.manual_seed(0)
    model, scaled = Decoder().eval(), Decoder(factor=2.0).eval()
    scaled.load_state_dict(model.state_dict())

    proto = exported(model)
    done = pe.rewrite(proto, scale="linear", factor=2)
    print(done, done.check)

    session = onnxruntime.InferenceSession(done.to_bytes(), providers=["CPUExecutionProvider"])
    ids = torch.randint(VOCABULARY, (2, 100))
    (got,) = session.run(None, {"ids": ids.numpy()})
    with torch.no_grad():
        want, before = scaled(ids).numpy(), model(ids).numpy()
    error = np.abs(got - want).max()
    assert error < 1e-5, error
    assert np.abs(before - want).max() > 1e-2, "the scaling changes nothing"
    print(f"within {error:.1e} of PyTorch's model with that scaling")

    # Learned values may be tensors.
    alibi = pe.rewrite(proto, to="alibi", params={"slopes": 2.0 ** -torch.arange(1, HEADS + 1)})
    print(alibi, alibi.check)


if __name__ == "__main__":
    main()
