//! Types of values.

use super::cursor::Cursor;
use crate::dtype::DType;
use crate::error::Result;
use crate::proto::{TensorShapeProto, TypeProto, tensor_shape_proto, type_proto};
use crate::text::TYPE_WORDS;

/// The deepest nesting of types.
const MAX_DEPTH: usize = 64;

impl Cursor<'_> {
    /// Whether the next word starts a type.
    pub(super) fn is_type(&self) -> bool {
        let word = self.peek_word();
        DType::from_name(word).is_some() || TYPE_WORDS.contains(&word)
    }

    pub(super) fn type_proto(&mut self) -> Result<TypeProto> {
        self.nested_type(0)
    }

    fn nested_type(&mut self, depth: usize) -> Result<TypeProto> {
        use type_proto::{Map, Opaque, Optional, Sequence, SparseTensor, Tensor, Value};
        if depth > MAX_DEPTH {
            return Err(self.error(format!("types are nested more than {MAX_DEPTH} deep")));
        }
        let start = *self;
        let word = self.identifier()?;
        let value = if let Some(dtype) = DType::from_name(word) {
            Value::TensorType(Tensor {
                elem_type: Some(dtype.code()),
                shape: self.shape()?,
            })
        } else if TYPE_WORDS.contains(&word) {
            self.expect(b'(')?;
            let value = match word {
                "seq" => Value::SequenceType(Box::new(Sequence {
                    elem_type: Some(Box::new(self.nested_type(depth + 1)?)),
                })),
                "optional" => Value::OptionalType(Box::new(Optional {
                    elem_type: Some(Box::new(self.nested_type(depth + 1)?)),
                })),
                "map" => {
                    let key = self.element_type()?;
                    self.expect(b',')?;
                    Value::MapType(Box::new(Map {
                        key_type: Some(key.code()),
                        value_type: Some(Box::new(self.nested_type(depth + 1)?)),
                    }))
                }
                "sparse_tensor" => Value::SparseTensorType(SparseTensor {
                    elem_type: Some(self.element_type()?.code()),
                    shape: self.shape()?,
                }),
                _ => {
                    let (domain, name) = self.opaque()?;
                    Value::OpaqueType(Opaque { domain, name })
                }
            };
            self.expect(b')')?;
            value
        } else {
            return Err(start.error(format!("{word} is not a type")));
        };
        Ok(TypeProto {
            denotation: None,
            value: Some(value),
        })
    }

    fn element_type(&mut self) -> Result<DType> {
        let start = *self;
        let word = self.identifier()?;
        DType::from_name(word).ok_or_else(|| start.error(format!("{word} is not an element type")))
    }

    /// Domain and name: empty, `name`, or `domain, name`; all but the last may have dots.
    fn opaque(&mut self) -> Result<(Option<String>, Option<String>)> {
        if self.peek() == b')' {
            return Ok((None, None));
        }
        let mut first = self.identifier()?.to_owned();
        while self.eat(b'.') {
            first.push('.');
            first.push_str(self.identifier()?);
        }
        Ok(if self.eat(b',') {
            (Some(first), Some(self.identifier()?.to_owned()))
        } else {
            (None, Some(first))
        })
    }

    /// The dimensions; empty for a scalar, `[]` for an unknown rank.
    fn shape(&mut self) -> Result<Option<TensorShapeProto>> {
        let mut shape = TensorShapeProto::default();
        if self.eat(b'[') {
            if self.eat(b']') {
                return Ok(None);
            }
            loop {
                shape.dim.push(self.dimension()?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b']')?;
        }
        Ok(Some(shape))
    }

    fn dimension(&mut self) -> Result<tensor_shape_proto::Dimension> {
        use tensor_shape_proto::dimension::Value;
        let value = if self.eat(b'?') {
            None
        } else if let Some(name) = self.name_if_any()? {
            Some(Value::DimParam(name.into_owned()))
        } else {
            Some(Value::DimValue(self.int()?))
        };
        Ok(tensor_shape_proto::Dimension {
            denotation: None,
            value,
        })
    }
}
