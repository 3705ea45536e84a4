//! Models of one folder that have to encode positions alike.

use std::path::{Path, PathBuf};

use posenc_onnx::report::{Encoding, Inspect};
use serde::Serialize;

use super::Folder;
use super::names::CONFIG;
use crate::inspect::text::encoding;

/// Models of one configuration by the encodings that they share.
#[derive(Debug, Default)]
pub(super) struct Counterparts<'a> {
    /// Indices of models that encode positions alike.
    pub(super) groups: Vec<Vec<usize>>,
    /// Models that should and do not.
    pub(super) disagreements: Vec<Disagreement<'a>>,
}

/// Two models that should encode positions alike and do not.
#[derive(Debug, Serialize)]
pub(super) struct Disagreement<'a> {
    /// Their paths.
    models: [String; 2],
    /// The first encodings that differ; `null` where one has none.
    encodings: [Option<&'a Encoding>; 2],
}

impl Disagreement<'_> {
    /// In one sentence.
    pub(super) fn sentence(&self) -> String {
        let words = self
            .encodings
            .map(|e| e.map_or("none".to_owned(), encoding));
        let ([a, b], [x, y]) = (&self.models, words);
        format!("{a} and {b} belong together and encode positions differently: {x}, and {y}")
    }
}

impl<'a> Counterparts<'a> {
    /// Groups models by what was found in them.
    pub(super) fn of(folder: &Folder, models: &'a [(PathBuf, Inspect)]) -> Self {
        let homes: Vec<PathBuf> = models.iter().map(|(path, _)| home(folder, path)).collect();
        let mut all = Self::default();
        for (at, (path, report)) in models.iter().enumerate() {
            if report.encodings.is_empty() {
                continue;
            }
            let mut disagreement = None;
            let group = all.groups.iter_mut().find(|group| {
                let first = group[0];
                let (other, found) = &models[first];
                if homes[first] != homes[at] || !found.is_counterpart(report) {
                    return false;
                }
                let differing = found.disagreement(report);
                if let Some(encodings) = differing {
                    disagreement.get_or_insert(Disagreement {
                        models: [other, path].map(|path| folder.file(path).display().to_string()),
                        encodings,
                    });
                }
                differing.is_none()
            });
            match group {
                Some(group) => group.push(at),
                None => {
                    all.groups.push(vec![at]);
                    all.disagreements.extend(disagreement);
                }
            }
        }
        all
    }
}

/// Where the configuration of a model is, or else the model.
fn home(folder: &Folder, model: &Path) -> PathBuf {
    let config = folder.nearest(model, CONFIG);
    let file = config.as_deref().unwrap_or(model);
    file.parent().unwrap_or(Path::new("")).to_owned()
}
