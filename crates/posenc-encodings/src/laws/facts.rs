//! A law before its parameters are known.

use crate::hf::HfType;
use crate::param::Param;

/// What is known of a law before its parameters are.
#[derive(Debug)]
pub struct Facts {
    /// Its word on the command line, in records and in reports.
    pub word: &'static str,
    /// What it does, as a phrase without a full stop.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// The factor where none is given and no two lengths say one.
    pub factor: Option<f64>,
    /// The `rope_type` words of Hugging Face configs that mean it.
    pub hf_types: &'static [HfType],
    /// The keys that such a scaling dict may have, besides those that every dict may have.
    pub hf_keys: &'static [&'static str],
    /// The keys that it may have if they are 0, which counts as absent.
    pub hf_zeros: &'static [&'static str],
    /// Whether its pairs span the whole head, whatever width rotates.
    pub spans_head: bool,
    /// Whether a graph that computes it at one length looks like plain RoPE of another θ.
    pub reads_as_plain: bool,
}

impl Facts {
    /// Nothing, to be filled in.
    pub const NONE: Self = Self {
        word: "",
        about: "",
        source: "",
        params: &[],
        factor: None,
        hf_types: &[],
        hf_keys: &[],
        hf_zeros: &[],
        spans_head: false,
        reads_as_plain: false,
    };

    /// Whether it has a parameter of that name.
    pub fn has(&self, param: &Param) -> bool {
        self.params.iter().any(|own| own.name == param.name)
    }
}
