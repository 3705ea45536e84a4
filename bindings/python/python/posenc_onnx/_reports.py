"""What the library says of a model, of a rewrite and of a check: its JSON as dataclasses.

A number that the graph does not determine is `None` or a range, never a guess. Lengths are in tokens, positions
count from 0.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from . import _html
from ._errors import CheckFailed

_R = TypeVar("_R", bound="Report")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report, or a part of one."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `posenc-onnx --json`: what that leaves out where it is empty is left out here too."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {
            field.name: _plain(value)
            for field, value in values
            if field.default is MISSING or value != field.default
        }

    def _repr_html_(self) -> str:
        return _html.table(type(self).__name__, ["field", "value"], self.to_dict().items())


@dataclass(frozen=True, kw_only=True)
class ModelSummary(Report):
    """What the file says of itself."""

    path: str
    """The file; empty for a model from memory."""
    fingerprint: str
    """SHA-256 of the file without the payloads of large tensors."""
    sha256: str | None
    """SHA-256 of the whole file, where requested."""
    ir_version: int
    """The version of the file format."""
    opsets: Mapping[str, int]
    """The imported operator sets by domain; ai.onnx is the empty one."""
    producer: str
    """The exporter."""
    nodes: int
    """Nodes of the graph, its bodies and its functions."""
    parameters: int
    """Elements of float initializers and large float constants."""
    external_data: bool
    """Whether tensors are stored in other files."""


@dataclass(frozen=True, kw_only=True)
class Encoding(Report):
    """Attention sites of one kind of encoding, one stack and one set of hyperparameters."""

    kind: str
    """The family: `rope`, `learned`, `alibi`, …; `unknown` for a term that depends on positions and fits none."""
    stack: str | None
    """`encoder` or `decoder`; `None` where the model has one stack."""
    layers: tuple[int, ...]
    """The attention sites that see it, by their place in the stack, from 0."""
    sites: int
    """How many sites or additions carry it."""
    form: str
    """How it is written in the graph: `ops`, `onnx`, `contrib`."""
    params: Mapping[str, Any]
    """What the family is parameterized by, such as `params["theta"]`."""
    fit_error: float | None
    """The largest difference between the graph's numbers and the formula; `None` where there is none to compare."""
    max_length: int | None
    """The longest sequence that it can encode; `None` without an end."""
    nodes: tuple[str, ...]
    """Nodes where it enters."""
    evidence: tuple[str, ...] = ()
    """What indicates a term that no family fits."""


@dataclass(frozen=True, kw_only=True)
class Attention(Report):
    """One attention site: a softmax over keys, or a fused operator."""

    name: str
    stack: str | None
    layer: int | None
    """The place among the stack's sites, from 0."""
    kind: str
    """`self` or `cross`."""
    heads: int | None
    """Query heads."""
    kv_heads: int | None
    """Key and value heads."""
    head_dim: int | None
    """Elements of a head of queries and keys."""
    causal: bool | None
    """Whether a query is kept from seeing later keys."""
    window: int | None
    """Keys that a query sees, itself included, where a mask limits the distance."""
    padding_mask: bool
    """Whether a mask of the input hides keys."""
    past: bool
    """Whether keys and values of earlier runs are an input."""
    form: str


@dataclass(frozen=True, kw_only=True)
class Limit(Report):
    """A bound on the length of a sequence."""

    length: int
    cause: str
    """`table`, `position-buffer`, `causal-buffer`, `cache`, `static-shape`, …"""
    value: str | None
    """The value of the graph that ends there."""


@dataclass(frozen=True, kw_only=True)
class Refused(Report):
    """A candidate that was looked at and refused."""

    at: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Inspect(Report):
    """What a model encodes positions with."""

    schema: int
    model: ModelSummary
    encodings: tuple[Encoding, ...]
    """The encodings, grouped by kind, stack and hyperparameters."""
    attention: tuple[Attention, ...]
    """The attention sites, once per run of the model."""
    limits: tuple[Limit, ...]
    """What bounds the length of a sequence."""
    warnings: tuple[str, ...]
    refused: tuple[Refused, ...] | None = None
    """Candidates that were refused, where requested."""

    def _repr_html_(self) -> str:
        rows = ((e.kind, e.stack, e.layers, e.sites, e.form, e.max_length, e.params) for e in self.encodings)
        head = ["kind", "stack", "layers", "sites", "form", "max length", "parameters"]
        shown = _html.table("Encodings", head, rows)
        limits = ((limit.length, limit.cause, limit.value) for limit in self.limits)
        return shown + _html.table("Limits", ["length", "cause", "value"], limits)


