"""Arguments of Python as the extension takes them. NumPy is imported when there is an array."""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _native
from ._errors import NotFound, UsageError
from ._types import Array, Described, Model, Proto

def model(given: Model) -> bytes | str:
    """The bytes of a model, or its path. What is no `bytes` already is copied once."""
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    if isinstance(given, bytes):
        return given
    if isinstance(given, Proto):
        try:
            return given.SerializeToString()
        except Exception as why:
            raise UsageError(
                f"the model cannot be encoded in memory ({why}): save it with external data, and give its path"
            ) from why
    try:
        return bytes(memoryview(given))
    except TypeError:
        raise TypeError(
            f"a model is a path, the bytes of a file or an onnx.ModelProto, and not {type(given).__name__}"
        ) from None


def config(given: Any, name: str) -> tuple[str, str] | None:
    """The name and the text of a configuration: a path, or what its JSON says."""
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given), _read(given, name).decode()
    if isinstance(given, Described):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return name, json.dumps(given, default=_plain)
    raise TypeError(f"{name} is a path or a dict, and not {type(given).__name__}")


def params(given: Any) -> list[Array] | tuple[str, bytes] | None:
    """Learned values: arrays by name, or the name and the bytes of a safetensors file."""
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given), _read(given, "params")
    if isinstance(given, Mapping):
        return [_array(name, value, learned=True) for name, value in given.items()]
    raise TypeError(f"params is a dict of arrays or a path, and not {type(given).__name__}")


def inputs(given: Any) -> list[Array]:
    """Inputs of a model: arrays by name, or an `.npz` file."""
    if given is None:
        return []
    if isinstance(given, (str, os.PathLike)):
        import numpy

        try:
            given = dict(numpy.load(given))
        except FileNotFoundError as why:
            raise NotFound(f"inputs: {why}") from None
    return [_array(name, value, learned=False) for name, value in given.items()]


def _array(name: str, value: Any, *, learned: bool) -> Array:
    import numpy

    if hasattr(value, "detach"):  # a tensor of PyTorch, perhaps on another device
        value = value.detach().cpu()
    array = numpy.asarray(value)
    stored = array.dtype.name in ("float16", "float32", "bfloat16")
    if learned and not stored and array.dtype.kind in "fiu":
        array = array.astype(numpy.float32)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return name, array.dtype.name, list(array.shape), array.tobytes()


def options(function: str, given: Mapping[str, Any], *, table: bool = False) -> str:
    """Keywords as JSON, without those that are `None`."""
    known = _known(table)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    return json.dumps({name: _value(name, value) for name, value in given.items() if value is not None}, default=_plain)


def roles(given: Mapping[str, str] | None) -> str:
    """Roles of inputs as JSON."""
    return json.dumps(dict(given or {}))


def _known(table: bool) -> tuple[str, ...]:
    return tuple(name for name, _, _, of_table in _native.options() if of_table or not table)


def _value(name: str, value: Any) -> Any:
    if name == "layers" and not isinstance(value, str):
        return ",".join(map(str, [value] if isinstance(value, int) else value))
    if name == "image_size" and not isinstance(value, str):
        height, width = value
        return f"{height}x{width}"
    return value


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy, without importing it, and whatever else can be iterated."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{value!r} has no place in a request")


def _read(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as why:
        raise NotFound(f"{name}: {why}") from None
    except OSError as why:
        raise UsageError(f"{name}: {why}") from None


def onnxruntime() -> str | None:
    """The folder of the package `onnxruntime` of this environment, which is not imported."""
    try:
        spec = importlib.util.find_spec("onnxruntime")
    except ValueError:
        return None
    places = spec.submodule_search_locations if spec else None
    return next(iter(places), None) if places else None
