"""Errors by exit codes, and keywords."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import FIXTURES, Cli

import posenc_onnx as pe
from posenc_onnx import _native


def test_each_error_is_that_of_the_exit_code(llama: Path, cli: Cli) -> None:
    scaled = FIXTURES / "llama-yarn" / "torchscript" / "model.onnx"
    none = FIXTURES / "mini" / "none" / "model.onnx"
    cycle = FIXTURES / "bad" / "cycle.onnx"
    cases: list[tuple[type[pe.Error], Path, str]] = [
        (pe.UsageError, scaled, "linear"),
        (pe.InvalidModel, cycle, "yarn"),
        (pe.NotFound, llama.with_name("absent.onnx"), "yarn"),
        (pe.Unsupported, none, "yarn"),
    ]
    for kind, path, scale in cases:
        code = cli("rewrite", path, "--scale", scale, "--dry-run").returncode
        with pytest.raises(pe.Error) as raised:
            pe.rewrite(path, scale=scale)  # type: ignore[arg-type]
        assert type(raised.value) is kind, raised.value
        assert kind.exit_code == code, path
        assert path.name in str(raised.value) or kind is pe.Unsupported
    assert issubclass(pe.UsageError, ValueError) and issubclass(pe.NotFound, FileNotFoundError)


def test_every_broken_file_is_an_error_or_a_report() -> None:
    refused = 0
    for path in sorted((FIXTURES / "bad").glob("*.onnx")):
        try:
            pe.inspect(path)
        except (pe.InvalidModel, pe.Unsupported, pe.NotFound) as why:
            assert path.name in str(why), path
            refused += 1
    assert refused > 30


def test_messages_name_keywords() -> None:
    scaled = FIXTURES / "llama-yarn" / "torchscript" / "model.onnx"
    with pytest.raises(pe.UsageError, match="give `allow_rescale`"):
        pe.plan(scaled, scale="linear")
    with pytest.raises(pe.UsageError, match="`factor`: invalid type"):
        pe.plan(scaled, factor="four")  # type: ignore[arg-type]
    with pytest.raises(pe.UsageError, match='"jarn" is no scaling; known are none, linear'):
        pe.plan(scaled, scale="jarn")  # type: ignore[arg-type]
    with pytest.raises(pe.UsageError, match="`dynamic`: it is either true or false"):
        pe.plan(scaled, dynamic=3)  # type: ignore[arg-type]


def test_an_unknown_keyword_names_near_ones() -> None:
    with pytest.raises(TypeError, match=r"plan\(\) got an unexpected keyword argument 'orginal_length'; did you mean 'original_length'"):
        pe.plan("model.onnx", orginal_length=64)  # type: ignore[call-arg]


def test_keywords_are_the_flags_of_rewrite(cli: Cli) -> None:
    text = cli("rewrite", "--help").stdout
    flags = {word.strip(" ,.").partition("=")[0][2:] for word in text.replace("[", " ").split() if word.startswith("--")}
    output = {"output", "only", "except", "drop", "in-place", "external-data", "dry-run", "diff", "verify", "json"}
    other = {"color", "quiet", "verbose", "help"}
    keywords = {name.replace("_", "-") for name, *_ in _native.options()}
    assert {flag for flag in flags if flag} - output - other <= keywords
    assert keywords - flags == {"model-config"}


def test_nothing_is_the_same_as_none(llama: Path) -> None:
    plan = pe.plan(llama, scale="linear", factor=2, theta=None, dynamic=False, align_corners=False)
    assert str(plan) == str(pe.plan(llama, scale="linear", factor=2))
