//! Encoded protobuf messages as fields, read without a schema and without the crates under test.

use std::ops::Range;

/// Field numbers of `ModelProto`.
pub mod model {
    /// The graph.
    pub const GRAPH: u64 = 7;
    /// A metadata entry: key 1, value 2.
    pub const METADATA: u64 = 14;
}

/// Field numbers of `GraphProto`.
pub mod graph {
    /// A node.
    pub const NODE: u64 = 1;
    /// An initializer.
    pub const INITIALIZER: u64 = 5;
}

/// Field numbers of `NodeProto`.
pub mod node {
    /// The name of an input.
    pub const INPUT: u64 = 1;
    /// The name of an output.
    pub const OUTPUT: u64 = 2;
    /// The node's name.
    pub const NAME: u64 = 3;
    /// The operator.
    pub const OP: u64 = 4;
    /// An attribute.
    pub const ATTRIBUTE: u64 = 5;
}

/// Field number of a tensor in an `AttributeProto`.
pub const ATTRIBUTE_TENSOR: u64 = 5;

/// Field numbers of `TensorProto`.
pub mod tensor {
    /// A dimension.
    pub const DIMS: u64 = 1;
    /// The element type.
    pub const DTYPE: u64 = 2;
    /// Elements as single floats.
    pub const FLOATS: u64 = 4;
    /// The name.
    pub const NAME: u64 = 8;
    /// Elements as bytes.
    pub const RAW: u64 = 9;
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field<'a> {
    /// Its number.
    pub number: u64,
    /// How it is encoded: 0 varint, 1 eight bytes, 2 with a length, 3 a group, 5 four bytes.
    pub kind: u64,
    /// Its content, without tag and length.
    pub payload: &'a [u8],
    /// All bytes of the field.
    pub whole: &'a [u8],
}

impl Field<'_> {
    /// The payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.payload).into_owned()
    }
}

/// The fields of a message, in order.
///
/// # Panics
/// When the bytes are not a message.
pub fn fields(bytes: &[u8]) -> Vec<Field<'_>> {
    let mut found = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let tag = varint(bytes, &mut at);
        let payload = payload(bytes, tag & 7, &mut at);
        found.push(Field {
            number: tag >> 3,
            kind: tag & 7,
            payload: &bytes[payload],
            whole: &bytes[start..at],
        });
    }
    found
}

/// The fields of that number.
pub fn all<'a>(bytes: &'a [u8], number: u64) -> impl Iterator<Item = Field<'a>> {
    fields(bytes)
        .into_iter()
        .filter(move |f| f.number == number)
}

/// The texts of the fields of that number.
pub fn texts(bytes: &[u8], number: u64) -> Vec<String> {
    all(bytes, number).map(|f| f.text()).collect()
}

/// The payload of a varint field.
///
/// # Panics
/// When it is not a varint, or does not fit `usize`.
pub fn number(payload: &[u8]) -> usize {
    let value = varint(payload, &mut 0);
    usize::try_from(value).expect("a count fits")
}

fn payload(bytes: &[u8], kind: u64, at: &mut usize) -> Range<usize> {
    let start = *at;
    match kind {
        0 => {
            varint(bytes, at);
        }
        1 => *at += 8,
        2 => {
            let len = usize::try_from(varint(bytes, at)).expect("a length fits");
            let start = *at;
            *at += len;
            return start..*at;
        }
        3 => loop {
            let end = *at;
            let tag = varint(bytes, at);
            if tag & 7 == 4 {
                return start..end;
            }
            payload(bytes, tag & 7, at);
        },
        5 => *at += 4,
        other => panic!("wire type {other} at byte {start}"),
    }
    start..*at
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes before byte {at}");
}
