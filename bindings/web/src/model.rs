//! Models that were dropped on the page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bytes::Bytes;
use posenc_cli::steps::{self, shown};
use posenc_onnx::Model;
use serde_json::Value;

use crate::problem::at;

/// A model that was read, with the name of its file.
#[derive(Debug)]
pub struct Opened {
    pub(crate) model: Model,
    pub(crate) name: String,
}

impl Opened {
    /// Reads and checks a model. `files` are those that were given with it, by their paths relative to
    /// it; tensors that are stored in other files than these are missing.
    ///
    /// # Errors
    /// When the bytes are no valid model.
    pub fn read(name: &str, bytes: Vec<u8>, files: BTreeMap<PathBuf, Bytes>) -> Result<Self> {
        let read = posenc_ir::Model::from_memory(bytes, Path::new(name), files);
        let model = read.and_then(Model::checked);
        let model = model.map_err(|error| at(name, error))?;
        let name = name.to_owned();
        Ok(Self { model, name })
    }

    /// What was found, as tables and drawings.
    ///
    /// # Errors
    /// When a field about data in other files is invalid.
    pub fn inspect(&self) -> Result<Value> {
        let report = steps::inspect(&self.model).map_err(|error| at(&self.name, error))?;
        let mut shown = shown::inspected(&report, &self.model);
        shown["missing"] = self.model.as_ir().missing_external_data()?.into();
        Ok(shown)
    }
}

/// The files that hold tensors of a model, by their paths relative to it; none where the bytes are no
/// model, which [`Opened::read`] refuses.
pub fn data_files(bytes: Bytes) -> Vec<PathBuf> {
    let data = posenc_ir::Model::from_bytes(bytes).and_then(|model| model.external_data());
    let mut all: Vec<PathBuf> = vec![];
    for external in data.unwrap_or_default() {
        // Without `.`; what leads out of the folder is refused when it is read.
        let path: PathBuf = Path::new(&external.location).components().collect();
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");

    fn fixture(path: &str) -> Vec<u8> {
        std::fs::read(format!("{FIXTURES}/{path}")).unwrap()
    }

    #[test]
    fn a_model_is_shown_as_the_command_line_shows_it() {
        let bytes = fixture("llama/dynamo/model.onnx");
        let opened = Opened::read("model.onnx", bytes, BTreeMap::new()).unwrap();
        let shown = opened.inspect().unwrap();
        assert_eq!(shown["encodings"]["rows"][0][0]["text"], "rope");
        assert!(shown["figures"][0].as_str().unwrap().contains("<svg"));
        assert_eq!(shown["missing"], serde_json::json!([]));
    }

    #[test]
    fn what_is_no_model_is_refused_with_its_name() {
        let error = Opened::read("x.onnx", b"no model".to_vec(), BTreeMap::new()).unwrap_err();
        let problem = crate::problem::problem(&error);
        assert_eq!(problem["exit"], 3);
        let sentence = problem["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("x.onnx: "), "{sentence}");
    }
}
