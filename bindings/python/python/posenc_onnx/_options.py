"""The keywords of requests, as types. Made by `options.py`; what the extension declares counts at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from ._types import Config, ImageSize, Layers, Numbers, Params


class TableOptions(TypedDict, total=False):
    """Keywords of `table`."""

    scale: Literal["none", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional", "alpha", "cubic", "tile", "hierarchical", "truncate"] | None
    """How the encoding is stretched."""
    factor: float | None
    """Context extension; maximum ÷ original length where left out, else 4 (Llama 3: 8)."""
    original_length: int | None
    """Length that the model was trained on, before any scaling, in tokens."""
    max_length: int | None
    """Length that tables, caches and buffers must hold, in tokens; never a parameter of a formula."""
    theta: float | None
    """Base θ of the frequencies."""
    rotary_dim: int | None
    """Elements of a head that rotate."""
    beta_fast: float | None
    """Rotations within the original length above which a pair stays."""
    beta_slow: float | None
    """Rotations within the original length below which a pair is interpolated."""
    mscale: float | None
    """Weight of ln s in the numerator of the factor on cos and sin."""
    mscale_all_dim: float | None
    """Weight of ln s in its denominator."""
    attention_factor: float | None
    """Factor on cos and sin."""
    no_truncate: bool | None
    """Do not round the ends of the ramp to whole pairs."""
    short_factor: Numbers | None
    """Divisors up to the original length, one per pair."""
    long_factor: Numbers | None
    """Divisors above it, one per pair."""
    low_freq_factor: float | None
    """Rotations within the original length below which a pair is divided by s."""
    high_freq_factor: float | None
    """Rotations within the original length above which a pair stays."""
    alpha: float | None
    """Strength α of the larger base, at least 1."""


class Options(TableOptions, total=False):
    """Keywords of `plan` and `rewrite`."""

    to: Literal["none", "sinusoidal", "learned", "rope", "alibi", "t5-bias", "relative-bias", "kerple", "fire", "shaw", "transformer-xl", "conv"] | None
    """Encoding afterwards; the one found where left out."""
    hf_config: Config | None
    """Hugging Face config that the graph is to follow."""
    model_config: Config | None
    """Config of the model as it is; the `config.json` next to its file where left out."""
    params: Params | None
    """Learned values: arrays by name, or a safetensors file."""
    layers: Layers | None
    """Attention sites to work on, counted within their stack; all where left out."""
    stack: Literal["encoder", "decoder"] | None
    """Stack to work on; both where left out."""
    form: Literal["ops", "onnx", "contrib"] | None
    """Operators that rotations and fused T5 biases consist of afterwards; as they are where left out."""
    target: Literal["portable", "ort-cpu", "ort-cuda", "tract"] | None
    """Runtime that has to run the result; none is checked where left out."""
    input_role: Mapping[str, Literal["position", "padding", "content"]] | None
    """Roles of inputs that cannot be inferred, by name."""
    layout: Literal["half", "interleaved"] | None
    """Pairs of RoPE, or the order within a sinusoidal row."""
    image_size: ImageSize | None
    """Image size in pixels, height and width."""
    align_corners: bool | None
    """Interpolated tables: the first row and the last one stay, as align_corners does in PyTorch."""
    antialias: bool | None
    """Tables of patches: interpolate with antialiasing, as PyTorch does."""
    dynamic: bool | None
    """Images of any height and width: the graph resizes its table of patches when it runs."""
    table_precision: Literal["f32", "f64"] | None
    """Type in which tables are computed before they are stored."""
    seed: int | None
    """Seed of tables that are filled at random."""
    add_position_ids: bool | None
    """Add an input with position ids."""
    allow_rescale: bool | None
    """Scale what is already scaled, or undo a scaling."""
    allow_unread: bool | None
    """Rewrite a model of which something was not read; the output records what."""
    write_config: bool | None
    """Write the `config.json` that matches the result next to it when it is saved."""
    sort: bool | None
    """Write nodes in an order of computation, where the input does not."""
    slopes: Numbers | None
    """Slopes, one per head."""
    bidirectional: bool | None
    """How keys after the query count: true, with biases of their own (alibi: as keys before it, t5-bias: in other buckets); false, alibi continues its line with the opposite sign, and t5-bias counts them as distance 0."""
    num_buckets: int | None
    """Buckets, those of both directions together."""
    max_distance: int | None
    """Distance at which the encoding saturates."""
    variant: Literal["log", "power"] | None
    """Fall with the logarithm or with a power of the distance."""
