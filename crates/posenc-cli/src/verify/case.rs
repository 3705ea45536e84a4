//! A model that was verified with others.

use std::path::Path;

use posenc_onnx::report::Verify;
use serde::Serialize;

use crate::exit::{Exit, sentence};

/// A model, or a rewrite of one.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    pub(super) path: String,
    /// The model that it is rewritten from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) original: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Verify>,
    /// Why there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    pub(super) exit: Exit,
}

impl Case {
    pub(super) fn of(
        path: &Path,
        original: Option<&Path>,
        verified: anyhow::Result<Verify>,
    ) -> Self {
        let words = |path: &Path| path.display().to_string();
        let exit = match &verified {
            Ok(report) if report.ok => Exit::Done,
            Ok(_) => Exit::Difference,
            Err(error) => Exit::of(error),
        };
        let (report, error) = match verified {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(sentence(&error))),
        };
        Self {
            path: words(path),
            original: original.map(words),
            report,
            error,
            exit,
        }
    }

    /// The report, or why there is none.
    pub(super) fn found(&self) -> Result<&Verify, &str> {
        let error = self.error.as_deref().unwrap_or_default();
        self.report.as_ref().ok_or(error)
    }

    /// The path, and that of the model that it is rewritten from.
    pub(super) fn title(&self) -> String {
        match &self.original {
            None => self.path.clone(),
            Some(original) => format!("{} from {original}", self.path),
        }
    }
}
