//! What was found in a folder, and what a rewrite of it did. Data only.

use std::path::Path;

use posenc_onnx::report::{ConfigFile, Inspect, Rewrite, SCHEMA};
use serde::Serialize;

use super::counterparts::Disagreement;

/// What was found in a folder.
#[derive(Debug, Serialize)]
pub(super) struct Found<'a> {
    pub(super) schema: u32,
    pub(super) folder: String,
    pub(super) models: Vec<&'a Inspect>,
    /// Models that encode positions alike.
    pub(super) shared: Vec<Vec<String>>,
    /// Models that should and do not.
    pub(super) disagreements: Vec<Disagreement<'a>>,
    /// Models that could not be read, and what is no file of the folder.
    pub(super) errors: Vec<Problem>,
}

/// Something that could not be read.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    path: String,
    pub(super) error: String,
}

impl Problem {
    pub(super) fn of(path: &Path, error: String) -> Self {
        let path = path.display().to_string();
        Self { path, error }
    }
}

/// What a rewrite of a folder did, or would do.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    /// The folder that was read.
    pub(super) input: String,
    /// The folder that was written; `null` for a dry run.
    pub(super) output: Option<String>,
    /// The models that were rewritten.
    pub(super) models: Vec<Rewrite>,
    /// The models that were copied.
    pub(super) kept: Vec<Kept>,
    /// The configurations that changed.
    pub(super) configs: Vec<ConfigFile>,
    /// How many other files were copied.
    pub(super) files: usize,
    /// Hidden folders and dropped models, which were not copied.
    pub(super) left_out: Vec<String>,
    /// What a user should know besides the warnings about models.
    pub(super) warnings: Vec<String>,
    /// Whether every check passed.
    pub(super) ok: bool,
}

/// A model that was copied.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    pub(super) path: String,
    pub(super) why: &'static str,
}

impl Report {
    /// The report of nothing.
    pub(super) fn new(input: String) -> Self {
        Self {
            schema: SCHEMA,
            input,
            output: None,
            models: vec![],
            kept: vec![],
            configs: vec![],
            files: 0,
            left_out: vec![],
            warnings: vec![],
            ok: true,
        }
    }
}
