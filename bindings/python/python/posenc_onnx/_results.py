"""Plans, and rewritten models."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from . import _html, _inputs, _native
from ._errors import CheckFailed
from ._reports import Check, Inferred, PlannedEdit, Rewrite, of_json, read
from ._types import Config, Progress

if TYPE_CHECKING:
    import onnx


class Plan:
    """What a request changes in a model, made by `plan`. `str` shows it as a table."""

    def __init__(self, made: _native.Plan) -> None:
        self._made = made
        said = json.loads(made.report)
        self.edits: tuple[PlannedEdit, ...] = tuple(of_json(PlannedEdit, edit) for edit in said["edits"])
        """What changes at each site, in order of computation; none where the model is as requested already."""
        self.inferred: tuple[Inferred, ...] = tuple(of_json(Inferred, value) for value in said["inferred"])
        """The values that the request does not give, each with its source."""
        self.max_length: int | None = said["max_length"]
        """The length that tables, caches and buffers are to hold, in tokens, where it is known."""

    def apply(self, *, verify: bool = False, progress: Progress | None = None) -> Rewritten:
        """Edits a copy of the model, reads the result again, and compares it with the plan and with formulas.

        `verify` requires that a runtime makes the comparison; otherwise a warning says why none could.

        Raises `Unsupported` where the edit cannot be made or the result does not match the plan. A comparison that is
        out of its bound raises nothing here: see `Rewritten.check`.
        """
        return Rewritten(self._made.apply(verify, _inputs.onnxruntime(), progress))

    def __str__(self) -> str:
        return self._made.text

    def __repr__(self) -> str:
        return f"<posenc_onnx.Plan: {self._made.text.splitlines()[0].rstrip(' :')}>"

    def _repr_html_(self) -> str:
        rows = ((edit.site, edit.before, edit.to) for edit in self.edits)
        shown = _html.table("Plan", ["site", "from", "to"], rows)
        values = ((value.name, value.value, value.source) for value in self.inferred)
        return shown + _html.table("Inferred", ["name", "value", "source"], values)


class Rewritten:
    """A rewritten model, and what was done."""

    def __init__(self, done: _native.Rewritten) -> None:
        self._done = done
        self.report: Rewrite = read(Rewrite, done.report)
        """What was done. It names no output: `save` returns the report that does."""

    @property
    def check(self) -> Check | None:
        """The comparison with formulas; `None` where there was nothing to compare, or no runtime could.

        Where it is not `ok`, the model is not handed out: `save`, `to_bytes` and `to_proto` raise `CheckFailed`.
        """
        return self.report.check

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        external_data: Literal["auto", "keep", "link", "copy", "inline"] = "auto",
        in_place: bool = False,
        progress: Progress | None = None,
    ) -> Rewrite:
        """Writes the model to a file, which appears when it is complete, and returns the report with it.

        `external_data` says what becomes of tensors in other files: `auto` keeps them in the same folder and copies
        them to another one. `in_place` allows to replace the model that was read. With `write_config=True` in the
        request, the `config.json` that matches is written too.

        Raises `CheckFailed`; `UsageError` where the file cannot be written; `NotFound` where tensors are missing.
        """
        self._ensure_ok()
        if progress is not None:
            progress("write")
        return read(Rewrite, self._done.save(os.fspath(path), external_data, in_place))

    def to_bytes(self) -> bytes:
        """The bytes of the model's file. Tensors in other files stay there.

        Raises `CheckFailed`; `Error` where the model is too large for one file.
        """
        self._ensure_ok()
        return self._done.to_bytes()

    def to_proto(self, *, load_external_data: bool = True) -> onnx.ModelProto:
        """The model as an `onnx.ModelProto`, with the tensors of other files unless `load_external_data` is false.

        Raises `CheckFailed`, and `ImportError` where the package `onnx` is not installed.
        """
        import onnx

        proto = onnx.load_model_from_string(self.to_bytes())
        if load_external_data and self._done.path is not None:
            folder = os.path.dirname(os.fspath(self._done.path))
            onnx.load_external_data_for_model(proto, folder)
        return proto

    def config(self, config: Config) -> dict[str, Any]:
        """The `config.json` of the model that was read, changed to match the result.

        Raises `UsageError` and `Unsupported` where it is the config of another model, or cannot say what was done.
        """
        given = _inputs.config(config, "config")
        assert given is not None
        changed: dict[str, Any] = json.loads(self._done.config(given[1]))
        return changed

    def _ensure_ok(self) -> None:
        if self.check is not None and not self.check.ok:
            raise CheckFailed(
                f"the result differs from its formula by {self.check.max_error}, more than {self.check.bound}"
            )

    def __repr__(self) -> str:
        edits = len(self.report.edits)
        return f"<posenc_onnx.Rewritten: {edits} {'edit' if edits == 1 else 'edits'}, {self.report.guarantee}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
