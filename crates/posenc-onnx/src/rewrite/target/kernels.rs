//! The operators around positions and attention for which ONNX Runtime lacks kernels, by provider.
//!
//! Of version 1.31: those of the processor as it registers them, with float16 wherever it has float32, between which it
//! converts; those of CUDA as its list of kernels and its sources say. Other operators are left to a run.

use posenc_ir::DType::{self, BF16, F16, F32, F64, I8, U8};
use posenc_ir::Node;
use posenc_ir::eval::Trace;

use crate::request::Target;

/// The types for which an operator of com.microsoft has kernels.
struct Kernels {
    op: &'static str,
    cpu: &'static [DType],
    cuda: &'static [DType],
}

const fn of(op: &'static str, cpu: &'static [DType], cuda: &'static [DType]) -> Kernels {
    Kernels { op, cpu, cuda }
}

/// No kernel.
const NONE: &[DType] = &[];

const CONTRIB: &[Kernels] = &[
    of("Attention", &[F32, F16], &[F32, F16, BF16]),
    of("BiasSoftmax", NONE, &[F64, F32, F16]),
    of("DecoderMaskedMultiHeadAttention", &[F32, F16], &[F32, F16]),
    of("DecoderMaskedSelfAttention", NONE, &[F32, F16]),
    of("EmbedLayerNormalization", &[F32, F16], &[F32, F16]),
    of("GatedRelativePositionBias", NONE, &[F32, F16]),
    of("GemmaRotaryEmbedding", NONE, &[F16]),
    of("GroupQueryAttention", &[F32, F16], &[F16, BF16]),
    of("MRotaryEmbedding", &[F32, F16], NONE),
    of("MultiHeadAttention", &[F32, F16], &[F32, F16, BF16]),
    of("PackedAttention", NONE, &[F32, F16]),
    of("PackedMultiHeadAttention", NONE, &[F32, F16]),
    of("PagedAttention", NONE, &[F16, BF16]),
    of("QAttention", &[U8], &[I8]),
    of("QEmbedLayerNormalization", &[F32], NONE),
    of("QOrderedAttention", NONE, &[I8]),
    of("RelativePositionBias", NONE, &[F32, F16]),
    of("RotaryEmbedding", &[F32, F16], &[F32, F16, BF16]),
    of(
        "SkipLayerNormalization",
        &[F64, F32, F16, BF16],
        &[F32, F16, BF16],
    ),
    of(
        "SkipSimplifiedLayerNormalization",
        &[F64, F32, F16, BF16],
        &[F32, F16, BF16],
    ),
    of("SparseAttention", &[F32, F16], &[F16, BF16]),
];

/// The same of ai.onnx.
const STANDARD: &[Kernels] = &[of("RotaryEmbedding", &[F32, F16], &[F32, F16, BF16])];

/// The operators whose types are told apart by their first input, and not by what they give.
const BY_INPUT: &[&str] = &["QAttention", "QOrderedAttention"];

/// Features that an Attention of CUDA rotates.
const ROTATED: [i64; 3] = [32, 64, 128];

/// Why ONNX Runtime has no kernel for a node on CUDA, or on the processor for any other target; `None` where it has
/// one, or the graph does not tell the type.
pub(super) fn lacks(node: &Node, trace: &Trace, target: Target) -> Option<String> {
    let is_cuda = target == Target::OrtCuda;
    let op = node.op();
    let all = match node.domain() {
        "" => STANDARD,
        "com.microsoft" => CONTRIB,
        _ => return None,
    };
    let kernels = all.iter().find(|own| own.op == op)?;
    let (types, place) = match is_cuda {
        false => (kernels.cpu, "the processor"),
        true => (kernels.cuda, "CUDA"),
    };
    if types.is_empty() {
        return Some(format!("ONNX Runtime has no {op} for {place}"));
    }
    let value = match BY_INPUT.contains(&op) {
        true => node.input(0),
        false => node.output(0),
    };
    let dtype = value.and_then(|value| trace.get(value).dtype);
    if let Some(dtype) = dtype.filter(|dtype| !types.contains(dtype)) {
        return Some(format!("ONNX Runtime has no {op} of {dtype} for {place}"));
    }
    if op == "RotaryEmbedding" {
        return is_of_other_sequences(node, trace).then(|| {
            "ONNX Runtime needs cosines or positions for every sequence of a batch, and this RotaryEmbedding \
             has those of one".to_owned()
        });
    }
    let int = |name| node.int(name).ok().flatten();
    let is_rotated = int("do_rotary") == Some(1);
    match (op, is_cuda) {
        ("Attention", false) if is_rotated => Some(
            "ONNX Runtime has no Attention for the processor that rotates queries and keys"
                .to_owned(),
        ),
        ("Attention", true) if is_rotated => {
            let width = int("rotary_embedding_dim").filter(|width| *width != 0)?;
            (!ROTATED.contains(&width)).then(|| {
                format!("ONNX Runtime on CUDA does not rotate {width} features in an Attention, but 32, 64 or 128")
            })
        }
        _ => None,
    }
}

/// Whether a RotaryEmbedding is given cosines, or positions, of another number of sequences than it rotates.
fn is_of_other_sequences(node: &Node, trace: &Trace) -> bool {
    let dims = |slot| trace.get(node.input(slot)?).dims.as_deref();
    let given = match (node.domain(), node.input(3)) {
        ("", None) => dims(1),
        ("", Some(_)) => dims(3),
        // Positions on one axis say where all sequences begin.
        _ => dims(1).filter(|dims| dims.len() == 2),
    };
    let count = |dims: Option<&[usize]>| dims.and_then(|dims| dims.first().copied());
    count(given).is_some_and(|own| count(dims(0)).is_some_and(|all| all != own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HIDDEN, Sketch};

    /// What keeps an Attention that rotates so many features from a target.
    fn attention(dtype: DType, width: i64, target: Target) -> Option<String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
        let [x, w] = [x, w].map(|value| s.cast(&value, dtype));
        let attributes = [
            ("num_heads", A::Int(2)),
            ("do_rotary", A::Int(1)),
            ("rotary_embedding_dim", A::Int(width)),
        ];
        let y = s.with("ms.Attention", &[&x, &w], &attributes);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        let mut nodes = model.graph().nodes().map(|(_, node)| node);
        let node = nodes.find(|node| node.op() == "Attention").unwrap();
        lacks(node, &found.trace, target)
    }

    #[test]
    fn types_and_widths_are_those_of_the_kernels() {
        use Target::{OrtCpu as Cpu, OrtCuda as Cuda};
        for (dtype, width, target, says) in [
            (
                F32,
                32,
                Cpu,
                Some("no Attention for the processor that rotates"),
            ),
            (F32, 32, Cuda, None),
            (F32, 0, Cuda, None),
            (F16, 64, Cuda, None),
            (
                BF16,
                32,
                Cpu,
                Some("no Attention of bfloat16 for the processor"),
            ),
            (F64, 32, Cuda, Some("no Attention of double for CUDA")),
            (F32, 4, Cuda, Some("does not rotate 4 features")),
        ] {
            let why = attention(dtype, width, target);
            let is_right = match (&why, says) {
                (None, None) => true,
                (Some(why), Some(says)) => why.contains(says),
                _ => false,
            };
            assert!(is_right, "{dtype} {width} {target}: {why:?}");
        }
    }

    #[test]
    fn every_operator_stands_once() {
        for pair in CONTRIB.windows(2) {
            assert!(pair[0].op < pair[1].op, "{} {}", pair[0].op, pair[1].op);
        }
    }
}