@dataclass(frozen=True, kw_only=True)
class Endpoint(Report):
    """A model file."""

    path: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Edit(Report):
    """A change at one attention site."""

    site: str
    before: Any
    """The encoding before: `{"kind": …, "params": …}`, a list of several, or `None`; `{"image_size": …}`
    where a model without encodings gets images of another size. In JSON: `from`."""
    to: Any
    """The encoding after."""
    nodes_added: int
    nodes_removed: int
    initializers_changed: int


@dataclass(frozen=True, kw_only=True)
class PlannedEdit(Report):
    """What a plan changes at one attention site."""

    site: str
    before: Any
    """The encoding before: `{"kind": …, "params": …}`, a list of several, or `None`. In JSON: `from`."""
    to: Any
    """The encoding that it is to have; of its parameters, those that are known in advance."""


@dataclass(frozen=True, kw_only=True)
class Inferred(Report):
    """A value that a request did not give."""

    name: str
    value: Any
    source: str
    """Where it came from."""


@dataclass(frozen=True, kw_only=True)
class Limits(Report):
    """Limits of the two models."""

    before: tuple[Limit, ...]
    after: tuple[Limit, ...]


@dataclass(frozen=True, kw_only=True)
class Check(Report):
    """The comparison of what was inserted or rescaled, run by a runtime, with the formula in f64."""

    sites: int
    """How many sites were compared."""
    max_error: float | None
    """The absolute difference of the comparison that uses most of its bound; `None` where that is no number."""
    bound: float
    """The bound that it had to keep."""
    ok: bool
    """Whether every site kept its bound."""


@dataclass(frozen=True, kw_only=True)
class ConfigFile(Report):
    """A configuration that was written next to the model."""

    path: str
    changes: Mapping[str, Any]
    """The values that changed, by their keys: `[before, after]`."""


@dataclass(frozen=True, kw_only=True)
class Rewrite(Report):
    """What a rewrite did."""

    schema: int
    input: Endpoint
    output: Endpoint | None
    """The file that was written; `None` before that."""
    edits: tuple[Edit, ...]
    """The changes, in the order of the sites; none where the model already matched the request."""
    guarantee: str
    """`bits`: every output keeps its bits; `rounding`: the same function; `new-function`: another, as requested."""
    inferred: tuple[Inferred, ...]
    limits: Limits
    check: Check | None
    """`None` where there was nothing to compare, or no runtime could."""
    sorted: int = 0
    meaning: str | None = None
    """What another function means for the weights, where an encoding was swapped."""
    configs: tuple[ConfigFile, ...] = ()
    warnings: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        rows = ((e.site, e.before, e.to) for e in self.edits)
        shown = _html.table(f"Edits ({self.guarantee})", ["site", "from", "to"], rows)
        if self.check is None:
            return shown
        check = (self.check.sites, self.check.max_error, self.check.bound, self.check.ok)
        return shown + _html.table("Check", ["sites", "max error", "bound", "ok"], [check])


@dataclass(frozen=True, kw_only=True)
class Ulp(Report):
    """Differences of the elements of an output in units in the last place of what was wanted."""

    median: float
    p99: float
    """99 in 100 elements differ by no more."""
    max: float


@dataclass(frozen=True, kw_only=True)
class Neighbour(Report):
    """A node near the first value that is out of bounds."""

    node: str
    """The node as ONNX text."""
    is_first: bool
    """Whether its value is the first one that is out of bounds."""
    max_abs: float | None
    ok: bool | None
    """Whether its value is within bounds; `None` where it was not compared."""


@dataclass(frozen=True, kw_only=True)
class Run(Report):
    """One output of one run of a whole model, compared."""

    runtime: str
    provider: str
    optimization: str
    length: int
    batch: int
    padding: str
    """Where the sequences after the first are padded: `right`, `left` or `none`."""
    output: str
    max_abs: float | None
    """The largest absolute difference; `None` where the run gave none."""
    rel: float | None
    """The largest difference relative to the largest magnitude."""
    cosine: float | None
    """The cosine of the angle between the two outputs."""
    ulp: Ulp | None
    """The differences in units in the last place; `None` where there is nothing to compare with."""
    top1: float | None
    """For logits, the share of tokens whose likeliest next token is the same in both."""
    nan: int
    """How many elements are NaN."""
    infinite: int
    """How many elements are infinite where another number was wanted."""
    bound: float | None
    """The bound of the element that uses most of its own; `None` where there was nothing to compare with."""
    ok: bool
    first_divergence: str | None
    """The first value, in order of computation, that is out of bounds, with `bisect=True`."""
    placement: Mapping[str, int]
    """How many nodes each execution provider ran."""
    neighbourhood: tuple[Neighbour, ...] = ()
    """The nodes around the first value that is out of bounds, with `bisect=True`."""


