"""The extension: JSON and bytes in and out. The package around it is what programs use."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

from ._types import Array, Progress

__all__ = ["run", "inspect", "table", "options", "Plan", "Rewritten", "plan", "verify", "VERSION"]

VERSION: str

def run(arguments: Sequence[str], onnxruntime: str | None) -> int: ...
def options() -> list[tuple[str, str, str, bool]]: ...
def inspect(
    model: bytes | str,
    hf_config: tuple[str, str] | None,
    input_role: str,
    hash: bool,
    explain: bool,
    progress: Progress | None,
) -> str: ...
def table(
    options: str,
    head_dim: int | None,
    length: int | None,
    hf_config: tuple[str, str] | None,
    layer: int,
) -> str: ...
def plan(
    model: bytes | str,
    options: str,
    hf_config: tuple[str, str] | None,
    model_config: tuple[str, str] | None,
    params: list[Array] | tuple[str, bytes] | None,
    progress: Progress | None,
) -> Plan: ...
def verify(
    model: bytes | str,
    other: bytes | str | None,
    providers: Sequence[str],
    no_fallback: bool,
    lengths: Sequence[int],
    inputs: list[Array],
    atol: float | None,
    rtol: float | None,
    bisect: bool,
    onnxruntime: str | None,
    progress: Progress | None,
) -> str: ...
@final
class Plan:
    @property
    def text(self) -> str: ...
    @property
    def report(self) -> str: ...
    def apply(
        self, verify: bool, onnxruntime: str | None, progress: Progress | None
    ) -> Rewritten: ...

@final
class Rewritten:
    @property
    def report(self) -> str: ...
    @property
    def path(self) -> Path | None: ...
    def to_bytes(self) -> bytes: ...
    def save(self, path: str, external_data: str, in_place: bool) -> str: ...
    def config(self, text: str) -> str: ...
