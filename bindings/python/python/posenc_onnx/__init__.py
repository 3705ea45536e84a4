"""Find, rescale, swap and prove the positional encodings of ONNX transformer models.

    import posenc_onnx as pe

    print(pe.inspect("model.onnx").encodings)
    done = pe.plan("model.onnx", scale="yarn", factor=4).apply()
    done.save("long.onnx")

A model is a path (`str` or `os.PathLike`), the bytes of a file, or an `onnx.ModelProto`. Tensors in other files are
found next to a path only, and so is its `config.json`; models of more than 2 GB work by path.

Keywords have the names and the values of the flags of `posenc-onnx rewrite`, with underscores for hyphens; `None` is
the same as leaving one out. They are the members of `Options`.

`progress` is called with the name of each stage: `read`, then `inspect`, `plan`, `apply`, `check`, `write` or
`verify`. Other threads run while the library works, and Ctrl-C interrupts it.

Exceptions are subclasses of `Error`, one for each exit code of the command line. Neither `onnx` nor `numpy` is
imported before it is needed. ONNX Runtime is used where the package `onnxruntime` is installed, in its version and
without importing it; `ORT_DYLIB_PATH` names another library. The embedded runtime, tract, needs nothing.
"""

from __future__ import annotations

from ._errors import CheckFailed, Error, InvalidModel, NotFound, ProviderUnavailable, Unsupported, UsageError
from ._functions import inspect, plan, rewrite, table, verify
from ._native import VERSION as __version__
from ._options import Options, TableOptions
from ._reports import (
    Attention,
    Check,
    ConfigFile,
    Edit,
    Encoding,
    Endpoint,
    Inferred,
    Inspect,
    Limit,
    Limits,
    ModelSummary,
    Neighbour,
    PlannedEdit,
    Refused,
    Report,
    Rewrite,
    Run,
    SiteCheck,
    Table,
    TableRow,
    Ulp,
    Verify,
)
from ._results import Plan, Rewritten

__all__ = [
    "Attention",
    "Check",
    "CheckFailed",
    "ConfigFile",
    "Edit",
    "Encoding",
    "Endpoint",
    "Error",
    "Inferred",
    "Inspect",
    "InvalidModel",
    "Limit",
    "Limits",
    "ModelSummary",
    "Neighbour",
    "NotFound",
    "Options",
    "Plan",
    "PlannedEdit",
    "ProviderUnavailable",
    "Refused",
    "Report",
    "Rewrite",
    "Rewritten",
    "Run",
    "SiteCheck",
    "Table",
    "TableOptions",
    "TableRow",
    "Ulp",
    "Unsupported",
    "UsageError",
    "Verify",
    "__version__",
    "inspect",
    "plan",
    "rewrite",
    "table",
    "verify",
]
