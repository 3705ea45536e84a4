//! Messages in encodings that no exporter writes, with unknown fields: unchanged models are written
//! with the same bytes, and an edit changes no message but the one that it names.

mod model;

use posenc_ir::{DType, Model, ScopeId, Tensor, Use, ValueId};
use posenc_tests::edit::Edit;
use posenc_tests::fuzz::random::Random;
use posenc_tests::fuzz::tree::{Field, Kind, Message, Style, Value};
use posenc_tests::wire;

use model::every_message;

/// An unusual encoding of a message that readers must accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    /// Unknown fields of every wire type in every message.
    Unknown,
    /// Tags, lengths and numbers in more bytes than necessary.
    Long,
    /// Unpacked lists packed, and packed lists unpacked.
    Packing,
    /// Fields of different numbers in another order.
    Order,
    /// All of these.
    All,
}

const ODDITIES: [Oddity; 5] = [
    Oddity::Unknown,
    Oddity::Long,
    Oddity::Packing,
    Oddity::Order,
    Oddity::All,
];

/// The model with every message, in that encoding.
fn odd(oddity: Oddity) -> Vec<u8> {
    let mut tree = Message::parse(Kind::Model, &every_message()).unwrap();
    let mut random = Random::new(11);
    for n in 0..tree.count() {
        let message = tree.nth_mut(n).unwrap();
        if matches!(oddity, Oddity::Packing | Oddity::All) {
            repack(message);
        }
        if matches!(oddity, Oddity::Order | Oddity::All) {
            shuffle(message, &mut random);
        }
        if matches!(oddity, Oddity::Unknown | Oddity::All) {
            plant(message, n, &mut random);
        }
    }
    tree.encode(match oddity {
        Oddity::Long | Oddity::All => Style::Long,
        _ => Style::Canonical,
    })
}

/// Puts fields of every wire type, marked by `n`, into a message.
fn plant(message: &mut Message, n: usize, random: &mut Random) {
    let mark = format!("planted {n}").into_bytes();
    let values = [
        Value::Varint(n as u64),
        Value::Fixed64((n as u64).to_le_bytes()),
        Value::Fixed32((n as u32).to_le_bytes()),
        // A group that contains a number and another group.
        Value::Group(vec![0x08, 0x05, 0x13, 0x14]),
        Value::Bytes(mark),
    ];
    for (i, value) in values.into_iter().enumerate() {
        let number = 1000 + i as u64;
        let at = random.below(message.fields.len() + 1);
        message.fields.insert(at, Field { number, value });
    }
}

/// Packs unpacked lists of numbers, and unpacks packed ones.
fn repack(message: &mut Message) {
    let lists: &[(u64, usize)] = match message.kind {
        // Field, and the bytes of an element; 0 for a varint.
        Kind::Tensor => &[(1, 0), (4, 4), (5, 0), (7, 0), (10, 8), (11, 0)],
        Kind::Attribute => &[(7, 4), (8, 0)],
        Kind::SparseTensor => &[(3, 0)],
        Kind::Sharding | Kind::IntInts => &[(2, 0)],
        _ => &[],
    };
    for (number, width) in lists {
        let is = |f: &Field| f.number == *number;
        let Some(at) = message.fields.iter().position(is) else {
            continue;
        };
        let (list, rest): (Vec<Field>, Vec<Field>) = message.fields.drain(..).partition(is);
        message.fields = rest;
        let new = match &list[0].value {
            Value::Bytes(packed) => unpacked(packed, *number, *width),
            _ => vec![packed(&list, *number)],
        };
        let at = at.min(message.fields.len());
        message.fields.splice(at..at, new);
    }
}

fn packed(list: &[Field], number: u64) -> Field {
    let mut bytes = vec![];
    for field in list {
        match &field.value {
            Value::Fixed32(b) => bytes.extend(b),
            Value::Fixed64(b) => bytes.extend(b),
            _ => {
                // The content of a field with number 1 follows its tag of one byte.
                let mut whole = vec![];
                let one = Field {
                    number: 1,
                    value: field.value.clone(),
                };
                one.encode(Style::Canonical, &mut whole);
                bytes.extend(&whole[1..]);
            }
        }
    }
    let value = Value::Bytes(bytes);
    Field { number, value }
}

