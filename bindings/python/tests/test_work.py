"""Stages, threads, signals, imports."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import FIXTURES

import posenc_onnx as pe

LENGTHS = list(range(3000, 3020))
"""Runs of these lengths take many seconds."""


def test_stages_are_told(llama: Path) -> None:
    stages: list[str] = []
    done = pe.rewrite(llama, scale="linear", factor=2, progress=stages.append)
    done.save(llama.with_name("out.onnx"), progress=stages.append)
    assert stages == ["read", "plan", "apply", "check", "write"]
    stages.clear()
    pe.inspect(llama, progress=stages.append)
    assert stages == ["read", "inspect"]


def test_what_a_callback_raises_arrives() -> None:
    def refuse(stage: str) -> None:
        raise LookupError(stage)

    with pytest.raises(LookupError, match="read"):
        pe.inspect(FIXTURES / "llama" / "dynamo" / "model.onnx", progress=refuse)


def test_other_threads_run_meanwhile(llama: Path) -> None:
    longest = 0.0
    is_over = threading.Event()

    def tick() -> None:
        nonlocal longest
        last = time.monotonic()
        while not is_over.is_set():
            time.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    ticking = threading.Thread(target=tick)
    ticking.start()
    start = time.monotonic()
    pe.verify(llama, providers=["tract"], lengths=[2000])
    took = time.monotonic() - start
    is_over.set()
    ticking.join()
    assert longest < 0.5 * took, (longest, took)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_an_interrupt_ends_the_waiting(llama: Path) -> None:
    program = f"""
        import signal
        import posenc_onnx as pe
        # A process that runs behind others begins without.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            pe.verify({str(llama)!r}, providers=["tract"], lengths={LENGTHS}, progress=lambda s: print(s, flush=True))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "verify\n":
            pass
        time.sleep(0.2)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - start < 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_an_interrupt_ends_the_command(llama: Path) -> None:
    lengths = ",".join(map(str, LENGTHS))
    command = [sys.executable, "-m", "posenc_onnx", "verify", str(llama), "--provider", "tract", "--lengths", lengths]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=2) == -signal.SIGINT


def test_nothing_large_is_imported_before_it_is_needed(llama: Path) -> None:
    program = f"""
        import sys
        import posenc_onnx as pe
        loaded = lambda: {{"numpy", "onnx", "onnxruntime"}} & set(sys.modules)
        assert not loaded(), loaded()
        done = pe.rewrite({str(llama)!r}, scale="yarn", factor=4)
        assert pe.verify({str(llama)!r}, done.to_bytes(), providers=["cpu"], lengths=[4]).ok
        assert not loaded(), loaded()
        done.to_proto()
        assert "onnx" in loaded()
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
