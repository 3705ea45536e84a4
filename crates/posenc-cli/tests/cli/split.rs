//! Models whose tensors are stored in other files.

use posenc_ir::proto::{ModelProto, StringStringEntryProto, TensorProto};
use posenc_ir::{Model, Payload};
use prost::Message;

use crate::run::Folder;

/// A decoder with rotary positions that was trained on 64 positions.
pub(crate) fn llama() -> Vec<u8> {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    std::fs::read(format!("{fixtures}/llama/torchscript/model.onnx")).unwrap()
}

/// What makes another model of it.
pub(crate) const YARN: [&str; 6] = [
    "--scale",
    "yarn",
    "--factor",
    "4",
    "--original-length",
    "64",
];

/// Which tensors move out of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// Those of more than a kilobyte.
    Weights,
    /// Every initializer and constant with a raw payload.
    All,
}

/// Writes the decoder as `m.onnx`, with its tensors in `location`; returns its path.
pub(crate) fn split(folder: &Folder, location: &str, out: Out) -> String {
    let mut proto = ModelProto::decode(llama().as_slice()).unwrap();
    let mut data = vec![];
    let graph = proto.graph.as_mut().unwrap();
    let nodes = graph.node.iter_mut().filter(|n| n.op_type() == "Constant");
    let constants = nodes.filter_map(|n| n.attribute[0].t.as_mut());
    for tensor in graph.initializer.iter_mut().chain(constants) {
        move_out(tensor, location, out, &mut data);
    }
    assert!(data.len() > 1 << 16, "there is something to move");
    if let Some((inner, _)) = location.rsplit_once('/') {
        std::fs::create_dir_all(folder.path().join(inner)).unwrap();
    }
    folder.file(location, data);
    folder.file("m.onnx", proto.encode_to_vec())
}

fn move_out(tensor: &mut TensorProto, location: &str, out: Out, data: &mut Vec<u8>) {
    let Some(raw) = tensor.raw_data.take() else {
        return;
    };
    if out == Out::Weights && raw.len() <= 1 << 10 {
        tensor.raw_data = Some(raw);
        return;
    }
    data.resize(data.len().next_multiple_of(64), 0);
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value),
    };
    tensor.data_location = Some(1);
    tensor.external_data = vec![
        entry("location", location.into()),
        entry("offset", data.len().to_string()),
        entry("length", raw.len().to_string()),
    ];
    data.extend_from_slice(&raw);
}

/// The messages of a model in a file.
pub(crate) fn decoded(path: &str) -> ModelProto {
    ModelProto::decode(std::fs::read(path).unwrap().as_slice()).unwrap()
}

/// Gives the initializers that are stored outside the model another location.
pub(crate) fn relocate(proto: &mut ModelProto, location: &str) {
    let graph = proto.graph.as_mut().unwrap();
    let entries = graph
        .initializer
        .iter_mut()
        .flat_map(|t| &mut t.external_data);
    for entry in entries.filter(|e| e.key() == "location") {
        entry.value = Some(location.into());
    }
}

/// Name, type and bytes of every constant, wherever it is stored; and how many are stored outside
/// the model.
pub(crate) fn constants(path: &str) -> (Vec<(String, String)>, usize) {
    let model = Model::open(path).unwrap();
    model.check().unwrap();
    let graph = model.graph();
    let mut elsewhere = 0;
    let mut found: Vec<(String, String)> = graph
        .values()
        .filter_map(|v| {
            let stored = graph.stored(v)?;
            let bytes = match &stored.payload {
                Payload::External(external) => {
                    elsewhere += 1;
                    model.load(external).unwrap()
                }
                _ => stored.tensor().unwrap().bytes().clone(),
            };
            let (name, dtype) = (graph.name(v), stored.dtype);
            Some((
                name.to_owned(),
                format!("{dtype:?} {:?} {bytes:?}", stored.dims),
            ))
        })
        .collect();
    found.sort();
    (found, elsewhere)
}
