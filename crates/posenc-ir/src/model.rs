//! Models: a graph and the fields around it.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, ErrorKind, Result};
use crate::external::ExternalDir;
use crate::field::{entry, model as field};
use crate::file::map::Map;
use crate::graph::{self, Graph};
use crate::mistaken::{another, mistaken};
use crate::patch::{Applied, Patch};
use crate::proto::ModelProto;
use crate::wire;

/// A model that was read, with the edits that were committed since.
///
/// The source stays mapped or in memory; tensors are slices of it. Cloning copies the graph but no
/// tensor.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) source: Bytes,
    pub(crate) layout: Vec<Part>,
    pub(crate) graph: Graph,
    pub(crate) metadata: Vec<(String, String)>,
    /// Keys set since reading.
    pub(crate) set: BTreeMap<String, String>,
    /// Operator sets imported since reading, some of them in place of another version.
    pub(crate) imported: BTreeMap<String, i64>,
    /// The version of the file format, where an edit needs a later one than the source has.
    pub(crate) raised: Option<i64>,
    /// The file that the source is a map of, also when another file replaces it.
    pub(crate) file: Option<Arc<File>>,
    /// The map of the source.
    pub(crate) map: Option<Map>,
    pub(crate) head: Head,
    path: Option<PathBuf>,
}

/// The version of the file format from which initializers need not be inputs of their graph too.
const INITIALIZERS_ALONE: i64 = 4;

/// Fields of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    ir_version: i64,
    producer: String,
    pub(crate) opsets: BTreeMap<String, i64>,
}

/// A top-level field of the file.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) span: Range<usize>,
    pub(crate) payload: Range<usize>,
    pub(crate) kind: PartKind,
}

/// What a top-level field contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// The main graph.
    Graph,
    /// Function number n.
    Function(usize),
    /// Metadata of this key.
    Metadata(String),
    /// Import of an operator set.
    Opset,
    /// The version of the file format.
    IrVersion,
    Other,
}

impl Model {
    /// Reads an encoded model from memory. It has no path, so that external data is not found.
    ///
    /// # Errors
    /// When the bytes are not an ONNX model, a name is defined twice, or an input is not defined.
    pub fn from_bytes(source: impl Into<Bytes>) -> Result<Self> {
        Self::read(source.into(), None, &|_| {})
    }

    /// Reads an encoded model from memory as if it were the file at `path`: external data is looked
    /// up in its folder when it is needed. The file itself is not read.
    ///
    /// # Errors
    /// As [`Model::from_bytes`].
    pub fn from_bytes_at(source: impl Into<Bytes>, path: Option<&Path>) -> Result<Self> {
        Self::read(source.into(), path, &|_| {})
    }

    /// Reads an encoded model from memory as if it were the file at `path`, with its files of external
    /// data by their paths relative to it: no folder is looked at.
    ///
    /// # Errors
    /// As [`Model::from_bytes`].
    pub fn from_memory(
        source: impl Into<Bytes>,
        path: &Path,
        files: BTreeMap<PathBuf, Bytes>,
    ) -> Result<Self> {
        let mut model = Self::read(source.into(), Some(path), &|_| {})?;
        model.graph.external_dir = Arc::new(ExternalDir::given(path, files));
        Ok(model)
    }

    /// The same as [`Self::from_bytes_at`]; `passed` is called with the range of each long field after walking over it.
    pub(crate) fn read(
        source: Bytes,
        path: Option<&Path>,
        passed: &dyn Fn(&Range<usize>),
    ) -> Result<Self> {
        if let Some(what) = mistaken(&source) {
            return Err(Error::decode(what));
        }
        Self::parsed(source.clone(), path, passed).map_err(|error| match another(&source) {
            Some(what) if matches!(error.kind(), ErrorKind::Decode(_)) => Error::decode(what),
            _ => error,
        })
    }

