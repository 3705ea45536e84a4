//! Inputs that are the same for all tokens.

use posenc_ir::Dim;

use super::{Port, Ports, Role};

impl Ports {
    /// Whether an input is the same for all tokens of a sequence that another one gives: numbers, as scales
    /// of noise, or a number or vector for each sequence, as the time of a diffusion or a voice.
    pub(crate) fn is_setting(&self, port: &Port) -> bool {
        let mut sequences = self.ports.iter().filter(|other| match other.role {
            Role::Tokens => other.dims.len() == 2,
            // Samples of sound have two axes.
            Role::Content => match &other.dims[..] {
                [_, samples] => other.dtype.is_float() && !matches!(samples, Dim::Known(_)),
                dims => dims.len() > 2,
            },
            _ => false,
        });
        let is_batch = |other: &Port, dim: &Dim| {
            let batch = other.batch_axis().and_then(|axis| other.dims.get(axis));
            batch == Some(dim) && *dim != Dim::Unknown
        };
        match (port.role, &port.dims[..]) {
            (Role::Content | Role::Tokens, [Dim::Known(1)]) => sequences.next().is_some(),
            (Role::Content, [_, Dim::Known(1), Dim::Known(_)]) => {
                sequences.any(|other| other.value != port.value)
            }
            // As many numbers as tokens may be one for each.
            (Role::Content, [Dim::Known(size)] | [_, Dim::Known(size)]) => {
                self.fixed_sequence() != Some(*size) && sequences.next().is_some()
            }
            (Role::Content | Role::Tokens, [dim]) => sequences.any(|other| is_batch(other, dim)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType::{self, F32, I64};

    use super::*;
    use crate::graph::sketch::Sketch;

    /// Whether an input is the same for all tokens, beside ids of these dimensions.
    fn is_setting(ids: &[&str], dtype: DType, dims: &[&str]) -> bool {
        let mut s = Sketch::default();
        let words = s.weights(&[30, 8]);
        let ids = s.input("input_ids", I64, ids);
        let x = s.gather(&words, &ids, 0);
        let other = s.input("other", dtype, dims);
        let y = match dtype {
            F32 => s.op("Neg", &[&other]),
            _ => s.gather(&words, &other, 0),
        };
        let model = s.model(17, &[&x, &y]);
        let ports = Ports::of(model.graph(), &Default::default());
        let port = ports
            .iter()
            .find(|port| model.graph().name(port.value) == "other");
        ports.is_setting(port.unwrap())
    }

    #[test]
    fn inputs_without_a_sequence_beside_ids_are_the_same_for_all_tokens() {
        let open = ["batch", "sequence"];
        for (dtype, dims) in [
            (F32, &["3"][..]),
            (F32, &["batch"]),
            (F32, &["batch", "16"]),
            (F32, &["batch", "1", "16"]),
            (I64, &["1"]),
            (I64, &["batch"]),
        ] {
            assert!(is_setting(&open, dtype, dims), "{dtype} {dims:?}");
        }
    }

    #[test]
    fn inputs_beside_samples_of_sound_may_be_the_same_for_all_tokens() {
        let beside = |dims: &[&str]| {
            let mut s = Sketch::default();
            let sound = s.input("sound", F32, &["batch", "samples"]);
            let sound = s.unsqueeze(&sound, &[1]);
            let kernel = s.weights(&[8, 1, 4]);
            let x = s.op("Conv", &[&sound, &kernel]);
            let other = s.input("other", I64, dims);
            let table = s.weights(&[30, 8]);
            let y = s.gather(&table, &other, 0);
            let model = s.model(17, &[&x, &y]);
            let ports = Ports::of(model.graph(), &Default::default());
            let port = ports.iter().nth(1);
            ports.is_setting(port.expect("it is an input"))
        };
        assert!(beside(&["batch"]));
        assert!(!beside(&["samples"]));
        assert!(!beside(&["others"]));
    }

    #[test]
    fn inputs_with_a_sequence_are_not() {
        let open = ["batch", "sequence"];
        for (dtype, dims) in [
            (F32, &["sequence"][..]),
            (F32, &["others"]),
            (F32, &["batch", "sequence"]),
            (F32, &["batch", "4", "16"]),
            (F32, &["batch", "sequence", "16"]),
            (I64, &["3"]),
            (I64, &["sequence"]),
            (I64, &["batch", "sequence"]),
        ] {
            assert!(!is_setting(&open, dtype, dims), "{dtype} {dims:?}");
        }
        // As long as the ids.
        for dims in [&["16"][..], &["batch", "16"]] {
            assert!(!is_setting(&["batch", "16"], F32, dims), "{dims:?}");
        }
    }
}
