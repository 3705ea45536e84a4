//! Encoded ONNX messages as trees that can be changed and encoded with correct lengths.
//!
//! This reads protobuf without the crates under test, so that it can check them.

macro_rules! kinds {
    ($($kind:ident,)*) => {
        /// A message type of ONNX.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are those of the format")]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
        }
    };
}

kinds! {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Segment,
    ValueInfo,
    Type,
    TensorType,
    SequenceType,
    MapType,
    OptionalType,
    SparseType,
    OpaqueType,
    Shape,
    Dimension,
    Function,
    OperatorSet,
    Entry,
    SparseTensor,
    Annotation,
    Training,
    NodeDevice,
    Sharding,
    IntInts,
    ShardedDim,
    SimpleShardedDim,
    Device,
}

impl Kind {
    /// The type of the messages in a field of this one; `None` for other fields.
    pub fn child(self, number: u64) -> Option<Self> {
        use Kind::*;
        Some(match (self, number) {
            (Model, 7) => Graph,
            (Model, 8) | (Function, 9) => OperatorSet,
            (Model, 14) | (Graph, 16) | (Node, 9) | (Function, 14) => Entry,
            (Model, 20) => Training,
            (Model, 25) => Function,
            (Model, 26) => Device,
            (Graph, 1) | (Function, 7) => Node,
            (Graph, 5) | (Attribute, 5 | 10) | (SparseTensor, 1 | 2) => Tensor,
            (Graph, 15) | (Attribute, 22 | 23) => SparseTensor,
            (Graph, 11..=13) | (Function, 12) => ValueInfo,
            (Graph, 14) => Annotation,
            (Node, 5) | (Function, 11) => Attribute,
            (Node, 10) => NodeDevice,
            (Attribute, 6 | 11) | (Training, 1 | 2) => Graph,
            (Attribute, 14 | 15) | (ValueInfo, 2) => Type,
            (Tensor, 3) => Segment,
            (Tensor, 13 | 16) | (ValueInfo, 4) | (Annotation, 2) | (Training, 3 | 4) => Entry,
            (Type, 1) => TensorType,
            (Type, 4) => SequenceType,
            (Type, 5) => MapType,
            (Type, 7) => OpaqueType,
            (Type, 8) => SparseType,
            (Type, 9) => OptionalType,
            (TensorType | SparseType, 2) => Shape,
            (SequenceType | OptionalType, 1) | (MapType, 2) => Type,
            (Shape, 1) => Dimension,
            (NodeDevice, 2) => Sharding,
            (Sharding, 3) => IntInts,
            (Sharding, 4) => ShardedDim,
            (ShardedDim, 2) => SimpleShardedDim,
            _ => return None,
        })
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its type.
    pub kind: Kind,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its number.
    pub number: u64,
    /// Its content.
    pub value: Value,
}

/// The content of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Text, bytes, or a packed list.
    Bytes(Vec<u8>),
    /// A message.
    Message(Message),
    /// The bytes between the tags of a group.
    Group(Vec<u8>),
}

/// How numbers, tags and lengths are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// In as few bytes as possible.
    Canonical,
    /// In more bytes than necessary.
    Long,
}

/// The depth to which nested messages are parsed; deeper ones stay bytes.
const DEPTH: usize = 40;

impl Message {
    /// Parses a message; `None` where the bytes are not one.
    pub fn parse(kind: Kind, bytes: &[u8]) -> Option<Self> {
        Self::parse_within(kind, bytes, DEPTH)
    }

    fn parse_within(kind: Kind, bytes: &[u8], depth: usize) -> Option<Self> {
        let mut fields = vec![];
        let mut at = 0;
        while at < bytes.len() {
            let tag = varint(bytes, &mut at)?;
            let number = tag >> 3;
            let value = match tag & 7 {
                0 => Value::Varint(varint(bytes, &mut at)?),
                1 => Value::Fixed64(take(bytes, &mut at, 8)?.try_into().ok()?),
                2 => {
                    let len = usize::try_from(varint(bytes, &mut at)?).ok()?;
                    let content = take(bytes, &mut at, len)?;
                    let child = kind.child(number).filter(|_| depth > 0);
                    let inner = child.and_then(|k| Self::parse_within(k, content, depth - 1));
                    inner.map_or_else(|| Value::Bytes(content.to_vec()), Value::Message)
                }
                3 => Value::Group(group(bytes, &mut at)?.to_vec()),
                5 => Value::Fixed32(take(bytes, &mut at, 4)?.try_into().ok()?),
                _ => return None,
            };
            fields.push(Field { number, value });
        }
        Some(Self { kind, fields })
    }

