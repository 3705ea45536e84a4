//! Saving the rewritten model with its external data.

use std::path::{Path, PathBuf};

use posenc_encodings::words;
use posenc_ir::external::{self, PlaceProblem, SaveError};
use posenc_ir::{ErrorKind, Model};

use crate::exit::Failure;
use crate::model;

words! {
    /// What happens to tensors in other files.
    "treatment of external data" ExternalData {
        /// Keep in the same folder, else copy.
        Auto = "auto",
        /// Reference the same file.
        Keep = "keep",
        /// Make a hard link, which some readers refuse.
        Link = "link",
        /// Copy it, by sharing its blocks where the file system can.
        Copy = "copy",
        /// Embed it.
        Inline = "inline",
    } default Auto
}

/// Saves the model to `output`; returns a warning about data with several names.
///
/// # Errors
/// As [`Model::save`]; what `input` lacks is an error of the model, everything else of the command
/// line.
pub fn save(
    model: &Model,
    input: &Path,
    output: &Path,
    mode: ExternalData,
) -> anyhow::Result<Option<String>> {
    match model.save(output, policy(mode)) {
        Ok(saved) => Ok(names(&saved.linked)),
        Err(SaveError::Model(error)) => model::named(input, Err(error)),
        Err(error) => Err(Failure::usage(sentence(&error, mode)).into()),
    }
}

/// A warning about hard links; `None` without any.
fn names(linked: &[PathBuf]) -> Option<String> {
    let files: Vec<String> = linked.iter().map(|p| p.display().to_string()).collect();
    (!files.is_empty()).then(|| {
        format!(
            "{} has several hard links now: tools such as recent versions of onnx refuse such data, \
             also for the model that was read; --external-data copy avoids that",
            files.join(", ")
        )
    })
}

fn policy(mode: ExternalData) -> external::ExternalData {
    match mode {
        ExternalData::Auto => external::ExternalData::Auto,
        ExternalData::Keep => external::ExternalData::Keep,
        ExternalData::Link => external::ExternalData::Link,
        ExternalData::Copy => external::ExternalData::Copy,
        ExternalData::Inline => external::ExternalData::Inline,
    }
}

/// The error, and what to do about it.
fn sentence(error: &SaveError, mode: ExternalData) -> String {
    let advice = match error {
        SaveError::Write(e) if matches!(e.kind(), ErrorKind::TooLarge { .. }) => match mode {
            ExternalData::Inline => "use --external-data keep, link or copy",
            _ => "its weights need external data",
        },
        SaveError::Place { problem, .. } => match problem {
            PlaceProblem::OtherFolder => "use --external-data link, copy or inline",
            PlaceProblem::Exists => "remove it first",
            PlaceProblem::NotLinkable => "use --external-data copy",
            PlaceProblem::LinkedOutput => "give another -o, or --external-data inline",
            _ => "give another -o",
        },
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn an_output_that_cannot_be_written_is_an_error_of_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("m.onnx");
        // A model of an empty graph.
        fs::write(&input, [0x08, 8, 0x3a, 0]).unwrap();
        let model = Model::open(&input).unwrap();
        let output = dir.path().join("absent/out.onnx");
        let error = save(&model, &input, &output, ExternalData::Auto).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage, "{error}");
    }

    #[test]
    fn problems_of_places_include_advice() {
        for (problem, advice) in [
            (PlaceProblem::OtherFolder, "link, copy or inline"),
            (PlaceProblem::Exists, "remove it first"),
            (PlaceProblem::NotLinkable, "--external-data copy"),
            (PlaceProblem::IsExternalData, "give another -o"),
            (PlaceProblem::OutsideFolder, "give another -o"),
            (PlaceProblem::LinkedOutput, "--external-data inline"),
        ] {
            let path = "out.onnx".into();
            let text = sentence(&SaveError::Place { path, problem }, ExternalData::Keep);
            assert!(text.starts_with("out.onnx: "), "{text}");
            assert!(text.ends_with(advice), "{text}");
        }
    }
}
