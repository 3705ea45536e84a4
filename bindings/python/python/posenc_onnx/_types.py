"""Types of arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, Union, runtime_checkable


@runtime_checkable
class Proto(Protocol):
    """A protobuf message, such as `onnx.ModelProto`."""

    def SerializeToString(self) -> bytes:
        """Its bytes."""


@runtime_checkable
class Described(Protocol):
    """What describes itself as JSON, such as a configuration of `transformers`."""

    def to_dict(self) -> dict[str, Any]:
        """What its JSON says."""


Model: TypeAlias = Union[str, os.PathLike[str], bytes, bytearray, memoryview, Proto]
"""A path, the bytes of a file, or an `onnx.ModelProto`."""

Config: TypeAlias = Union[str, os.PathLike[str], Mapping[str, Any], Described]
"""A configuration of Hugging Face: the path of a `config.json`, what it says, or a `PretrainedConfig`."""

Params: TypeAlias = Union[str, os.PathLike[str], Mapping[str, Any]]
"""Learned values: arrays by name, or the path of a safetensors file."""

Layers: TypeAlias = Union[str, int, Iterable[int]]
"""Layers, from 0: numbers, or a text such as `"0-5,7"`."""

ImageSize: TypeAlias = Union[str, tuple[int, int]]
"""Height and width in pixels: two numbers, or a text such as `"384x512"`."""

Numbers: TypeAlias = Iterable[float]
"""Numbers: a list, or an array of one axis."""

Progress: TypeAlias = Callable[[str], object]
"""What is called with the name of each stage."""

Array: TypeAlias = tuple[str, str, list[int], bytes]
"""Name, name of the type, shape, elements in little endian with the last axis as the fastest."""