    /// The message in bytes.
    pub fn encode(&self, style: Style) -> Vec<u8> {
        let mut out = vec![];
        for field in &self.fields {
            field.encode(style, &mut out);
        }
        out
    }

    /// The number of messages in it, including itself.
    pub fn count(&self) -> usize {
        1 + self.children().map(Self::count).sum::<usize>()
    }

    /// Message `n`, in depth-first order from 0, which is this one.
    pub fn nth_mut(&mut self, n: usize) -> Option<&mut Self> {
        if n == 0 {
            return Some(self);
        }
        let mut left = n - 1;
        for field in &mut self.fields {
            if let Value::Message(child) = &mut field.value {
                let count = child.count();
                if left < count {
                    return child.nth_mut(left);
                }
                left -= count;
            }
        }
        None
    }

    /// The messages that are fields of this one.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.fields.iter().filter_map(|f| match &f.value {
            Value::Message(child) => Some(child),
            _ => None,
        })
    }

    /// The messages in the fields of that number.
    pub fn messages(&self, number: u64) -> impl Iterator<Item = &Self> {
        let fields = self.fields.iter().filter(move |f| f.number == number);
        fields.filter_map(|f| match &f.value {
            Value::Message(child) => Some(child),
            _ => None,
        })
    }

    /// The text in the fields of that number.
    pub fn texts(&self, number: u64) -> Vec<&[u8]> {
        let fields = self.fields.iter().filter(move |f| f.number == number);
        let texts = fields.filter_map(|f| match &f.value {
            Value::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        texts.collect()
    }
}

impl Field {
    /// Writes tag and content.
    pub fn encode(&self, style: Style, out: &mut Vec<u8>) {
        let wire = match &self.value {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Bytes(_) | Value::Message(_) => 2,
            Value::Group(_) => 3,
            Value::Fixed32(_) => 5,
        };
        put(self.number << 3 | wire, 5, style, out);
        let content = match &self.value {
            Value::Varint(value) => return put(*value, 10, style, out),
            Value::Fixed64(bytes) => return out.extend(bytes),
            Value::Fixed32(bytes) => return out.extend(bytes),
            Value::Group(bytes) => {
                out.extend(bytes);
                return put(self.number << 3 | 4, 5, style, out);
            }
            Value::Bytes(bytes) => bytes,
            Value::Message(message) => &message.encode(style),
        };
        put(content.len() as u64, 10, style, out);
        out.extend(content);
    }
}

/// Writes a number, in up to `most` bytes where it may be long.
fn put(mut value: u64, most: usize, style: Style, out: &mut Vec<u8>) {
    let start = out.len();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    if style == Style::Long {
        let last = out.len() - 1;
        let more = most.saturating_sub(out.len() - start).min(2);
        if more > 0 {
            out[last] |= 0x80;
            out.extend(std::iter::repeat_n(0x80, more - 1));
            out.push(0);
        }
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, len: usize) -> Option<&'a [u8]> {
    let end = at.checked_add(len)?;
    let taken = bytes.get(*at..end)?;
    *at = end;
    Some(taken)
}

/// The bytes of a group after its start tag, up to its end tag.
fn group<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let start = *at;
    let mut depth = 1usize;
    loop {
        let end = *at;
        match varint(bytes, at)? & 7 {
            0 => drop(varint(bytes, at)?),
            1 => drop(take(bytes, at, 8)?),
            2 => {
                let len = usize::try_from(varint(bytes, at)?).ok()?;
                take(bytes, at, len)?;
            }
            3 => depth += 1,
            4 => depth -= 1,
            5 => drop(take(bytes, at, 4)?),
            _ => return None,
        }
        if depth == 0 {
            return bytes.get(start..end);
        }
    }
}
