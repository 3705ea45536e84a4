use std::path::Path;

use prost::Message as _;

use super::*;
use crate::error::ErrorKind;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, SparseTensorProto,
    StringStringEntryProto, attribute_proto::AttributeType,
};
use crate::samples::{floats, import, model_proto, node, untyped, with_bodies};
use crate::tensor::Tensor;

/// Eight bytes of `w.bin`, the `n`th in it.
fn outside(name: &str, n: u8) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value),
    };
    TensorProto {
        name: Some(name.into()),
        dims: vec![2],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![
            entry("checksum", "abc".into()),
            entry("location", "w.bin".into()),
            entry("offset", (u32::from(n) * 8).to_string()),
            entry("length", "8".into()),
        ],
        ..Default::default()
    }
}

fn inside(name: &str, n: u8) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![2],
        data_type: Some(1),
        raw_data: Some(vec![n; 8].into()),
        ..Default::default()
    }
}

fn attribute(name: &str, t: TensorProto) -> AttributeProto {
    let mut a = AttributeProto {
        name: Some(name.into()),
        t: Some(t),
        ..Default::default()
    };
    a.set_type(AttributeType::Tensor);
    a
}

/// Tensors wherever they can occur, made by `tensor`.
fn everywhere(tensor: fn(&str, u8) -> TensorProto) -> ModelProto {
    let with = |op: &str, out: &str, a: AttributeProto| {
        let inputs: &[&str] = if op == "Constant" { &[] } else { &["c"] };
        let mut n = node(op, inputs, &[out]);
        n.attribute.push(a);
        n
    };
    let body = GraphProto {
        initializer: vec![tensor("b", 1)],
        node: vec![
            with("Constant", "bc", attribute("value", tensor("", 2))),
            node("Add", &["b", "bc"], &["o"]),
        ],
        output: vec![untyped("o")],
        ..Default::default()
    };
    let other = GraphProto {
        output: vec![untyped("c")],
        ..Default::default()
    };
    let mut many = node("Own", &["w"], &["many"]);
    many.attribute.push(AttributeProto {
        name: Some("list".into()),
        tensors: vec![tensor("", 3), inside("", 9), tensor("", 4)],
        r#type: Some(AttributeType::Tensors as i32),
        ..Default::default()
    });
    let graph = GraphProto {
        initializer: vec![tensor("w", 0), floats("own", &[3.0])],
        sparse_initializer: vec![SparseTensorProto {
            values: Some(tensor("sparse", 5)),
            indices: Some(TensorProto {
                dims: vec![2],
                data_type: Some(7),
                int64_data: vec![0, 1],
                ..Default::default()
            }),
            dims: vec![4],
        }],
        node: vec![
            with(
                "ConstantOfShape",
                "filled",
                attribute("value", tensor("", 6)),
            ),
            with_bodies(
                node("If", &["c"], &["i"]),
                vec![("then_branch", body), ("else_branch", other)],
            ),
            many,
            node("Add", &["i", "own"], &["y"]),
        ],
        input: vec![untyped("c")],
        output: vec![untyped("y"), untyped("many"), untyped("filled")],
        ..Default::default()
    };
    ModelProto {
        functions: vec![FunctionProto {
            name: Some("F".into()),
            domain: Some("own".into()),
            output: vec!["f".into()],
            node: vec![with("Constant", "f", attribute("value", tensor("", 7)))],
            opset_import: vec![import("", 17)],
            ..Default::default()
        }],
        ..model_proto(graph)
    }
}

/// A folder with `w.bin`, in which the `n`th eight bytes are `n`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..8).flat_map(|n| [n; 8]).collect();
    std::fs::write(folder.path().join("w.bin"), bytes).unwrap();
    folder
}

/// The messages with a graph for training, and a field that the format does not have.
fn bytes(proto: &ModelProto, trained: TensorProto) -> Vec<u8> {
    let mut bytes = proto.encode_to_vec();
    let graph = GraphProto {
        initializer: vec![trained],
        ..Default::default()
    };
    let mut training = vec![];
    wire::put_bytes(1, &graph.encode_to_vec(), &mut training);
    wire::put_bytes(20, &training, &mut bytes);
    wire::put_bytes(1007, b"unknown", &mut bytes);
    bytes
}

fn read(bytes: Vec<u8>, folder: &Path) -> Model {
    let model = Model::from_bytes_at(bytes, Some(&folder.join("m.onnx"))).unwrap();
    model.check().unwrap();
    model
}

fn put_together(model: &Model, encoded: &Encoded) -> Vec<u8> {
    let bytes = encoded.to_vec(model.source());
    assert_eq!(bytes.len(), encoded.len());
    bytes
}

#[test]
fn external_tensors_are_found_everywhere() {
    let folder = folder();
    let model = read(bytes(&everywhere(outside), outside("t", 0)), folder.path());
    let found = model.external_in(&model.encode().unwrap()).unwrap();
    let mut places: Vec<u64> = found.iter().map(|e| e.offset / 8).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 0, 1, 2, 3, 4, 5, 6, 7]);
    let model = read(bytes(&everywhere(inside), inside("t", 0)), folder.path());
    assert_eq!(model.external_in(&model.encode().unwrap()).unwrap(), []);
}

