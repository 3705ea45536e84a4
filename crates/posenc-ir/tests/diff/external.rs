//! Payloads in other files, of which one does not exist.

use std::fs;
use std::path::Path;

use posenc_ir::proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto};
use posenc_ir::{Diff, Model};
use prost::Message;

/// `y = p + q`; every addend is 16 bytes of a file of its own.
fn sum(places: [(&str, &str); 2]) -> Vec<u8> {
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let weight = |name: &str, (location, offset): (&str, &str)| TensorProto {
        name: Some(name.into()),
        dims: vec![4],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![
            entry("location", location),
            entry("offset", offset),
            entry("length", "16"),
        ],
        ..Default::default()
    };
    let node = NodeProto {
        op_type: Some("Add".into()),
        input: vec!["p".into(), "q".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let [p, q] = places;
    let graph = GraphProto {
        node: vec![node],
        initializer: vec![weight("p", p), weight("q", q)],
        ..Default::default()
    };
    ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        ..Default::default()
    }
    .encode_to_vec()
}

/// A model in a folder with these files.
fn stored(folder: &Path, model: &[u8], files: &[(&str, u8)]) -> Model {
    fs::create_dir(folder).unwrap();
    for (name, byte) in files {
        fs::write(folder.join(name), [*byte; 32]).unwrap();
    }
    let path = folder.join("m.onnx");
    fs::write(&path, model).unwrap();
    Model::open(&path).unwrap()
}

/// The names of the initializers that differ.
fn between(a: &Model, b: &Model) -> Vec<String> {
    let found = Diff::between(a, b).unwrap();
    let others = [&found.nodes, &found.inputs, &found.outputs];
    assert!(others.iter().all(|d| d.is_empty()), "{found:?}");
    let Diff { initializers, .. } = found;
    assert!(initializers.added.is_empty() && initializers.removed.is_empty());
    let changed = initializers.changed.into_iter();
    changed.map(|c| c.a.place).collect()
}

#[test]
fn an_absent_file_does_not_hide_what_differs_in_another() {
    type Files<'a> = &'a [(&'a str, u8)];
    let both: Files<'_> = &[("p.bin", 1), ("q.bin", 2)];
    let cases: [(&str, Files<'_>, &[&str]); 6] = [
        ("all there, alike", both, &[]),
        ("all there", &[("p.bin", 1), ("q.bin", 9)], &["q"]),
        ("one absent, the other alike", &[("q.bin", 2)], &[]),
        ("one absent, the other differs", &[("q.bin", 9)], &["q"]),
        ("the other absent", &[("p.bin", 9)], &["p"]),
        ("all absent", &[], &[]),
    ];
    let model = sum([("p.bin", "0"), ("q.bin", "0")]);
    for (name, files, want) in cases {
        let home = tempfile::tempdir().unwrap();
        let a = stored(&home.path().join("a"), &model, both);
        let b = stored(&home.path().join("b"), &model, files);
        assert_eq!(between(&a, &b), want, "{name}");
        assert_eq!(between(&b, &a), want, "{name}, back");
    }
}

#[test]
fn absent_data_differs_by_location() {
    let home = tempfile::tempdir().unwrap();
    let files = [("p.bin", 1), ("q.bin", 2)];
    let folder = |name: &str| home.path().join(name);
    let places = [
        ("same", ("q.bin", "0"), &[][..]),
        ("after", ("q.bin", "16"), &["q"]),
        ("renamed", ("r.bin", "0"), &["q"]),
    ];
    let a = stored(&folder("a"), &sum([("p.bin", "0"), ("q.bin", "0")]), &files);
    for (name, place, want) in places {
        let b = sum([("p.bin", "0"), place]);
        let b = stored(&folder(name), &b, &files[..1]);
        assert_eq!(between(&a, &b), want, "{name}");
        assert_eq!(between(&b, &a), want, "{name}, back");
    }
}
