//! Models, graphs and patches as text in the official ONNX syntax (onnx/docs/Syntax.md, as the
//! parser of onnx 1.23 reads it).
//!
//! Names that are no identifiers are quoted. Large weights are elided: they read as tensors whose
//! payload is elsewhere, under the key `sha256`, so that no reader takes them for data. The syntax
//! has no form for documentation and metadata of nodes and values, for sparse tensors, and for
//! some names; a comment at the head says what was written differently.

use std::fmt;

use crate::dtype::DType;
use crate::model::Model;
use crate::proto::{TensorShapeProto, TypeProto, tensor_shape_proto, type_proto};

mod attribute;
mod graph;
mod model;
mod patch;
mod tensor;

/// Tensors up to this many elements are written in full by every [`Weights`].
pub const SMALL: usize = 8;

/// How the payloads of larger tensors are written. Payloads of other files are never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The first twelve digits of the payload's sha256.
    Hash,
    /// Every element.
    Full,
    /// Their length in bytes; nothing is read.
    None,
}

/// A model that prints itself; see [`Model::text`].
#[derive(Clone, Copy, Debug)]
pub struct ModelText<'a> {
    model: &'a Model,
    weights: Weights,
}

/// The model in the ONNX text syntax. Large models are better streamed: [`Model::text`].
pub fn print(model: &Model, weights: Weights) -> String {
    model.text(weights).to_string()
}

impl Model {
    /// The model in the ONNX text syntax, written when it is displayed.
    pub fn text(&self, weights: Weights) -> ModelText<'_> {
        ModelText {
            model: self,
            weights,
        }
    }
}

/// Words that stand for types and numbers, and so cannot be names.
fn is_keyword(name: &str) -> bool {
    DType::from_name(name).is_some()
        || ["seq", "map", "optional", "sparse_tensor", "opaque"].contains(&name)
        || ["inf", "infinity", "nan"].contains(&name.to_ascii_lowercase().as_str())
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_keyword(name)
}

/// A name as it stands, where it is an identifier, else quoted.
fn name(name: &str) -> String {
    if is_identifier(name) {
        name.to_owned()
    } else {
        quote(name)
    }
}

/// A string literal. The syntax escapes quotes and backslashes only, the parser ends at NUL, and
/// terminals obey the rest: control characters but tab and line feed become their pictures.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' | '\t' => out.push(c),
            c => out.push(picture(c)),
        }
    }
    out.push('"');
    out
}

/// What is shown for a control character; any other is itself.
fn picture(c: char) -> char {
    match c {
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or(c),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// The shortest text that reads back as the same f32, and not as an integer.
fn float(v: f32) -> String {
    if v.is_nan() {
        "nan".to_owned()
    } else {
        format!("{v:?}")
    }
}

/// The shortest text that reads back as the same f64, and not as an integer.
fn double(v: f64) -> String {
    if v.is_nan() {
        "nan".to_owned()
    } else {
        format!("{v:?}")
    }
}

/// The type as the syntax writes it; `None` where there is nothing to write.
fn type_text(proto: &TypeProto) -> Option<String> {
    let inner = |t: &Option<Box<TypeProto>>| t.as_deref().and_then(type_text);
    Some(match proto.value.as_ref()? {
        type_proto::Value::TensorType(t) => {
            format!(
                "{}{}",
                DType::from_code(t.elem_type())?,
                shape_text(t.shape.as_ref())
            )
        }
        type_proto::Value::SparseTensorType(t) => {
            let dtype = DType::from_code(t.elem_type())?;
            format!("sparse_tensor({dtype}{})", shape_text(t.shape.as_ref()))
        }
        type_proto::Value::SequenceType(t) => format!("seq({})", inner(&t.elem_type)?),
        type_proto::Value::OptionalType(t) => format!("optional({})", inner(&t.elem_type)?),
        type_proto::Value::MapType(t) => {
            let key = DType::from_code(t.key_type())?;
            format!("map({key}, {})", inner(&t.value_type)?)
        }
        type_proto::Value::OpaqueType(_) => "opaque()".to_owned(),
    })
}

/// `[]` is an unknown rank, nothing a scalar.
fn shape_text(shape: Option<&TensorShapeProto>) -> String {
    use tensor_shape_proto::dimension::Value;
    let Some(shape) = shape else {
        return "[]".to_owned();
    };
    let dim = |d: &tensor_shape_proto::Dimension| match &d.value {
        Some(Value::DimValue(n)) => n.to_string(),
        Some(Value::DimParam(s)) if !s.is_empty() => name(s),
        _ => "?".to_owned(),
    };
    match shape.dim.is_empty() {
        true => String::new(),
        false => format!(
            "[{}]",
            shape.dim.iter().map(dim).collect::<Vec<_>>().join(",")
        ),
    }
}

/// Takes text and keeps nothing of it but whether characters were replaced: for a first pass that
/// only looks for what must be noted.
#[derive(Default)]
struct Probe {
    replaced: bool,
}

impl fmt::Write for Probe {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let made = |c| matches!(c, '\u{2400}'..='\u{2421}' | char::REPLACEMENT_CHARACTER);
        // Most text is ASCII, which is told apart fast.
        self.replaced |= !text.is_ascii() && text.contains(made);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
