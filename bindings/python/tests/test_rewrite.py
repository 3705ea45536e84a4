"""`plan`, `rewrite` and their results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from conftest import FIXTURES, Cli

import posenc_onnx as pe

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "yarn": ("llama/dynamo", {"scale": "yarn", "factor": 4}, "--scale yarn --factor 4"),
    "a parameter of a law": (
        "llama/torchscript",
        {"scale": "yarn", "factor": 2.5, "beta_fast": 31, "no_truncate": True},
        "--scale yarn --factor 2.5 --beta-fast 31 --no-truncate",
    ),
    "theta": ("llama/optimum", {"theta": 5e5}, "--theta 5e5"),
    "one layer": ("gemma3-text/dynamo", {"theta": 5e5, "layers": [0]}, "--theta 5e5 --layers 0"),
    "a form": ("llama/torchscript", {"form": "onnx"}, "--form onnx"),
    "a longer table": (
        "gpt2/dynamo",
        {"scale": "cubic", "max_length": 128, "align_corners": True},
        "--scale cubic --max-length 128 --align-corners",
    ),
    "alibi": ("bert/dynamo", {"to": "alibi", "bidirectional": False}, "--to alibi --bidirectional=false"),
    "no encoding": ("gpt2/dynamo", {"to": "none"}, "--to none"),
    "a seed": ("bert/dynamo", {"to": "t5-bias", "num_buckets": 16, "seed": 7}, "--to t5-bias --num-buckets 16 --seed 7"),
    "images": ("vit/dynamo", {"image_size": (48, 48), "antialias": True}, "--image-size 48x48 --antialias"),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_and_report_are_those_of_the_command_line(name: str, cli: Cli, tmp_path: Path) -> None:
    fixture, keywords, flags = CASES[name]
    folder = FIXTURES / fixture
    if not (folder / "model.onnx").is_file():
        pytest.skip(f"there is no fixture {fixture}")
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    for file in folder.iterdir():
        if file.name in ("model.onnx", "model.onnx.data", "config.json"):
            shutil.copy(file, tmp_path)
    ran = cli("rewrite", path, *flags.split(), "-o", out, "--json")
    assert ran.returncode == 0, ran.stderr
    expected = out.read_bytes()
    out.unlink()
    done = pe.rewrite(path, **keywords)
    assert done.to_bytes() == expected
    assert done.save(out).to_dict() == json.loads(ran.stdout)
    assert out.read_bytes() == expected


def test_a_plan_shows_what_changes_and_can_be_applied_twice(llama: Path) -> None:
    plan = pe.plan(llama, scale="yarn", factor=4)
    assert "yarn factor=4 original_length=64" in str(plan)
    assert repr(plan) == "<posenc_onnx.Plan: rescale the rotations of 2 sites>"
    assert [edit.to["params"]["scaling"]["type"] for edit in plan.edits] == ["yarn", "yarn"]
    assert plan.max_length == 256
    assert plan.inferred[0].source == "config.json next to the model"
    assert "<td>original-length</td>" in plan._repr_html_()
    assert plan.apply().to_bytes() == plan.apply().to_bytes()


def test_a_result_is_checked_and_a_proto(llama: Path) -> None:
    done = pe.rewrite(llama, scale="yarn", factor=4, verify=True)
    assert done.check is not None and done.check.ok
    assert 0 < (done.check.max_error or 0) <= done.check.bound
    proto = done.to_proto()
    onnx.checker.check_model(proto)
    assert proto.SerializeToString() == onnx.load_model_from_string(done.to_bytes()).SerializeToString()
    again = pe.inspect(onnx_ir.to_proto(onnx_ir.from_proto(proto)))
    assert again.encodings[0].params["scaling"]["type"] == "yarn"
    assert "new-function" in done._repr_html_()


def test_a_result_out_of_its_bound_is_not_handed_out(llama: Path) -> None:
    report = pe.rewrite(llama, scale="linear", factor=2).report.to_dict()
    report["check"] |= {"max_error": 0.5, "bound": 0.1, "ok": False}
    # What the extension would give, were a result wrong.
    done = pe.Rewritten(SimpleNamespace(report=json.dumps(report)))  # type: ignore[arg-type]
    assert done.check is not None and not done.check.ok
    for hand_out in (done.to_bytes, done.to_proto, lambda: done.save(llama.with_name("out.onnx"))):
        with pytest.raises(pe.CheckFailed, match="by 0.5, more than 0.1"):
            hand_out()


def test_slopes_are_an_array(llama: Path) -> None:
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    done = pe.rewrite(onnx.load(llama), to="alibi", params={"slopes": slopes})
    assert done.report.edits[0].to["params"]["slopes"] == slopes.tolist()
    # As a parameter, and in another type.
    assert pe.rewrite(llama, to="alibi", slopes=slopes).report.edits == done.report.edits
    half = pe.rewrite(llama, to="alibi", params={"slopes": slopes.astype(np.float16)})
    assert half.report.edits == done.report.edits
    with pytest.raises(pe.UsageError, match="slops"):
        pe.plan(llama, to="alibi", params={"slops": slopes})
    with pytest.raises(pe.UsageError, match="no floats"):
        pe.plan(llama, to="alibi", params={"slopes": np.array(["steep"])})


def test_arrays_are_what_a_safetensors_file_holds(gpt2: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((96, 64), dtype=np.float32)
    done = pe.rewrite(gpt2, to="learned", max_length=96, params={"position_embedding": table})
    file = gpt2.with_name("table.safetensors")
    head = json.dumps({"position_embedding": {"dtype": "F32", "shape": [96, 64], "data_offsets": [0, table.nbytes]}})
    file.write_bytes(len(head).to_bytes(8, "little") + head.encode() + table.tobytes())
    assert pe.rewrite(gpt2, to="learned", max_length=96, params=file).to_bytes() == done.to_bytes()
    turned = pe.rewrite(gpt2, to="learned", max_length=96, params={"position_embedding": np.asfortranarray(table)})
    assert turned.to_bytes() == done.to_bytes()


def test_a_longer_table_runs_in_onnxruntime(gpt2: Path) -> None:
    done = pe.rewrite(gpt2, scale="linear", max_length=128)
    assert min(limit.length for limit in done.report.limits.after) == 128
    session = onnxruntime.InferenceSession(done.to_bytes(), providers=["CPUExecutionProvider"])
    ids = np.zeros((1, 100), dtype=np.int64)
    feeds = {port.name: ids if "ids" in port.name else np.ones_like(ids) for port in session.get_inputs()}
    assert session.run(None, feeds)[0].shape[:2] == (1, 100)


def test_a_config_is_followed_and_written(llama: Path) -> None:
    config = json.loads(llama.with_name("config.json").read_text())
    config["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    done = pe.rewrite(llama, hf_config=config)
    assert done.report.edits[0].to["params"]["scaling"] == {"type": "linear", "factor": 2.0}
    described = SimpleNamespace(to_dict=lambda: config)
    assert pe.rewrite(llama, hf_config=described).to_bytes() == done.to_bytes()
    plain = json.loads(llama.with_name("config.json").read_text())
    assert done.config(plain)["rope_scaling"]["factor"] == 2.0
    out = llama.parent / "out" / "model.onnx"
    out.parent.mkdir()
    report = pe.rewrite(llama, scale="linear", factor=2, write_config=True).save(out)
    assert json.loads(out.with_name("config.json").read_text())["rope_scaling"]["factor"] == 2.0
    assert [Path(file.path) for file in report.configs] == [out.with_name("config.json")]


def test_the_input_is_replaced_on_request_only(llama: Path) -> None:
    done = pe.rewrite(llama, scale="linear", factor=2)
    with pytest.raises(pe.UsageError, match="`in_place`"):
        done.save(llama)
    done.save(llama, in_place=True)
    assert llama.read_bytes() == done.to_bytes()


def test_tensors_in_other_files_go_along(llama: Path) -> None:
    folder = llama.parent / "split"
    folder.mkdir()
    split = folder / "model.onnx"
    proto = onnx.load(llama)
    onnx.save(proto, split, save_as_external_data=True, location="model.data", size_threshold=1024)
    done = pe.rewrite(split, scale="linear", factor=2)
    whole = done.to_proto()
    assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in whole.graph.initializer)
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.get_outputs()
    report = done.save(llama.parent / "moved.onnx", external_data="inline")
    assert report.output is not None and Path(report.output.path).stat().st_size > split.stat().st_size
    # In memory, nobody knows where the files are.
    with pytest.raises(pe.InvalidModel, match="the model has no path"):
        pe.rewrite(split.read_bytes(), to="t5-bias").save(llama.parent / "absent.onnx")