#[test]
fn embedding_restores_the_model_without_external_data() {
    let folder = folder();
    let model = read(bytes(&everywhere(outside), outside("t", 0)), folder.path());
    let embedded = model.embedded(&model.encode().unwrap()).unwrap();
    let want = bytes(&everywhere(inside), inside("t", 0));
    assert_eq!(put_together(&model, &embedded), want);
    let again = model.embedded(&embedded).unwrap();
    assert_eq!(
        put_together(&model, &again),
        want,
        "nothing is left to embed"
    );
}

#[test]
fn another_location_changes_nothing_else() {
    let folder = folder();
    let source = bytes(&everywhere(outside), outside("t", 0));
    let model = read(source.clone(), folder.path());
    let encoded = model.encode().unwrap();
    let moved = |from: &str, to: &str| {
        let places = BTreeMap::from([(from.to_owned(), to.to_owned())]);
        let moved = model.relocated(&encoded, &places).unwrap();
        put_together(&model, &moved)
    };
    assert_eq!(moved("other.bin", "x"), source);
    let there = moved("w.bin", "a/longer/name.bin");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("a/longer")).unwrap();
    std::fs::copy(at("w.bin"), at("a/longer/name.bin")).unwrap();
    assert_ne!(there, source);
    let other = read(there, folder.path());
    let encoded_there = other.encode().unwrap();
    let found = other.external_in(&encoded_there).unwrap();
    assert!(found.iter().all(|e| e.location == "a/longer/name.bin"));
    assert_eq!(found.len(), 9);
    let back = BTreeMap::from([("a/longer/name.bin".to_owned(), "w.bin".to_owned())]);
    let back = other.relocated(&encoded_there, &back).unwrap();
    assert_eq!(put_together(&other, &back), source);
}

#[test]
fn an_edited_model_is_embedded_as_if_it_had_been_written_and_read_first() {
    let folder = folder();
    let mut model = read(bytes(&everywhere(outside), outside("t", 0)), folder.path());
    let graph = model.graph();
    let own = crate::samples::find(graph, "own");
    let body = crate::samples::find(graph, "b");
    let mut emitter = graph.emitter(graph.main(), "new");
    let more = emitter.op("Neg", &[own]);
    emitter.redirect(own, more).unwrap();
    let seen = graph.uses(body).to_vec();
    emitter
        .replace_constant(body, &seen, Tensor::from_f32(&[2], &[1.0, 2.0]))
        .unwrap();
    let patch = emitter.finish();
    model.commit(patch).unwrap();
    let encoded = model.encode().unwrap();
    let plain = put_together(&model, &encoded);
    let embedded = put_together(&model, &model.embedded(&encoded).unwrap());
    let again = read(plain, folder.path());
    let want = put_together(&again, &again.embedded(&again.encode().unwrap()).unwrap());
    assert_eq!(embedded, want);
    let places = again.external_in(&again.encode().unwrap()).unwrap();
    assert_eq!(
        places.len(),
        8,
        "the value that changed is in the model now"
    );
}

#[test]
fn what_cannot_be_embedded_is_refused_with_its_place() {
    let folder = folder();
    type Break = fn(&mut TensorProto);
    let cases: [(&str, Break, &str); 5] = [
        (
            "absent",
            |t| t.external_data[1].value = Some("no.bin".into()),
            "No such file",
        ),
        (
            "above",
            |t| t.external_data[1].value = Some("../w.bin".into()),
            "leads out",
        ),
        (
            "beyond the end",
            |t| t.external_data[2].value = Some("60".into()),
            "64 bytes, fewer than",
        ),
        (
            "another length",
            |t| t.external_data[3].value = Some("4".into()),
            "it needs 8",
        ),
        (
            "no type",
            |t| t.data_type = Some(99),
            "the element type of the tensor is unknown",
        ),
    ];
    for (name, spoil, want) in cases {
        let mut proto = everywhere(inside);
        let mut tensor = outside("", 0);
        spoil(&mut tensor);
        let graph = proto.graph.as_mut().unwrap();
        graph.node[0].attribute[0].t = Some(tensor);
        let path = folder.path().join("m.onnx");
        let model = Model::from_bytes_at(proto.encode_to_vec(), Some(&path)).unwrap();
        let error = model.embedded(&model.encode().unwrap()).unwrap_err();
        assert!(error.to_string().contains(want), "{name}: {error}");
        assert_eq!(error.place(), Some("filled_node"), "{name}");
    }
}

#[test]
fn a_result_that_is_too_large_is_refused_before_anything_is_written() {
    let folder = folder();
    let length = 1u64 << 31;
    let large = std::fs::File::create(folder.path().join("w.bin")).unwrap();
    large.set_len(length).unwrap();
    let mut tensor = outside("w", 0);
    tensor.dims = vec![1 << 31];
    tensor.data_type = Some(2);
    tensor.external_data[3].value = Some(length.to_string());
    let proto = model_proto(GraphProto {
        initializer: vec![tensor],
        output: vec![untyped("w")],
        ..Default::default()
    });
    let model = read(proto.encode_to_vec(), folder.path());
    let encoded = model.encode().unwrap();
    let embedded = model.embedded(&encoded).unwrap();
    let out = folder.path().join("out.onnx");
    let error = model.write_encoded(&embedded, &out).unwrap_err();
    let ErrorKind::TooLarge { bytes } = error.kind() else {
        panic!("{error}");
    };
    assert_eq!(*bytes, embedded.len());
    assert!(!out.exists());
    model.write_encoded(&encoded, &out).unwrap();
    assert!(out.exists());
}