fn unpacked(packed: &[u8], number: u64, width: usize) -> Vec<Field> {
    let field = |value| Field { number, value };
    let chunks = packed.chunks(width.max(1));
    match width {
        4 => chunks
            .map(|c| field(Value::Fixed32(c.try_into().unwrap())))
            .collect(),
        8 => chunks
            .map(|c| field(Value::Fixed64(c.try_into().unwrap())))
            .collect(),
        // Every number under 128 is its own varint, and `every_message` has no others.
        _ => chunks.map(|c| field(Value::Varint(c[0].into()))).collect(),
    }
}

/// Moves fields so that those of one number keep their order among themselves.
fn shuffle(message: &mut Message, random: &mut Random) {
    let mut left = std::mem::take(&mut message.fields);
    while !left.is_empty() {
        let number = left[random.below(left.len())].number;
        let first = left.iter().position(|f| f.number == number).unwrap();
        message.fields.push(left.remove(first));
    }
}

/// The innermost messages that differ, as paths; a field that is no message by its number.
fn changed(before: &[u8], after: &[u8]) -> Vec<String> {
    let mut found = vec![];
    differ(Kind::Model, before, after, "", &mut found);
    found
}

fn differ(kind: Kind, before: &[u8], after: &[u8], path: &str, found: &mut Vec<String>) {
    let (old, new) = (wire::fields(before), wire::fields(after));
    let numbers = |l: &[wire::Field<'_>]| -> Vec<u64> { l.iter().map(|f| f.number).collect() };
    if numbers(&old) != numbers(&new) {
        return found.push(path.to_owned());
    }
    for (old, new) in old.iter().zip(&new).filter(|(a, b)| a.whole != b.whole) {
        let child = kind
            .child(old.number)
            .filter(|_| old.kind == 2 && new.kind == 2);
        let here = format!("{path}/{}", label(child, old));
        match child {
            Some(child) if old.payload != new.payload => {
                differ(child, old.payload, new.payload, &here, found);
            }
            // Only its tag or length is encoded differently.
            Some(_) => found.push(format!("{here} header")),
            None => found.push(here),
        }
    }
}

fn label(kind: Option<Kind>, field: &wire::Field<'_>) -> String {
    let name = |number| wire::texts(field.payload, number).concat();
    match kind {
        Some(Kind::Node) => format!("Node {}", name(2)),
        Some(Kind::Tensor) => format!("Tensor {}", name(8)),
        Some(kind @ (Kind::Attribute | Kind::Function)) => format!("{kind:?} {}", name(1)),
        Some(kind) => format!("{kind:?}"),
        None => field.number.to_string(),
    }
}

fn read(bytes: &[u8]) -> Model {
    let model = Model::from_bytes(bytes.to_vec()).unwrap();
    model.check().unwrap();
    model
}

/// A value by its name, in whichever scope.
fn value(model: &Model, name: &str) -> ValueId {
    let graph = model.graph();
    graph.values().find(|v| graph.name(*v) == name).unwrap()
}

/// The one use of a value by the node that computes `output`.
fn use_by(model: &Model, read: ValueId, output: &str) -> Use {
    let graph = model.graph();
    let computes = |u: &&Use| {
        let outputs = graph.node(u.node).outputs();
        outputs.iter().flatten().any(|o| graph.name(*o) == output)
    };
    *graph.uses(read).iter().find(computes).unwrap()
}

fn revalued(bytes: &[u8], name: &str, values: &[f32]) -> Vec<u8> {
    let mut model = read(bytes);
    let id = value(&model, name);
    let scope = model.graph().value(id).scope();
    let uses = model.graph().uses(id).to_vec();
    let mut out = model.graph().emitter(scope, "posenc_test");
    out.replace_constant(id, &uses, Tensor::from_f32(&[values.len()], values))
        .unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    model.to_bytes().unwrap()
}

fn redirected(bytes: &[u8], from: &str, to: &str, reader: &str) -> Vec<u8> {
    let mut model = read(bytes);
    let (from, to) = (value(&model, from), value(&model, to));
    let at = use_by(&model, from, reader);
    let scope: ScopeId = model.graph().node(at.node).scope();
    let mut out = model.graph().emitter(scope, "posenc_test");
    out.redirect_use(from, at, to).unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    model.to_bytes().unwrap()
}

#[test]
fn the_model_has_every_message_type_and_every_oddity_shows() {
    let plain = every_message();
    let mut tree = Message::parse(Kind::Model, &plain).unwrap();
    assert_eq!(tree.encode(Style::Canonical), plain);
    let mut kinds: Vec<Kind> = (0..tree.count())
        .map(|n| tree.nth_mut(n).unwrap().kind)
        .collect();
    kinds.sort();
    kinds.dedup();
    let mut all = Kind::ALL.to_vec();
    all.sort();
    assert_eq!(kinds, all);
    for oddity in ODDITIES {
        assert_ne!(odd(oddity), plain, "{oddity:?}");
    }
}

#[test]
fn odd_messages_are_written_with_the_same_bytes() {
    for oddity in ODDITIES {
        let bytes = odd(oddity);
        let model = read(&bytes);
        assert_eq!(model.to_bytes().unwrap(), bytes, "{oddity:?}");
        // The bytes are odd, the model is not.
        let graph = model.graph();
        assert_eq!(graph.scopes().count(), 4, "{oddity:?}");
        let typed = graph.constant(value(&model, "typed")).unwrap();
        assert_eq!(typed.to_f64s().unwrap(), [1.0, 2.0], "{oddity:?}");
        let counts = graph.constant(value(&model, "counts")).unwrap();
        assert_eq!(counts.to_i64s().unwrap(), [3, 4], "{oddity:?}");
        assert_eq!(graph.dtype(value(&model, "half")), Some(DType::F16));
    }
}

#[test]
fn an_edit_changes_the_message_that_it_names_and_no_other() {
    for oddity in ODDITIES {
        let bytes = odd(oddity);
        let cases = [
            (revalued(&bytes, "raw", &[5.0, 6.0]), "/Graph/Tensor raw"),
            (
                revalued(&bytes, "typed", &[5.0, 6.0]),
                "/Graph/Tensor typed",
            ),
            (
                revalued(&bytes, "held", &[5.0, 6.0]),
                "/Graph/Node held/Attribute value/Tensor held",
            ),
            (
                revalued(&bytes, "inner", &[5.0, 6.0]),
                "/Graph/Node chosen/Attribute then_branch/Graph/Tensor inner",
            ),
            (
                redirected(&bytes, "raw", "typed", "sum"),
                "/Graph/Node sum/1",
            ),
            (
                redirected(&bytes, "x", "sum", "then"),
                "/Graph/Node chosen/Attribute then_branch/Graph/Node then/1",
            ),
            (
                redirected(&bytes, "a", "doubled", "b"),
                "/Function Own/Node b/1",
            ),
        ];
        for (after, want) in cases {
            let found = changed(&bytes, &after);
            // Of the messages around an edited one, only the length changes.
            assert_eq!(found.len(), 1, "{oddity:?}: {found:?}");
            assert!(
                found[0].starts_with(want),
                "{oddity:?}: {} is not {want}",
                found[0]
            );
            read(&after);
        }
    }
}

#[test]
fn a_new_node_leaves_the_bytes_of_its_neighbors() {
    for oddity in ODDITIES {
        let bytes = odd(oddity);
        let mut model = read(&bytes);
        let sum = value(&model, "sum");
        let main = model.graph().main();
        let mut out = model.graph().emitter(main, "posenc_test");
        let two = out.scalar("two", DType::F32, 2.0);
        let twice = out.op("Mul", &[sum, two]);
        out.redirect_use(sum, use_by(&model, sum, "y"), twice)
            .unwrap();
        let patch = out.finish();
        model.commit(patch).unwrap();
        model.set_metadata("posenc.test", "1");
        let edit = Edit::between(&bytes, &model.to_bytes().unwrap());
        assert_eq!(edit.other, [""; 0], "{oddity:?}");
        assert_eq!(edit.added.len(), 1, "{oddity:?}: {:?}", edit.added);
        assert_eq!(edit.constants.len(), 1, "{oddity:?}");
        assert_eq!(edit.rewired.len(), 1, "{oddity:?}: {:?}", edit.rewired);
        assert_eq!(edit.revalued, [], "{oddity:?}");
        assert_eq!(edit.metadata.len(), 1, "{oddity:?}");
    }
}

#[test]
fn a_removed_or_changed_unknown_field_is_noticed_anywhere() {
    let bytes = odd(Oddity::Unknown);
    let tree = Message::parse(Kind::Model, &bytes).unwrap();
    for n in 0..tree.count() {
        let mut changes = tree.clone();
        let message = changes.nth_mut(n).unwrap();
        let planted = message
            .fields
            .iter()
            .position(|f| f.number >= 1000)
            .unwrap();
        let mut without_field = tree.clone();
        without_field.nth_mut(n).unwrap().fields.remove(planted);
        message.fields[planted].value = Value::Varint(1 << 40);
        for damaged in [&without_field, &changes] {
            let damaged = damaged.encode(Style::Canonical);
            assert!(!changed(&bytes, &damaged).is_empty(), "message {n}");
        }
    }
}
