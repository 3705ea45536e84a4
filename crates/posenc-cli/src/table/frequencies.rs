//! The frequencies that a table shows.

use posenc_encodings::laws::table::{Row, rows};
use posenc_encodings::laws::{Rope, Scaling};
use posenc_onnx::report::Inferred;
use posenc_onnx::request::Parameters;
use serde_json::{Value, json};

/// The length where none is given.
const LENGTH: usize = 4096;

/// A scaling at a length.
#[derive(Debug)]
pub struct Table {
    pub(super) rope: Rope,
    pub(super) scaling: Scaling,
    pub(super) length: usize,
    pub(super) inferred: Vec<Inferred>,
    pub(super) rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(
        rope: Rope,
        scaling: Scaling,
        length: Option<usize>,
        given: &Parameters,
        mut inferred: Vec<Inferred>,
    ) -> Self {
        let length = length.unwrap_or_else(|| {
            inferred.push(Inferred::new("length", LENGTH, "the default"));
            LENGTH
        });
        Self {
            rows: rows(&scaling, &rope, length, given.original_length),
            rope,
            scaling,
            length,
            inferred,
        }
    }

    pub(super) fn attention_factor(&self) -> f64 {
        self.scaling.attention_factor(self.length)
    }

    /// The table in JSON: the scaling, and an object for each rotated pair.
    pub fn json(&self) -> Value {
        // Infinite wavelengths become null: JSON has no infinity.
        let row = |row: &Row| {
            json!({
                "pair": row.pair,
                "plain_inv_freq": row.plain,
                "inv_freq": row.inv_freq,
                "ratio": row.ratio,
                "wavelength": row.wavelength,
                "turns": row.rotations,
                "turns_at_length": row.rotations_at_length,
            })
        };
        json!({
            "schema": posenc_onnx::report::SCHEMA,
            "scaling": self.scaling.name(),
            "theta": self.rope.theta,
            "rotary_dim": self.rope.rotary_dim,
            "head_dim": self.rope.head_dim,
            "length": self.length,
            "attention_factor": self.attention_factor(),
            "inferred": self.inferred,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}
