//! Models, graphs and patches as text in the official ONNX syntax (onnx/docs/Syntax.md, as the
//! parser of onnx 1.23 reads it), and models from text.
//!
//! Names that are not identifiers are quoted. Large weights are elided by default: they are written
//! like external tensors with the key `sha256`, so that no parser takes them for data. Parts of a
//! model that the syntax cannot express are listed by [`ModelText::omissions`], and in comments at the
//! start of a full text.

use crate::dtype::DType;
use crate::model::Model;
use crate::proto::{TensorShapeProto, TypeProto, tensor_shape_proto, type_proto};

mod attribute;
mod controls;
mod element;
mod graph;
mod model;
mod notes;
mod omitted;
mod outline;
mod parse;
mod patch;
mod tensor;

pub use notes::Omission;

pub(crate) use attribute::kind;
pub(crate) use outline::{function_head, initializer, node, outline, value, value_type};

use controls::Controls;

/// Tensors up to this many elements are written in full by every [`Weights`].
pub const SMALL: usize = 8;

/// How the payloads of larger tensors are written. External payloads are never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The first twelve digits of the payload's sha256.
    Hash,
    /// Every element.
    Full,
    /// Their length in bytes; no payload is read.
    None,
}

/// A model that prints itself; see [`Model::text`].
#[derive(Clone, Copy, Debug)]
pub struct ModelText<'a> {
    model: &'a Model,
    weights: Weights,
    controls: Controls,
}

/// The model in the ONNX text syntax. Large models are better streamed: [`Model::text`].
pub fn print(model: &Model, weights: Weights) -> String {
    model.text(weights).to_string()
}

impl Model {
    /// The model in the ONNX text syntax, written when it is displayed.
    ///
    /// With [`Weights::Full`] the text is the whole model, except for what [`ModelText::omissions`]
    /// lists, and [`Model::parse`] reads it. The others are for display: they also omit the names of
    /// tensors in attributes, and show control characters as symbols.
    pub fn text(&self, weights: Weights) -> ModelText<'_> {
        ModelText {
            model: self,
            weights,
            controls: match weights {
                Weights::Full => Controls::Keep,
                Weights::Hash | Weights::None => Controls::Show,
            },
        }
    }
}

impl ModelText<'_> {
    /// The text with symbols instead of control characters, which terminals would interpret.
    #[must_use]
    pub fn for_terminals(mut self) -> Self {
        self.controls = Controls::Show;
        self
    }
}

/// Words that start a type, besides the element types.
const TYPE_WORDS: [&str; 5] = ["seq", "map", "optional", "sparse_tensor", "opaque"];

/// Whether the word is a type or a number, and quoted as a name.
fn is_keyword(name: &str) -> bool {
    DType::from_name(name).is_some()
        || TYPE_WORDS.contains(&name)
        || ["inf", "infinity", "nan"]
            .iter()
            .any(|word| name.eq_ignore_ascii_case(word))
}

/// Letters, digits and `_`, with no digit first.
fn is_word(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_identifier(name: &str) -> bool {
    is_word(name) && !is_keyword(name)
}

/// A name, quoted unless it is an identifier.
fn name(name: &str) -> String {
    if is_identifier(name) {
        name.to_owned()
    } else {
        quote(name)
    }
}

/// A string literal, with quotes and backslashes escaped.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// The shortest text of the f32 that is not an integer literal.
fn float(v: f32) -> String {
    if v.is_nan() {
        nan(v.is_sign_negative())
    } else {
        format!("{v:?}")
    }
}

/// The shortest text of the f64 that is not an integer literal.
fn double(v: f64) -> String {
    if v.is_nan() {
        nan(v.is_sign_negative())
    } else {
        format!("{v:?}")
    }
}

fn nan(negative: bool) -> String {
    if negative { "-nan" } else { "nan" }.to_owned()
}

/// The type in the syntax; `None` where it cannot be expressed.
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
        type_proto::Value::OpaqueType(t) => opaque_text(t.domain(), t.name())?,
    })
}

/// A name may have dots only where there is no domain.
fn opaque_text(domain: &str, name: &str) -> Option<String> {
    let dotted = |text: &str| text.split('.').all(is_word);
    match (domain, name) {
        ("", "") => Some("opaque()".to_owned()),
        ("", name) => dotted(name).then(|| format!("opaque({name})")),
        (domain, name) => {
            (dotted(domain) && is_word(name)).then(|| format!("opaque({domain}, {name})"))
        }
    }
}

/// The dimensions; `[]` for an unknown rank, empty for a scalar.
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
    if shape.dim.is_empty() {
        return String::new();
    }
    let dims: Vec<String> = shape.dim.iter().map(dim).collect();
    format!("[{}]", dims.join(","))
}

#[cfg(test)]
mod tests;
