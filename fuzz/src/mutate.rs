//! Mutations of encoded models that can still be read: a field is removed, doubled, moved, copied
//! from another message or given another value, and the lengths of the outer messages are repaired.

use super::random::Random;
use super::tree::{Field, Kind, Message, Style, Value};

/// Numbers at the edges of what code expects.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    23,
    127,
    128,
    255,
    1 << 16,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Words with a meaning in the format or in the code.
const WORDS: [&str; 58] = [
    "",
    "x",
    "ai.onnx",
    "com.microsoft",
    "Constant",
    "If",
    "Loop",
    "Scan",
    "Identity",
    "Range",
    "Expand",
    "Tile",
    "Gather",
    "GatherND",
    "Slice",
    "Concat",
    "Split",
    "Reshape",
    "Transpose",
    "Unsqueeze",
    "Squeeze",
    "Shape",
    "ConstantOfShape",
    "Pad",
    "Where",
    "CumSum",
    "Einsum",
    "MatMul",
    "Softmax",
    "Cast",
    "Div",
    "Mod",
    "Pow",
    "Trilu",
    "OneHot",
    "ScatterND",
    "NonZero",
    "SequenceAt",
    "ReduceSum",
    "Sin",
    "RotaryEmbedding",
    "Attention",
    "axis",
    "axes",
    "perm",
    "equation",
    "location",
    "offset",
    "length",
    "data.bin",
    "sub/data.bin",
    "../secret.bin",
    "link.bin",
    "pipe",
    "folder",
    "out/secret.bin",
    "value",
    "\u{0}",
];

/// A model that differs from `model` in one to four places; at most `limit` bytes.
pub fn model(bytes: &[u8], limit: usize, random: &mut Random) -> Vec<u8> {
    let tree = Message::parse(Kind::Model, bytes).filter(|_| random.below(10) > 0);
    let Some(mut tree) = tree else {
        return blind(bytes, limit, random);
    };
    for _ in 0..=random.below(4) {
        step(&mut tree, random);
    }
    let style = if random.below(16) == 0 {
        Style::Long
    } else {
        Style::Canonical
    };
    let changed = tree.encode(style);
    if changed.len() > limit {
        return blind(bytes, limit, random);
    }
    changed
}

/// Words and signs of the text syntax.
const TOKENS: [&str; 40] = [
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "=>",
    "?",
    "!",
    "\"",
    "\\",
    "#",
    "-",
    "float",
    "int64",
    "string",
    "float8e4m3fn",
    "int4",
    "complex64",
    "seq",
    "optional",
    "map",
    "sparse_tensor",
    "nan",
    "-inf",
    "1e400",
    "-0.0",
    "18446744073709551616",
    "0x1p",
    "ir_version",
    "opset_import",
    "external",
    "graph",
    "@",
    "\u{7f}",
];

/// A text that differs from `bytes` in one to four tokens; at most `limit` bytes.
pub fn text(bytes: &[u8], limit: usize, random: &mut Random) -> Vec<u8> {
    let same = |a: &u8, b: &u8| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric();
    let mut tokens: Vec<&[u8]> = bytes.chunk_by(same).collect();
    for _ in 0..=random.below(4) {
        let at = random.below(tokens.len());
        let other = random.below(tokens.len());
        let word = match random.below(3) {
            0 => random.pick(&WORDS).as_bytes(),
            _ => random.pick(&TOKENS).as_bytes(),
        };
        match random.below(8) {
            0 if !tokens.is_empty() => drop(tokens.remove(at)),
            1 if !tokens.is_empty() => tokens.swap(at, other),
            2 if !tokens.is_empty() => tokens.insert(at, tokens[other]),
            3 | 4 if !tokens.is_empty() => tokens[at] = word,
            5 if !tokens.is_empty() => {
                let (from, to) = (at.min(other), at.max(other).min(at + 12));
                let part: Vec<&[u8]> = tokens.get(from..to).unwrap_or_default().to_vec();
                tokens.splice(from..from, part);
            }
            // Deep, or long.
            6 if random.below(8) == 0 => {
                let many = std::iter::repeat_n(word, 1 << random.below(15));
                tokens.splice(at..at, many);
            }
            _ => tokens.insert(at, word),
        }
    }
    let mut changed = tokens.concat();
    changed.truncate(limit);
    changed
}

/// Bytes flipped, removed or inserted at any offset.
pub fn blind(bytes: &[u8], limit: usize, random: &mut Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed.truncate(limit);
    for _ in 0..=random.below(3) {
        let at = random.below(changed.len());
        match random.below(4) {
            0 if !changed.is_empty() => changed[at] ^= 1 << random.below(8),
            1 if !changed.is_empty() => changed[at] = random.bits() as u8,
            2 => changed.truncate(at),
            _ if changed.len() < limit => changed.insert(at, random.bits() as u8),
            _ => {}
        }
    }
    changed
}

