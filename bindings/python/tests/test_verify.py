"""`verify`, and runtimes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli

import posenc_onnx as pe
from posenc_onnx import _inputs


def test_a_pair_is_verified_in_the_onnxruntime_of_this_environment(llama: Path, cli: Cli) -> None:
    out = llama.with_name("long.onnx")
    pe.rewrite(llama, scale="yarn", factor=4).save(out)
    report = pe.verify(llama, out, providers=["cpu"], lengths=[1, 9])
    assert report.ok
    report.ensure_ok()
    assert {run.runtime for run in report.runs} == {"onnxruntime"}
    # Tokens are moved at a length of their own.
    assert {run.length for run in report.runs if run.padding == "right"} == {1, 9}
    ran = cli("verify", llama, out, "--provider", "tract", "--lengths", "1,9", "--json")
    assert pe.verify(llama, out, providers=["tract"], lengths=[1, 9]).to_dict() == json.loads(ran.stdout)


def test_a_difference_is_in_the_report(llama: Path) -> None:
    proto = pe.rewrite(llama, scale="linear", factor=2).to_proto()
    # Without its record, it is a model of its own.
    del proto.metadata_props[:]
    report = pe.verify(llama, proto, providers=["tract"], lengths=[8])
    assert not report.ok
    with pytest.raises(pe.CheckFailed, match="out of its bound"):
        report.ensure_ok()
    assert "<td>no</td>" in report._repr_html_()


def test_inputs_are_arrays_or_a_file(llama: Path) -> None:
    arrays = {"input_ids": np.arange(12).reshape(1, 12), "attention_mask": np.ones((1, 12), dtype=np.int64)}
    report = pe.verify(llama, llama, providers=["tract"], inputs=arrays)
    assert report.ok and {run.length for run in report.runs} == {12}
    file = llama.with_name("inputs.npz")
    np.savez(file, **arrays)  # type: ignore[arg-type]
    assert pe.verify(llama, llama, providers=["tract"], inputs=file) == report
    with pytest.raises(pe.NotFound, match="absent.npz"):
        pe.verify(llama, inputs="absent.npz")


def test_an_absent_provider_is_an_error_of_its_own(llama: Path) -> None:
    with pytest.raises(pe.ProviderUnavailable, match="NoSuchExecutionProvider"):
        pe.verify(llama, providers=["NoSuchExecutionProvider"])
    with pytest.raises(pe.UsageError, match="known are cpu, cuda"):
        pe.verify(llama, providers=["gpu"])


def test_without_onnxruntime_the_embedded_runtime_checks(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_inputs, "onnxruntime", lambda: None)
    done = pe.rewrite(llama, scale="yarn", factor=4, verify=True)
    assert done.check is not None and done.check.ok
    with pytest.raises(pe.ProviderUnavailable, match="pip install onnxruntime"):
        pe.verify(llama, providers=["cpu"])
    runs = pe.verify(llama, lengths=[4]).runs
    assert {run.runtime for run in runs} == {"tract"}