    fn parsed(source: Bytes, path: Option<&Path>, passed: &dyn Fn(&Range<usize>)) -> Result<Self> {
        let mut layout = vec![];
        let mut head = Vec::new();
        let mut main = None;
        let mut functions = vec![];
        let mut has_training = false;
        for f in wire::fields(&source, 0..source.len()) {
            let f = f?;
            let mut kind = PartKind::Other;
            match f.number {
                field::GRAPH if f.delimited => {
                    if main.replace(f.payload.clone()).is_some() {
                        return Err(Error::decode("it contains two graphs"));
                    }
                    kind = PartKind::Graph;
                }
                field::FUNCTION if f.delimited => {
                    kind = PartKind::Function(functions.len());
                    functions.push(f.payload.clone());
                }
                field::TRAINING => has_training = true,
                _ => {
                    head.extend_from_slice(&source[f.span.clone()]);
                    if f.number == field::OPSET {
                        kind = PartKind::Opset;
                    } else if f.number == field::IR_VERSION {
                        kind = PartKind::IrVersion;
                    } else if f.number == field::METADATA && f.delimited {
                        kind = PartKind::Metadata(key(&source, &f.payload)?);
                    }
                }
            }
            layout.push(Part {
                span: f.span,
                payload: f.payload,
                kind,
            });
        }
        let head = ModelProto::decode(head.as_slice()).map_err(|e| Error::decode(e.to_string()))?;
        let main = main.ok_or_else(|| Error::decode("it contains no graph"))?;
        let mut graph = graph::read::read(&source, main, &functions, passed)?;
        graph.external_dir = Arc::new(ExternalDir::of(path));
        // Default attributes of functions and training graphs are not read.
        graph.has_external_data |= has_training || !functions.is_empty();
        let metadata = head.metadata_props.iter();
        Ok(Self {
            layout,
            graph,
            metadata: metadata
                .map(|e| (e.key().to_owned(), e.value().to_owned()))
                .collect(),
            set: BTreeMap::new(),
            imported: BTreeMap::new(),
            raised: None,
            file: None,
            map: None,
            path: path.map(Path::to_owned),
            head: Head {
                ir_version: head.ir_version(),
                producer: [head.producer_name(), head.producer_version()]
                    .join(" ")
                    .trim()
                    .to_owned(),
                opsets: head
                    .opset_import
                    .iter()
                    .map(|o| (domain(o.domain()), o.version()))
                    .collect(),
            },
            source,
        })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The file that the model was read from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The bytes that the model was read from.
    pub fn source(&self) -> &Bytes {
        &self.source
    }

    /// The version of the file format.
    pub fn ir_version(&self) -> i64 {
        self.raised.unwrap_or(self.head.ir_version)
    }

    /// The name and version of the exporter.
    pub fn producer(&self) -> &str {
        &self.head.producer
    }

    /// The imported operator sets by domain; the empty domain is ai.onnx.
    pub fn opsets(&self) -> BTreeMap<String, i64> {
        let mut opsets = self.head.opsets.clone();
        opsets.extend(self.imported.clone());
        opsets
    }

    /// The version of ai.onnx; 1 where it is not imported, as before IR version 3.
    pub fn opset(&self) -> i64 {
        let version = self.imported.get("").or_else(|| self.head.opsets.get(""));
        version.copied().unwrap_or(1)
    }

    /// The metadata entry with this key.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.set.get(key).map(String::as_str).or_else(|| {
            let found = self.metadata.iter().find(|(k, _)| k == key);
            found.map(|(_, v)| v.as_str())
        })
    }

    /// Every metadata entry, with those set since reading.
    pub fn metadata_entries(&self) -> BTreeMap<&str, &str> {
        let read = self.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let set = self.set.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        read.chain(set).collect()
    }

    /// Sets a metadata entry, replacing one with the same key.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.set.insert(key.into(), value.into());
    }

    /// Imports an operator set; no change where the model imports the domain already.
    pub fn import_opset(&mut self, domain: &str, version: i64) {
        if !self.head.opsets.contains_key(domain) {
            self.imported.insert(domain.to_owned(), version);
        }
    }

    /// Imports another version of ai.onnx.
    pub(crate) fn set_opset(&mut self, version: i64) {
        self.imported.insert(String::new(), version);
    }

    /// Applies a patch completely or, on an error, not at all.
    ///
    /// # Errors
    /// When the patch was recorded for another state of the graph, or would make nodes depend on
    /// each other in a cycle.
    pub fn commit(&mut self, patch: Patch) -> Result<Applied> {
        let (next, applied) = self.clone().with_patch(patch)?;
        *self = next;
        Ok(applied)
    }

    /// The model with a patch applied. Unlike [`Model::commit`], it does not copy the graph.
    ///
    /// # Errors
    /// As [`Model::commit`]; the model is unusable then.
    pub fn with_patch(mut self, patch: Patch) -> Result<(Self, Applied)> {
        let applied = self.graph.commit(patch)?;
        if !applied.constants.is_empty() && self.ir_version() < INITIALIZERS_ALONE {
            self.raised = Some(INITIALIZERS_ALONE);
        }
        Ok((self, applied))
    }
}

/// The name of a domain; empty for ai.onnx.
pub(crate) fn domain(name: &str) -> String {
    if name == "ai.onnx" { "" } else { name }.to_owned()
}

fn key(source: &Bytes, entry: &Range<usize>) -> Result<String> {
    for f in wire::fields(source, entry.clone()) {
        let f = f?;
        if f.number == entry::KEY && f.delimited {
            return Ok(String::from_utf8_lossy(&source[f.payload]).into_owned());
        }
    }
    Ok(String::new())
}
