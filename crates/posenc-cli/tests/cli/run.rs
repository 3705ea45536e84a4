//! Running the binary on small models.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use posenc_ir::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto};
use prost::Message;

/// What a run wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary in an environment of its own: no colors, no home, no runtime but the built-in.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posenc-onnx"));
    command.env_clear();
    command
}

/// Runs the binary with these words.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Ran {
    ran(binary().args(words).output().unwrap())
}

pub(crate) fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code().expect("the process was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

impl Ran {
    /// One sentence on stderr, nothing on stdout, nothing that looks like a crash.
    pub(crate) fn failed(&self, code: i32, what: &str) {
        let Self { out, err, .. } = self;
        assert_eq!(self.code, code, "{what}: {err}");
        assert_eq!(out, "", "{what}");
        assert!(err.starts_with("error: "), "{what}: {err}");
        assert_eq!(err.trim_end().lines().count(), 1, "{what}: {err}");
        assert!(!err.contains("panicked"), "{what}: {err}");
    }
}

/// A folder with models in it.
#[derive(Debug)]
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The names of the files in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name();
        let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The path of a file in it.
    pub(crate) fn place(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file; returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path: PathBuf = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// `y = x + w`, without any attention.
pub(crate) fn addition() -> ModelProto {
    let node = NodeProto {
        name: Some("sum".into()),
        op_type: Some("Add".into()),
        input: vec!["x".into(), "w".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let weight = TensorProto {
        name: Some("w".into()),
        dims: vec![16],
        data_type: Some(1),
        raw_data: Some(vec![0u8; 64].into()),
        ..Default::default()
    };
    let value = |name: &str| posenc_ir::proto::ValueInfoProto {
        name: Some(name.into()),
        ..Default::default()
    };
    let graph = GraphProto {
        name: Some("g".into()),
        node: vec![node],
        initializer: vec![weight],
        input: vec![value("x")],
        output: vec![value("y")],
        ..Default::default()
    };
    ModelProto {
        ir_version: Some(8),
        producer_name: Some("hand".into()),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(graph),
        ..Default::default()
    }
}

/// The bytes of a model.
pub(crate) fn bytes(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}
