//! Models, graphs and patches as text in the official ONNX syntax (onnx/docs/Syntax.md, as the
//! parser of onnx 1.23 reads it), and models from text.
//!
//! Names that are no identifiers are quoted. Large weights are elided, unless they are asked for:
//! they read as tensors whose payload is elsewhere, under the key `sha256`, so that no reader takes
//! them for data. What the syntax has no form for is named by [`ModelText::unsaid`], and by
//! comments at the head of a text that is the whole model.

use crate::dtype::DType;
use crate::model::Model;
use crate::proto::{TensorShapeProto, TypeProto, tensor_shape_proto, type_proto};

mod attribute;
mod element;
mod graph;
mod model;
mod notes;
mod omitted;
mod outline;
mod parse;
mod patch;
mod signs;
mod tensor;

pub use notes::Unsaid;

pub(crate) use attribute::kind;
pub(crate) use outline::{function_head, initializer, node, outline, value, value_type};

use signs::Controls;

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
    controls: Controls,
}

/// The model in the ONNX text syntax. Large models are better streamed: [`Model::text`].
pub fn print(model: &Model, weights: Weights) -> String {
    model.text(weights).to_string()
}

impl Model {
    /// The model in the ONNX text syntax, written when it is displayed.
    ///
    /// With [`Weights::Full`] the text is the whole model, but for what [`ModelText::unsaid`] names,
    /// and [`Model::parse`] reads it back. The others are for people: they leave out the names of
    /// tensors among attributes too, and control characters become signs.
    pub fn text(&self, weights: Weights) -> ModelText<'_> {
        ModelText {
            model: self,
            weights,
            controls: match weights {
                Weights::Full => Controls::Kept,
                Weights::Hash | Weights::None => Controls::Shown,
            },
        }
    }
}

impl ModelText<'_> {
    /// The same text with signs in the place of control characters, which terminals obey.
    #[must_use]
    pub fn for_terminals(mut self) -> Self {
        self.controls = Controls::Shown;
        self
    }
}

/// Words that begin a type, beside the element types.
const TYPE_WORDS: [&str; 5] = ["seq", "map", "optional", "sparse_tensor", "opaque"];

/// Words that stand for types and numbers, and so are quoted as names.
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

/// A name as it stands, where it is an identifier, else quoted.
fn name(name: &str) -> String {
    if is_identifier(name) {
        name.to_owned()
    } else {
        quote(name)
    }
}

/// A string literal: quotes and backslashes are escaped, everything else stands as it is.
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

/// The shortest text that reads back as the same f32, and not as an integer.
fn float(v: f32) -> String {
    if v.is_nan() {
        nan(v.is_sign_negative())
    } else {
        format!("{v:?}")
    }
}

/// The shortest text that reads back as the same f64, and not as an integer.
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
        type_proto::Value::OpaqueType(t) => opaque_text(t.domain(), t.name())?,
    })
}

/// A name may have dots only where there is no domain before it.
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

#[cfg(test)]
mod tests;
