"""Models of the repository, and the command line to compare with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "fixtures"

# The tests are of the library that the package `onnxruntime` has.
os.environ.pop("ORT_DYLIB_PATH", None)

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A copy of a Llama, with the `config.json` next to it."""
    for name in ("model.onnx", "config.json"):
        shutil.copy(FIXTURES / "llama" / "dynamo" / name, tmp_path)
    return tmp_path / "model.onnx"


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A copy of a GPT-2, which has a learned table of 64 rows."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    return Path(shutil.copy(FIXTURES / "gpt2" / "dynamo" / "model.onnx", folder))


@pytest.fixture
def cli() -> Cli:
    """Runs the binary of the workspace, or else the command of the wheel."""
    named = os.environ.get("POSENC_ONNX_BINARY")
    command = [named] if named else [sys.executable, "-m", "posenc_onnx"]

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)

    return run
