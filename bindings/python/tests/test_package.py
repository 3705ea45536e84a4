"""The command, the documents and the examples of the package."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import ROOT, Cli

import posenc_onnx as pe

COMMAND = Path(sysconfig.get_path("scripts")) / ("posenc-onnx.exe" if sys.platform == "win32" else "posenc-onnx")
EXAMPLES = ROOT / "bindings" / "python" / "examples"

TORCH = "POSENC_TORCH_PYTHON"
"""Names an interpreter that has torch, onnxscript, onnx, onnxruntime and numpy, and may have optimum-onnx and olive-ai."""


def test_the_command_is_the_binary(cli: Cli, llama: Path) -> None:
    for arguments in (["--help"], ["--version"], ["rewrite", "--help"], ["inspect", str(llama)], ["rewrit"]):
        ran = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
        same = cli(*arguments)
        assert (ran.returncode, ran.stdout, ran.stderr) == (same.returncode, same.stdout, same.stderr), arguments
    ran = subprocess.run([COMMAND, "verify", llama, "--provider", "cpu", "--lengths", "4"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    as_module = subprocess.run([sys.executable, "-m", "posenc_onnx", "runtime"], capture_output=True, text=True, check=False)
    assert sysconfig.get_path("purelib") in as_module.stdout


def test_versions_agree() -> None:
    assert pe.__version__ == importlib.metadata.version("posenc-onnx")


@pytest.mark.parametrize("document", ["README.md", "bindings/python/README.md"])
def test_the_lines_of_the_readme_work(document: str, llama: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    assert len(blocks[0].splitlines()) == 3
    subprocess.run([sys.executable, "-c", blocks[0]], cwd=llama.parent, check=True)
    scaling = pe.inspect(llama.with_name("long.onnx")).encodings[0].params["scaling"]
    assert (scaling["type"], scaling["factor"]) == ("yarn", 4.0)


@pytest.mark.parametrize("example", ["extend.py", "swap.py", "report.py"])
def test_an_example_runs(example: str, llama: Path) -> None:
    command: list[str | Path] = [sys.executable, EXAMPLES / example, llama]
    ran = subprocess.run(command, cwd=llama.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.skipif(TORCH not in os.environ, reason=f"{TORCH} names no Python with torch")
@pytest.mark.parametrize(
    ("example", "package", "says"),
    [
        ("pytorch.py", "torch", "within"),
        ("optimum_folder.py", "optimum.onnxruntime", "as PyTorch continues"),
        ("olive_pass.py", "olive", "'type': 'yarn'"),
    ],
)
def test_an_example_with_other_packages_runs(example: str, package: str, says: str, tmp_path: Path, llama: Path) -> None:
    python = os.environ[TORCH]
    if subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        pytest.skip(f"the Python of {TORCH} has no {package}")
    # Only the package itself: everything else is that of the other Python.
    shutil.copytree(Path(pe.__file__).parent, tmp_path / "packages" / "posenc_onnx")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    command: list[str | Path] = [python, EXAMPLES / example, llama]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert says in ran.stdout
