//! Tensors: values in braces, or the location of an external payload.

use bytes::Bytes;
use prost::Message;

use super::cursor::{Cursor, Literal};
use crate::dtype::DType;
use crate::error::Result;
use crate::proto::{
    StringStringEntryProto, TensorProto, TypeProto, tensor_shape_proto::dimension, type_proto,
};
use crate::stored::packed;
use crate::text::element::{Element, count, element};

impl Cursor<'_> {
    /// The encoded tensor; its values are next.
    pub(super) fn tensor(&mut self, ty: &TypeProto, name: &str) -> Result<Vec<u8>> {
        let (dtype, dims) = self.dense(ty)?;
        let mut tensor = TensorProto {
            data_type: Some(dtype.code()),
            name: (!name.is_empty()).then(|| name.to_owned()),
            ..Default::default()
        };
        let start = *self;
        if self.eat(b'{') {
            let got = self.elements(dtype, &mut tensor)?;
            if count(dtype, &dims) != Some(got) {
                let want = count(dtype, &dims);
                let want = want.map_or("too many".to_owned(), |n| n.to_string());
                return Err(start.error(format!(
                    "a tensor of {dtype}{dims:?} needs {want} values, found {got}"
                )));
            }
        } else if self.eat(b'[') {
            tensor.data_location = Some(1);
            tensor.external_data = self.entries()?;
            self.expect(b']')?;
            let elsewhere = |e: &StringStringEntryProto| e.key() == "location";
            if !tensor.external_data.iter().any(elsewhere) {
                return Err(start.error(format!(
                    "the values of {} are elided; write the text with full weights",
                    if name.is_empty() { "the tensor" } else { name },
                )));
            }
        } else {
            return Err(start.error("expected the values of the tensor, in '{' or '['"));
        }
        tensor.dims = dims;
        Ok(tensor.encode_to_vec())
    }

    fn dense(&self, ty: &TypeProto) -> Result<(DType, Vec<i64>)> {
        let Some(type_proto::Value::TensorType(tensor)) = &ty.value else {
            return Err(self.error("only a dense tensor has values"));
        };
        let shape = tensor.shape.as_ref();
        let shape =
            shape.ok_or_else(|| self.error("a tensor with values must have a known rank"))?;
        let dims = shape.dim.iter().map(|d| match d.value {
            Some(dimension::Value::DimValue(n @ 0..)) => Ok(n),
            _ => Err(self.error("dimensions of a tensor with values must be numbers from 0")),
        });
        let dtype = DType::from_code(tensor.elem_type());
        let dtype = dtype.ok_or_else(|| self.error("unknown element type"))?;
        Ok((dtype, dims.collect::<Result<_>>()?))
    }

    /// The values up to the closing brace; returns their number.
    fn elements(&mut self, dtype: DType, tensor: &mut TensorProto) -> Result<usize> {
        let mut raw = vec![];
        let mut got = 0;
        if !self.eat(b'}') {
            loop {
                self.peek();
                let start = *self;
                let literal = self.literal()?;
                start.put(dtype, literal, &mut raw, &mut tensor.string_data)?;
                got += 1;
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'}')?;
        }
        if element(dtype) == Element::Sixes {
            let codes: Vec<i32> = raw.into_iter().map(i32::from).collect();
            raw = packed(&codes);
        }
        if dtype != DType::String {
            tensor.raw_data = Some(raw.into());
        }
        Ok(got)
    }

    /// Appends the value of a literal at this position.
    fn put(
        self,
        dtype: DType,
        literal: Literal<'_>,
        raw: &mut Vec<u8>,
        strings: &mut Vec<Bytes>,
    ) -> Result<()> {
        match (element(dtype), literal) {
            (Element::Text, Literal::Text(text)) => {
                strings.push(Bytes::from(text.into_owned().into_bytes()));
            }
            (Element::F32, Literal::Int(text) | Literal::Float(text)) => {
                raw.extend(self.to_f32(text)?.to_le_bytes());
            }
            (Element::F64, Literal::Int(text) | Literal::Float(text)) => {
                raw.extend(self.to_f64(text)?.to_le_bytes());
            }
            (Element::Bits(bytes), Literal::Int(text)) => {
                let value = self.bits(dtype, text, bytes * 8)?;
                raw.extend_from_slice(&value.to_le_bytes()[..bytes]);
            }
            (Element::Sixes, Literal::Int(text)) => {
                raw.push(self.bits(dtype, text, 6)?.to_le_bytes()[0]);
            }
            (Element::Text, _) => return Err(self.error("expected a quoted string")),
            (Element::F32 | Element::F64, _) => {
                return Err(self.error("expected a number"));
            }
            (Element::Bits(_) | Element::Sixes, _) => {
                return Err(self.error(format!("values of {dtype} must be integers")));
            }
        }
        Ok(())
    }

    /// An integer of this many bits, signed or unsigned.
    fn bits(self, dtype: DType, text: &str, bits: usize) -> Result<i128> {
        let value = text.parse::<i128>().ok();
        let fits = |v: &i128| (-(1 << (bits - 1))..1 << bits).contains(v);
        let value = value.filter(fits);
        value.ok_or_else(|| self.error(format!("{text} does not fit {dtype}")))
    }

    /// `"key": "value", …`
    pub(super) fn entries(&mut self) -> Result<Vec<StringStringEntryProto>> {
        let mut entries = vec![];
        loop {
            let key = self.string()?.into_owned();
            self.expect(b':')?;
            entries.push(StringStringEntryProto {
                key: Some(key),
                value: Some(self.string()?.into_owned()),
            });
            if !self.eat(b',') {
                return Ok(entries);
            }
        }
    }
}
