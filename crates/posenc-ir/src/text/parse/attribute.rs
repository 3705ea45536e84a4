//! Attributes of nodes and functions.

use prost::Message;

use super::cursor::{Cursor, Literal};
use crate::error::Result;
use crate::field::attribute as field;
use crate::proto::attribute_proto::AttributeType;
use crate::text::attribute::{TYPES, type_name};
use crate::wire::{put_bytes, put_int, put_varint};

/// One value: its type, and its encoding without a tag.
struct Single {
    kind: AttributeType,
    /// The value of an integer, which may be written for a float.
    int: i64,
    encoded: Vec<u8>,
}

impl Cursor<'_> {
    /// `<name = value, …>`: the encoded attributes; none without `<`.
    pub(super) fn attributes(&mut self, depth: usize) -> Result<Vec<Vec<u8>>> {
        let mut found = vec![];
        if self.eat(b'<') {
            loop {
                let name = self.identifier()?;
                found.push(self.attribute(name, depth)?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'>')?;
        }
        Ok(found)
    }

    /// The encoded attribute with this name; its type or value is next.
    pub(super) fn attribute(&mut self, name: &str, depth: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        put_bytes(field::NAME, name.as_bytes(), &mut out);
        let mut declared = None;
        if self.eat(b':') {
            let start = *self;
            let word = self.identifier()?;
            let ty = TYPES.iter().copied().find(|t| type_name(*t) == word);
            let wrong = || start.error(format!("{word} is not a type of attributes"));
            declared = Some(ty.ok_or_else(wrong)?);
        }
        self.expect(b'=')?;
        let kind = if self.eat(b'@') {
            let reference = self.name()?;
            put_bytes(field::REFERENCE, reference.as_bytes(), &mut out);
            declared
        } else if self.eat(b'[') {
            Some(self.list(declared, depth, &mut out)?)
        } else {
            let start = *self;
            let value = start.fitting(self.single(depth)?, declared)?;
            put(value.kind, &value.encoded, false, &mut out);
            Some(value.kind)
        };
        if let Some(kind) = kind {
            put_int(field::TYPE, kind as u64, &mut out);
        }
        Ok(out)
    }

    /// The values up to the closing bracket; returns the type of the list.
    fn list(
        &mut self,
        declared: Option<AttributeType>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<AttributeType> {
        if self.peek() == b']' {
            let ty = declared.filter(|ty| one_of(*ty) != *ty);
            let wrong = "an empty list needs the type of a list: `name : ints = []`";
            let ty = ty.ok_or_else(|| self.error(wrong))?;
            self.expect(b']')?;
            return Ok(ty);
        }
        let mut kind = declared.map(one_of);
        loop {
            self.peek();
            let start = *self;
            if self.eat(b'@') {
                return Err(start.error("a list cannot contain a reference"));
            }
            let value = start.fitting(self.single(depth)?, kind)?;
            kind = Some(value.kind);
            put(value.kind, &value.encoded, true, out);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']')?;
        Ok(kind.map_or(AttributeType::Undefined, many_of))
    }

    /// The value, where it has the expected type. An integer is accepted as a float.
    fn fitting(self, value: Single, expected: Option<AttributeType>) -> Result<Single> {
        let Some(expected) = expected.filter(|expected| *expected != value.kind) else {
            return Ok(value);
        };
        if expected == AttributeType::Float && value.kind == AttributeType::Int {
            return Ok(Single {
                kind: expected,
                encoded: (value.int as f32).to_le_bytes().to_vec(),
                ..value
            });
        }
        let got = type_name(value.kind);
        Err(self.error(format!("expected {}, found {got}", type_name(expected))))
    }

    fn single(&mut self, depth: usize) -> Result<Single> {
        use AttributeType as T;
        let of = |kind, encoded| Single {
            kind,
            int: 0,
            encoded,
        };
        let first = self.peek();
        let is_word = first.is_ascii_alphabetic() || first == b'_';
        if is_word && self.is_type() {
            let ty = self.type_proto()?;
            let next = self.peek();
            if matches!(next, b'{' | b'=' | b'[' | b'"') || !self.peek_word().is_empty() {
                let name = self.name_if_any()?.unwrap_or_default();
                self.eat(b'=');
                return Ok(of(T::Tensor, self.tensor(&ty, &name)?));
            }
            return Ok(of(T::TypeProto, ty.encode_to_vec()));
        }
        if is_word && !self.is_number_word() {
            return Ok(of(T::Graph, self.graph(depth + 1)?));
        }
        let start = *self;
        Ok(match self.literal()? {
            Literal::Text(text) => of(T::String, text.into_owned().into_bytes()),
            Literal::Float(text) => of(T::Float, start.to_f32(text)?.to_le_bytes().to_vec()),
            Literal::Int(text) => {
                let int = start.to_int(text)?;
                let mut encoded = vec![];
                put_varint(int as u64, &mut encoded);
                Single {
                    kind: T::Int,
                    int,
                    encoded,
                }
            }
        })
    }
}

/// Writes a value into the field of its type, or of the list of its type.
fn put(kind: AttributeType, encoded: &[u8], listed: bool, out: &mut Vec<u8>) {
    use AttributeType as T;
    let [one, many] = match kind {
        T::Float => [2, 7],
        T::Int => [3, 8],
        T::String => [4, 9],
        T::Tensor => [5, 10],
        T::Graph => [6, 11],
        _ => [14, 15],
    };
    let number = if listed { many } else { one };
    let wire_type = match kind {
        T::Float => 5,
        T::Int => 0,
        _ => return put_bytes(number, encoded, out),
    };
    put_varint(u64::from(number) << 3 | wire_type, out);
    out.extend_from_slice(encoded);
}

/// The type of the elements of a list type; other types are returned as they are.
fn one_of(ty: AttributeType) -> AttributeType {
    use AttributeType as T;
    match ty {
        T::Floats => T::Float,
        T::Ints => T::Int,
        T::Strings => T::String,
        T::Tensors => T::Tensor,
        T::Graphs => T::Graph,
        T::SparseTensors => T::SparseTensor,
        T::TypeProtos => T::TypeProto,
        other => other,
    }
}

/// The list type of these elements.
fn many_of(ty: AttributeType) -> AttributeType {
    let list = |t: &&AttributeType| **t != ty && one_of(**t) == ty;
    TYPES.iter().find(list).copied().unwrap_or(ty)
}