fn step(tree: &mut Message, random: &mut Random) {
    let count = tree.count();
    // A message to copy from, and a name that the model has.
    let donor = tree.nth_mut(random.below(count)).map(|m| m.clone());
    let Some(donor) = donor else { return };
    let name = name(tree, random);
    let Some(target) = target(tree, count, random) else {
        return;
    };
    if target.fields.is_empty() {
        target.fields.push(unknown(random));
        return;
    }
    let at = random.below(target.fields.len());
    let other = random.below(target.fields.len());
    match random.below(12) {
        0 => drop(target.fields.remove(at)),
        1 => target.fields.insert(other, target.fields[at].clone()),
        2 => target.fields.swap(at, other),
        3 => target.fields.insert(at, unknown(random)),
        4 if donor.kind == target.kind => target.fields = donor.fields,
        4 | 5 => {
            let same = donor
                .fields
                .iter()
                .find(|f| f.number == target.fields[at].number);
            if let Some(field) = same.filter(|_| donor.kind == target.kind) {
                target.fields[at] = field.clone();
            } else {
                change(&mut target.fields[at].value, name, random);
            }
        }
        6 => target.fields[at].number = 1 + random.below(26) as u64,
        _ => change(&mut target.fields[at].value, name, random),
    }
}

/// Any message; nodes and their parts more often than types and shapes.
fn target<'a>(tree: &'a mut Message, count: usize, random: &mut Random) -> Option<&'a mut Message> {
    for _ in 0..4 {
        let n = random.below(count);
        let kind = tree.nth_mut(n)?.kind;
        if !matches!(
            kind,
            Kind::Dimension | Kind::Shape | Kind::TensorType | Kind::Type
        ) {
            return tree.nth_mut(n);
        }
    }
    tree.nth_mut(random.below(count))
}

/// A name of a value somewhere in the main graph.
fn name(tree: &Message, random: &mut Random) -> Option<Vec<u8>> {
    let graph = tree.messages(7).next()?;
    let at = random.below(graph.fields.len());
    let Value::Message(message) = &graph.fields.get(at)?.value else {
        return None;
    };
    let number = match message.kind {
        Kind::Node => 1 + random.below(2) as u64,
        Kind::Tensor => 8,
        _ => 1,
    };
    let texts = message.texts(number);
    (!texts.is_empty()).then(|| random.pick(&texts).to_vec())
}

fn unknown(random: &mut Random) -> Field {
    let value = match random.below(5) {
        0 => Value::Varint(*random.pick(&NUMBERS)),
        1 => Value::Fixed64(random.bits().to_le_bytes()),
        2 => Value::Fixed32((random.bits() as u32).to_le_bytes()),
        3 => Value::Group(vec![0x08, 0x01]),
        _ => Value::Bytes(random.pick(&WORDS).as_bytes().to_vec()),
    };
    let number = match random.below(2) {
        0 => 1 + random.below(30) as u64,
        _ => 1000 + random.below(1 << 20) as u64,
    };
    Field { number, value }
}

fn change(value: &mut Value, name: Option<Vec<u8>>, random: &mut Random) {
    match value {
        Value::Varint(v) => {
            *v = match random.below(4) {
                0 => v.wrapping_add(1),
                1 => v.wrapping_sub(1),
                2 => random.below(30) as u64,
                _ => *random.pick(&NUMBERS),
            }
        }
        Value::Fixed64(bytes) => *bytes = random.bits().to_le_bytes(),
        Value::Fixed32(bytes) => {
            let floats = [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MAX, 1e-40, 0.5];
            *bytes = random.pick(&floats).to_le_bytes();
        }
        Value::Bytes(bytes) => change_bytes(bytes, name, random),
        Value::Message(message) => {
            if !message.fields.is_empty() {
                let at = random.below(message.fields.len());
                message.fields.truncate(at);
            }
        }
        Value::Group(bytes) => bytes.clear(),
    }
}

fn change_bytes(bytes: &mut Vec<u8>, name: Option<Vec<u8>>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.push(random.bits() as u8),
        2 if !bytes.is_empty() => bytes[at] = random.bits() as u8,
        // An element of a payload.
        3 | 4 if bytes.len() >= 8 => {
            let at = random.below(bytes.len() / 8) * 8;
            let number = match random.below(2) {
                0 => *random.pick(&NUMBERS),
                _ => random.below(64) as u64,
            };
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        5 => *bytes = random.pick(&WORDS).as_bytes().to_vec(),
        6 if bytes.len() < 32 => *bytes = NUMBERS[random.below(NUMBERS.len())].to_string().into(),
        _ => match name {
            Some(name) if bytes.len() < 256 => *bytes = name,
            _ => bytes.rotate_left(at),
        },
    }
}
