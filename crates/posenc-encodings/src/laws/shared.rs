//! Parameters that several laws have.

use crate::param::{Param, Values};

/// Context extension s.
pub const FACTOR: Param = Param {
    name: "factor",
    values: Values::Positive,
    help: "context extension s",
    unit: "",
    default: "`--max-length` ÷ original length, else 4 (llama3: 8)",
};

/// The length before any scaling.
pub const ORIGINAL_LENGTH: Param = Param {
    name: "original-length",
    values: Values::Count,
    help: "length that the model was trained on, before any scaling",
    unit: "tokens",
    default: "from a config, a record or the graph",
};

/// Factor m on cos and sin.
pub const ATTENTION_FACTOR: Param = Param {
    name: "attention-factor",
    values: Values::Positive,
    help: "factor on cos and sin",
    unit: "",
    default: "computed",
};
