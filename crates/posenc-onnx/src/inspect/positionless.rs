//! Graphs that do not encode positions, as those of embeddings or of a head on top of others.

use posenc_ir::{Model, Node};

use super::entries;
use crate::detect::branches::branches;
use crate::detect::{Found, Options};
use crate::graph::mixing::Mixing;
use crate::plan::unread::of_branch;
use crate::spelling;

/// Whether nothing in a model can encode a position: no encoding was found, everything was read, outside of
/// attention tokens meet in nothing but means and sums, and no numbers that change from token to token meet them.
pub(crate) fn encodes_no_position(model: &Model, options: &Options) -> bool {
    let (read, error) = spelling::as_read(model, &options.roles);
    let read = read.as_ref().unwrap_or(model);
    error.is_none()
        && branches(read, options)
            .iter()
            .all(|branch| is_without(read, &branch.found))
}

fn is_without(model: &Model, found: &Found) -> bool {
    let mixes = found.mixers.iter().any(|m| m.mixing != Mixing::Pooling);
    // Without attention, it may be unknown which axis holds the tokens.
    let is_known = !found.attention.is_empty() || !model.graph().nodes().any(|(_, n)| has_order(n));
    !mixes
        && is_known
        && found.has_no_encoding()
        && entries(model, found).is_empty()
        && of_branch(model, found).is_empty()
}

/// Whether an operator may treat elements of an axis by their order, whatever the axis holds.
fn has_order(node: &Node) -> bool {
    let is_standard = matches!(node.domain(), "" | "ai.onnx" | "com.microsoft");
    !is_standard
        || matches!(
            node.op(),
            "LSTM"
                | "GRU"
                | "RNN"
                | "DynamicQuantizeLSTM"
                | "Scan"
                | "Loop"
                | "Conv"
                | "ConvInteger"
                | "QLinearConv"
                | "FusedConv"
                | "ConvTranspose"
                | "CumSum"
                | "DFT"
                | "STFT"
                | "Rfft"
                | "Irfft"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_read_an_order_is_not_taken_for_positionless() {
        let is_without = |path: &str| {
            let path = format!("{}/../../fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
            encodes_no_position(&Model::open(path).unwrap(), &Options::default())
        };
        for (path, want) in [
            ("bad/passthrough.onnx", true),
            ("mini/none/model.onnx", true),
            ("bad/rnn-lstm.onnx", false),
            ("mini/conv/model.onnx", false),
            ("mini/rope/model.onnx", false),
            ("mini/sinusoidal/model.onnx", false),
        ] {
            assert_eq!(is_without(path), want, "{path}");
        }
    }

    #[test]
    fn what_is_added_to_embeddings_counts_without_attention_too() {
        let is_without = |added: &str| {
            let text = format!(
                "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                 g (int64[batch,sequence] input_ids) => (float[batch,sequence,2] y)\n\
                 <float[3,2] words = {{1, 2, 3, 4, 5, 6}}, float[8,2] table = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, \
                 6, 5, 4, 3, 2}}, float[2] same = {{1, 2}}, int64 zero = {{0}}, int64 one = {{1}}> {{\n\
                 e = Gather(words, input_ids) shape = Shape(input_ids) n = Gather(shape, one)\n\
                 places = Range(zero, n, one) rows = Gather(table, places) cast = Cast <to = 1> (places)\n\
                 column = Unsqueeze(cast, one)\n\
                 {added}\n}}"
            );
            encodes_no_position(&Model::parse(&text).unwrap(), &Options::default())
        };
        assert!(is_without("y = Add(e, same)"));
        assert!(is_without("y = Identity(e)"));
        for added in [
            "y = Add(e, rows)",
            "y = Mul(e, rows)",
            "y = Sub(rows, e)",
            "y = Mul(e, column)",
        ] {
            assert!(!is_without(added), "{added}");
        }
    }
}