@dataclass(frozen=True, kw_only=True)
class SiteCheck(Report):
    """One quantity of one attention site, compared with the formula in f64."""

    site: str
    quantity: str
    """`cos`, `sin`, `q`, `k`, `scores`, `bias`, `table`."""
    max_error: float | None
    bound: float
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Verify(Report):
    """What a verification found."""

    schema: int
    runs: tuple[Run, ...]
    sites: tuple[SiteCheck, ...]
    ok: bool
    """Whether every comparison kept its bound, and there was one."""
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What was not checked, with the reason."""

    def ensure_ok(self) -> None:
        """Raises `CheckFailed` with the first comparison that did not keep its bound."""
        if self.ok:
            return
        places = [f"{site.site}: {site.quantity}" for site in self.sites if not site.ok]
        places += [f"{run.output} at length {run.length} in {run.runtime}" for run in self.runs if not run.ok]
        raise CheckFailed(f"{places[0]} is out of its bound" if places else "nothing could be compared")

    def _repr_html_(self) -> str:
        sites = ((s.site, s.quantity, s.max_error, s.bound, s.ok) for s in self.sites)
        runs = ((r.runtime, r.provider, r.length, r.output, r.max_abs, r.bound, r.ok) for r in self.runs)
        shown = _html.table("Sites", ["site", "quantity", "max error", "bound", "ok"], sites)
        head = ["runtime", "provider", "length", "output", "max error", "bound", "ok"]
        return shown + _html.table("Runs", head, runs)


@dataclass(frozen=True, kw_only=True)
class TableRow(Report):
    """The frequency of one rotated pair, in radians per position."""

    pair: int
    plain_inv_freq: float
    """Before the scaling."""
    inv_freq: float
    """After it."""
    ratio: float
    wavelength: float | None
    """Positions of a whole turn; `None` for a pair that does not rotate."""
    turns: float | None
    """Turns within the original length."""
    turns_at_length: float | None
    """Turns within the length of the table."""


@dataclass(frozen=True, kw_only=True)
class Table(Report):
    """The frequencies of a scaling of RoPE."""

    schema: int
    scaling: str
    theta: float
    rotary_dim: int
    head_dim: int
    length: int
    """The length at which the table is taken."""
    attention_factor: float
    """What cosines and sines are multiplied with."""
    inferred: tuple[Inferred, ...]
    rows: tuple[TableRow, ...]
    """One for each rotated pair: `rotary_dim / 2`, or more where a law rotates other pairs by 0."""

    def _repr_html_(self) -> str:
        head = [field.name for field in fields(TableRow)]
        rows = ((getattr(row, name) for name in head) for row in self.rows)
        return _html.table(self.scaling, head, rows)


_hints: Any = cache(get_type_hints)

_KEYS = {"before": "from"}
"""Keys of edits that are keywords of Python."""


def read(kind: type[_R], text: str) -> _R:
    """A report from its JSON."""
    return of_json(kind, json.loads(text))


def of_json(kind: type[_R], value: Mapping[str, Any]) -> _R:
    """A report from an object of JSON."""
    hints = _hints(kind)
    keys = {name: _key(kind, name) for name in hints}
    return kind(**{name: _of(hints[name], value[key]) for name, key in keys.items() if key in value})


def _key(kind: type[Report], name: str) -> str:
    return _KEYS.get(name, name) if kind in (Edit, PlannedEdit) else name


def _of(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if value is None:
        return None
    if origin in (Union, types.UnionType):
        return _of(get_args(kind)[0], value)
    if origin is tuple:
        return tuple(_of(get_args(kind)[0], part) for part in value)
    if isinstance(kind, type) and issubclass(kind, Report):
        return of_json(kind, value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Report):
        return {_key(type(value), name): part for name, part in value.to_dict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value
