"""From a model of transformers to optimum's runtime: exports a small random Llama with its cache by optimum, gives the
whole folder YaRN, and continues a prompt beyond the old length as PyTorch does under the new `config.json`. Needs torch,
transformers and optimum-onnx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.onnx import main_export
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

STEPS = 12


def tokens(model: Any, prompt: torch.Tensor) -> list[int]:
    mask = torch.ones_like(prompt)
    settings = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0}
    longer = model.generate(prompt, attention_mask=mask, **settings)
    continued: list[int] = longer[0, prompt.shape[1] :].tolist()
    return continued


def main(work: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    saved, exported, longer = work / "saved", work / "exported", work / "longer"
    model.save_pretrained(saved)
    main_export(str(saved), exported, task="text-generation-with-past", do_validation=False)

    command: list[str | Path] = [sys.executable, "-m", "posenc_onnx", "rewrite", exported, "-o", longer, "--scale", "yarn", "--factor", "4"]
    subprocess.run(command, check=True)

    scaled = LlamaForCausalLM(AutoConfig.from_pretrained(longer)).eval()
    scaled.load_state_dict(model.state_dict())
    prompt = torch.randint(3, 99, (1, 90), generator=torch.Generator().manual_seed(1))
    want, got = tokens(scaled, prompt), tokens(ORTModelForCausalLM.from_pretrained(longer), prompt)
    assert got == want, (got, want)
    assert tokens(ORTModelForCausalLM.from_pretrained(exported), prompt) != want, "the scaling changes nothing"
    print(f"{STEPS} tokens after {prompt.shape[1]} as PyTorch continues: {got}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
