"""The functions of the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _inputs, _native
from ._options import Options, TableOptions
from ._reports import Inspect, Table, Verify, read
from ._results import Plan, Rewritten
from ._types import Config, Model, Progress

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack


def inspect(
    model: Model,
    *,
    hf_config: Config | None = None,
    input_role: Mapping[str, Literal["position", "padding", "content"]] | None = None,
    hash: bool = False,
    explain: bool = False,
    progress: Progress | None = None,
) -> Inspect:
    """What a model encodes positions with, at which attention sites, and what limits its length.

    `hf_config` fills in values that the graph does not determine. `input_role` gives inputs their roles by name,
    where they cannot be inferred. `hash` also hashes the whole file, which reads every byte of it. `explain` lists
    the candidates that were rejected, and why.

    Raises `NotFound`, `InvalidModel`, `UsageError`.
    """
    text = _native.inspect(
        _inputs.model(model),
        _inputs.config(hf_config, "hf_config"),
        _inputs.roles(input_role),
        hash,
        explain,
        progress,
    )
    return read(Inspect, text)


def plan(model: Model, *, progress: Progress | None = None, **options: Unpack[Options]) -> Plan:
    """Decides what a request changes in a model. Nothing is edited; `print` shows the plan.

    Raises `NotFound`; `InvalidModel`; `UsageError` where a keyword has a wrong value or no effect, or a needed value
    is unknown; `Unsupported` where the model cannot be rewritten so, with the place; `CheckFailed` where it has no
    attention; `TypeError` for a keyword that there is not.
    """
    given: dict[str, Any] = dict(options)
    config, own, params = (given.pop(name, None) for name in ("hf_config", "model_config", "params"))
    made = _native.plan(
        _inputs.model(model),
        _inputs.options("plan", given),
        _inputs.config(config, "hf_config"),
        _inputs.config(own, "model_config"),
        _inputs.params(params),
        progress,
    )
    return Plan(made)


def rewrite(
    model: Model, *, verify: bool = False, progress: Progress | None = None, **options: Unpack[Options]
) -> Rewritten:
    """Rewrites a model: `plan` and `Plan.apply` in one.

    Raises what these two raise.
    """
    return plan(model, progress=progress, **options).apply(verify=verify, progress=progress)


def verify(
    model: Model,
    other: Model | None = None,
    *,
    providers: Sequence[str] = (),
    no_fallback: bool = False,
    lengths: Sequence[int] = (),
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    bisect: bool = False,
    progress: Progress | None = None,
) -> Verify:
    """Runs a model and its encodings, and compares the results.

    The rotation of every attention site and whatever a rewrite inserted are compared with the formula in f64, and
    whole runs with `other` or, without it, between runtimes. Where one of the two models was rewritten from the
    other, their outputs may differ, and everything outside of the edits has to be equal.

    `providers` are `tract`, or providers of ONNX Runtime with a device and options, as `cpu`, `cuda:1` or
    `openvino,device_type=GPU`; every available one where it is empty. `lengths` are those of the sequences to run, in tokens. `inputs` replace random ones: an array for
    each input by its name, or an `.npz` file. `atol` and `rtol` are allowed between whole runs; by default, what
    follows from the model's types. `bisect` searches for the first value that is out of bounds.

    A difference raises nothing: see `Verify.ok` and `Verify.ensure_ok`. Raises `NotFound`, `InvalidModel`,
    `ProviderUnavailable`, `Unsupported`, `UsageError`.
    """
    text = _native.verify(
        _inputs.model(model),
        None if other is None else _inputs.model(other),
        [providers] if isinstance(providers, str) else list(providers),
        no_fallback,
        list(lengths),
        _inputs.inputs(inputs),
        atol,
        rtol,
        bisect,
        _inputs.onnxruntime(),
        progress,
    )
    return read(Verify, text)


def table(
    *,
    head_dim: int | None = None,
    length: int | None = None,
    hf_config: Config | None = None,
    layer: int = 0,
    **options: Unpack[TableOptions],
) -> Table:
    """The frequencies of a scaling of RoPE, one row for each rotated pair.

    `head_dim` is the width of the whole head, by default the rotary width. `length` is where the table is taken: the
    largest position plus one, by default the original length × the factor. `hf_config` replaces `scale`, `factor` and
    `theta` by what a config says of its `layer`, from 0.

    Raises `UsageError` where a value is missing, out of range or without effect.
    """
    given = _inputs.options("table", options, table=True)
    text = _native.table(given, head_dim, length, _inputs.config(hf_config, "hf_config"), layer)
    return read(Table, text)
