"""`inspect` and `table`."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir
import pytest
from conftest import FIXTURES, Cli

import posenc_onnx as pe

MODELS = [
    "llama/dynamo",
    "llama/optimum",
    "gpt2/dynamo",
    "bert/dynamo",
    "bloom/dynamo",
    "gemma3-text/dynamo",
    "phi3-longrope/dynamo",
    "t5-encoder/dynamo",
    "vit/dynamo",
    "mini/shaw",
    "mini/none",
]


@pytest.mark.parametrize("model", [model for model in MODELS if (FIXTURES / model / "model.onnx").is_file()])
def test_the_report_is_the_json_of_the_command_line(model: str, cli: Cli) -> None:
    path = FIXTURES / model / "model.onnx"
    said = json.loads(cli("inspect", path, "--json").stdout)
    assert pe.inspect(path).to_dict() == said
    explained = json.loads(cli("inspect", path, "--json", "--explain", "--hash").stdout)
    assert pe.inspect(path, explain=True, hash=True).to_dict() == explained


def test_a_report_has_types() -> None:
    report = pe.inspect(FIXTURES / "llama" / "dynamo" / "model.onnx")
    rope = report.encodings[0]
    assert (rope.kind, rope.params["theta"], rope.layers) == ("rope", 10000.0, (0, 1))
    assert report.attention[0].causal
    assert report.limits == ()
    limits = pe.inspect(FIXTURES / "gpt2" / "dynamo" / "model.onnx").limits
    assert {limit.cause for limit in limits} == {"table", "causal-buffer"}
    with pytest.raises(AttributeError):
        rope.sites = 3  # type: ignore[misc]


def test_notebooks_show_a_table() -> None:
    shown = pe.inspect(FIXTURES / "gpt2" / "dynamo" / "model.onnx")._repr_html_()
    assert "<td>learned</td>" in shown and "<caption>Limits</caption>" in shown
    escaped = pe.Limit(length=3, cause="table", value="<b>")._repr_html_()
    assert "&lt;b&gt;" in escaped and "<b>" not in escaped


def test_a_model_is_a_path_bytes_or_a_proto() -> None:
    path = FIXTURES / "mini" / "rope" / "model.onnx"
    of_path = pe.inspect(path).encodings
    data = path.read_bytes()
    proto = onnx.load(path)
    through_ir = onnx_ir.to_proto(onnx_ir.from_proto(proto))
    for model in (str(path), data, bytearray(data), memoryview(data), proto, through_ir):
        assert pe.inspect(model).encodings == of_path, type(model)
    with pytest.raises(TypeError, match="and not int"):
        pe.inspect(3)  # type: ignore[arg-type]


def test_a_role_tells_what_an_input_is() -> None:
    path = FIXTURES / "llama-posids" / "torchscript" / "model.onnx"
    plain = pe.inspect(path)
    as_content = pe.inspect(path, input_role={"position_ids": "content"})
    assert as_content.encodings != plain.encodings
    with pytest.raises(pe.UsageError, match="no input of the model"):
        pe.inspect(path, input_role={"nowhere": "position"})


def test_a_table_is_that_of_the_command_line(cli: Cli, tmp_path: Path) -> None:
    flags = "table --scale yarn --factor 4 --rotary-dim 64 --original-length 4096 --format json".split()
    made = pe.table(scale="yarn", factor=4, rotary_dim=64, original_length=4096)
    assert made.to_dict() == json.loads(cli(*flags).stdout)
    assert (len(made.rows), made.length) == (32, 16384)
    assert "<caption>yarn</caption>" in made._repr_html_()
    config = {"rope_theta": 1e6, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}
    of_config = pe.table(hf_config=config)
    assert (of_config.theta, of_config.rotary_dim, of_config.length) == (1e6, 16, 128)
    with pytest.raises(pe.UsageError, match="`original_length`"):
        pe.table(scale="yarn", factor=4, rotary_dim=64)
    with pytest.raises(TypeError, match="unexpected keyword argument 'to'"):
        pe.table(to="rope")  # type: ignore[call-arg]
