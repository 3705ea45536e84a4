//! Printing a whole model and parsing it back gives the same graph and the same values: over real
//! exports, compared as messages that neither the printer nor the parser made.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[path = "../../../tests/shared.rs"]
pub mod shared;

mod text {
    mod any;
    mod made;
    mod normal;
    mod real;
}
