//! Which models of a folder a command is about.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::Folder;
use crate::exit::Failure;
use crate::model::named;

/// The flags that choose models.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Chosen {
    /// Models of the folder to work on, as model*.onnx or onnx/*; repeatable [default: all]
    #[arg(long, value_name = "GLOB")]
    only: Vec<Pattern>,

    /// Models of the folder to leave as they are; repeatable
    #[arg(long, value_name = "GLOB")]
    except: Vec<Pattern>,
}

impl Chosen {
    /// The first flag that is given.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let given = [("only", &self.only), ("except", &self.except)];
        let mut given = given.into_iter().filter(|(_, all)| !all.is_empty());
        given.next().map(|(flag, _)| flag)
    }

    /// Refuses the flags for a single model.
    ///
    /// # Errors
    /// When one is given.
    pub(crate) fn check_single(&self, model: &Path) -> anyhow::Result<()> {
        let Some(flag) = self.flag() else {
            return Ok(());
        };
        let why = format!("--{flag} chooses models of a folder, and this is a file; remove it");
        named(model, Err(Failure::usage(why)))
    }

    /// The models that are chosen, and those that are not.
    ///
    /// # Errors
    /// When a pattern matches no model, or all models are left out.
    pub(crate) fn split(&self, folder: &Folder) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        self.split_all(&folder.path, &folder.models)
    }

    /// The same of these models of a folder.
    ///
    /// # Errors
    /// When a pattern matches no model, or all models are left out.
    pub(crate) fn split_all(
        &self,
        folder: &Path,
        models: &[PathBuf],
    ) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        for (flag, patterns) in [("only", &self.only), ("except", &self.except)] {
            check(flag, patterns, (folder, models))?;
        }
        let is_chosen = |model: &PathBuf| {
            (self.only.is_empty() || any(&self.only, model)) && !any(&self.except, model)
        };
        let (chosen, left): (Vec<PathBuf>, Vec<PathBuf>) =
            models.iter().cloned().partition(is_chosen);
        if chosen.is_empty() {
            let why = "--only and --except leave no model to work on";
            return named(folder, Err(Failure::usage(why)));
        }
        Ok((chosen, left))
    }
}

impl Folder {
    /// Takes models away that a new folder is not to have.
    ///
    /// # Errors
    /// When a pattern matches no model, or all.
    pub(super) fn drop_models(&mut self, patterns: &[Pattern]) -> anyhow::Result<Vec<PathBuf>> {
        check("drop", patterns, (&self.path, &self.models))?;
        let models = std::mem::take(&mut self.models).into_iter();
        let (dropped, left) = models.partition(|model| any(patterns, model));
        self.models = left;
        if self.models.is_empty() {
            let why = "--drop leaves no model to work on";
            return named(&self.path, Err(Failure::usage(why)));
        }
        Ok(dropped)
    }
}

/// Refuses a pattern that matches no model.
fn check(
    flag: &str,
    patterns: &[Pattern],
    (folder, models): (&Path, &[PathBuf]),
) -> anyhow::Result<()> {
    let is_idle = |p: &&Pattern| !models.iter().any(|model| matches(p, model));
    let Some(pattern) = patterns.iter().find(is_idle) else {
        return Ok(());
    };
    let models: Vec<String> = models.iter().map(|m| m.display().to_string()).collect();
    let models = models.join(", ");
    let why = format!("--{flag} {pattern} matches none of its models: {models}");
    named(folder, Err(Failure::usage(why)))
}

fn any(patterns: &[Pattern], model: &Path) -> bool {
    patterns.iter().any(|pattern| matches(pattern, model))
}

/// Whether a pattern is that of a model: of its path below the folder, or without a slash of its name alone.
fn matches(pattern: &Pattern, model: &Path) -> bool {
    let options = MatchOptions {
        require_literal_separator: true,
        ..MatchOptions::new()
    };
    if pattern.as_str().contains('/') {
        return pattern.matches_path_with(model, options);
    }
    let name = model.file_name().unwrap_or_default();
    pattern.matches_path_with(Path::new(name), options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(only: &[&str], except: &[&str]) -> Result<(String, String), String> {
        let patterns = |all: &[&str]| all.iter().map(|p| p.parse().unwrap()).collect();
        let chosen = Chosen {
            only: patterns(only),
            except: patterns(except),
        };
        let models = ["a.onnx", "onnx/a.onnx", "onnx/b_q4.onnx"];
        let folder = Folder {
            path: "folder".into(),
            models: models.iter().map(PathBuf::from).collect(),
            ..Folder::default()
        };
        let words = |paths: Vec<PathBuf>| {
            let all: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            all.join(" ")
        };
        match chosen.split(&folder) {
            Ok((chosen, left)) => Ok((words(chosen), words(left))),
            Err(why) => Err(why.to_string()),
        }
    }

    #[test]
    fn a_pattern_is_that_of_a_name_or_with_a_slash_that_of_a_path() {
        let all = "a.onnx onnx/a.onnx onnx/b_q4.onnx";
        let cases: [(&[&str], &[&str], &str, &str); 6] = [
            (&[], &[], all, ""),
            (&["a.onnx"], &[], "a.onnx onnx/a.onnx", "onnx/b_q4.onnx"),
            (&["onnx/a*"], &[], "onnx/a.onnx", "a.onnx onnx/b_q4.onnx"),
            (&[], &["*_q4.onnx"], "a.onnx onnx/a.onnx", "onnx/b_q4.onnx"),
            (&["*"], &["onnx/*"], "a.onnx", "onnx/a.onnx onnx/b_q4.onnx"),
            (&["*/*"], &[], "onnx/a.onnx onnx/b_q4.onnx", "a.onnx"),
        ];
        for (only, except, chosen, left) in cases {
            let want = Ok((chosen.to_owned(), left.to_owned()));
            assert_eq!(split(only, except), want, "{only:?} {except:?}");
        }
    }

    #[test]
    fn a_pattern_without_a_model_is_refused() {
        let why = split(&["b.onnx"], &[]).unwrap_err();
        let want =
            "folder: --only b.onnx matches none of its models: a.onnx, onnx/a.onnx, onnx/b_q4.onnx";
        assert_eq!(why, want);
        let why = split(&[], &["*.onnx"]).unwrap_err();
        assert_eq!(why, "folder: --only and --except leave no model to work on");
    }
}
