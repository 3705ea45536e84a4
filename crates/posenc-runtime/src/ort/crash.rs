//! What ends the process when ONNX Runtime runs it, and is refused before it does.

use memchr::memmem;
use posenc_ir::Model;

use super::error::NAME;
use crate::backend::ModelSource;
use crate::error::{Result, RuntimeError};

/// A node's operator `Attention`, as a file contains it: the tag of the field, its length and the word.
const ATTENTION: &[u8] = b"\x22\x09Attention";

/// Refuses `Attention` of com.microsoft without a bias, whose kernel for the processor reads the bias all the same
/// (ONNX Runtime 1.31). A model that cannot be read is left to the runtime.
///
/// # Errors
/// With the place of the node.
pub(super) fn check(source: &ModelSource<'_>) -> Result<()> {
    let model = match source {
        ModelSource::File(path) => Model::open(path),
        ModelSource::Bytes { model, .. } if memmem::find(model, ATTENTION).is_some() => {
            Model::from_bytes(model.to_vec())
        }
        ModelSource::Bytes { .. } => return Ok(()),
    };
    let Ok(model) = model else { return Ok(()) };
    let graph = model.graph();
    let is_without = |node: &posenc_ir::Node| {
        (node.domain(), node.op()) == ("com.microsoft", "Attention") && node.input(2).is_none()
    };
    match graph.nodes().find(|(_, node)| is_without(node)) {
        None => Ok(()),
        Some((id, _)) => Err(RuntimeError::unsupported(
            NAME,
            format!(
                "{}: Attention of com.microsoft without a bias ends the process on the processor",
                graph.place(id)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(operator: &str, domain: &str) -> Result<()> {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17, \"com.microsoft\" : 1]>\n\
             g (float[1,2,4] x, float[4,12] w, float[12] b) => (float[1,2,4] y) {{\n\
             y = {domain}{operator}\n}}"
        );
        let bytes = Model::parse(&text).unwrap().to_bytes().unwrap();
        check(&ModelSource::Bytes {
            model: &bytes,
            folder: None,
        })
    }

    #[test]
    fn attention_without_a_bias_is_refused() {
        let error = checked("Attention <num_heads = 2> (x, w)", "com.microsoft.").unwrap_err();
        assert!(error.to_string().contains("without a bias"), "{error}");
        let error = checked("Attention <num_heads = 2> (x, w, \"\")", "com.microsoft.");
        assert!(error.is_err());
    }

    #[test]
    fn other_nodes_are_not() {
        for (operator, domain) in [
            ("Attention <num_heads = 2> (x, w, b)", "com.microsoft."),
            ("Attention (x, w)", ""),
            ("Add(x, x)", ""),
        ] {
            assert!(checked(operator, domain).is_ok(), "{operator}");
        }
        let nothing = ModelSource::Bytes {
            model: ATTENTION,
            folder: None,
        };
        assert!(check(&nothing).is_ok());
    }
}
