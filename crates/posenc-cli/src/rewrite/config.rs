//! The configurations next to the result: `config.json`, and those that name the same lengths.

use std::path::{Path, PathBuf};

use posenc_encodings::hf;
use posenc_ir::write_file;
use posenc_onnx::report::ConfigFile;
use posenc_onnx::{ConfigChange, Refusal, RewriteError, Rewritten};
use serde_json::Value;

use crate::exit::Failure;
use crate::files::is_same;
use crate::model;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const GENAI: &str = "genai_config.json";

/// Configurations that are to be written when the model is.
#[derive(Debug)]
pub struct Configs {
    files: Vec<(PathBuf, ConfigChange)>,
    /// What no key describes, and what is no length there.
    pub warnings: Vec<String>,
}

/// Whether there is a `config.json` to start from, and a place to write it to; `output` is `None`
/// where it is to be next to the input.
///
/// # Errors
/// When there is none, or the one next to the output is that of the input, which stays.
pub fn check(input: &Path, output: Option<&Path>, in_place: bool) -> anyhow::Result<()> {
    let output = output.unwrap_or(input);
    let source = source(input, output)?;
    let replaces = in_place && is_same(input, output);
    if !replaces && is_same(folder(input), folder(output)) {
        let source = source.display();
        let sentence = format!(
            "{source}: is the config of the model, which stays as it is; give -o in another folder \
             for --write-config, or --in-place"
        );
        return Err(Failure::usage(sentence).into());
    }
    for name in [CONFIG, TOKENIZER, GENAI] {
        let path = folder(output).join(name);
        let named = path.display();
        if path.symlink_metadata().is_ok() && !path.is_file() {
            let sentence = format!("{named}: is no regular file, or a link to nowhere; remove it");
            return Err(Failure::usage(sentence).into());
        }
        if is_same(&path, output) || output.file_name() == Some(name.as_ref()) {
            let sentence = format!("{named}: is the name of a config; give another -o");
            return Err(Failure::usage(sentence).into());
        }
    }
    Ok(())
}

/// The configurations that match a result. `read` are other files that the command reads.
///
/// # Errors
/// When a config cannot be read, does not fit the model or cannot say what was done, or when it would
/// change a file that the command reads.
pub fn plan(
    done: &Rewritten,
    input: &Path,
    output: &Path,
    read: &[&Path],
) -> anyhow::Result<Configs> {
    let source = source(input, output)?;
    let own = folder(output).join(CONFIG);
    let config = named(&source, done.config(&json(&source)?))?;
    let warnings = config.warnings().to_vec();
    let mut files = vec![];
    for (name, change) in [
        (TOKENIZER, ConfigChange::tokenizer_config as Beside),
        (GENAI, ConfigChange::genai_config),
    ] {
        let path = folder(output).join(name);
        if path.is_file() {
            let change = named(&path, change(&config, &json(&path)?))?;
            files.push((path, change));
        }
    }
    files.retain(|(_, change)| !change.changes().is_empty());
    if source != own || !config.changes().is_empty() {
        files.insert(0, (own, config));
    }
    for (path, _) in &files {
        if read.iter().any(|other| is_same(other, path)) {
            let path = path.display();
            let sentence = format!("{path}: is read by this command; give another -o");
            return Err(Failure::usage(sentence).into());
        }
    }
    Ok(Configs { files, warnings })
}

/// What becomes of a file that names the same lengths.
type Beside = fn(&ConfigChange, &Value) -> Result<ConfigChange, Refusal>;

impl Configs {
    /// The files, for the report.
    pub fn report(&self) -> Vec<ConfigFile> {
        let file = |(path, change): &(PathBuf, ConfigChange)| ConfigFile {
            path: path.display().to_string(),
            changes: change.changes().clone(),
        };
        self.files.iter().map(file).collect()
    }

    /// Writes the files, each when it is complete.
    ///
    /// # Errors
    /// When one cannot be written; the model and the files before it are.
    pub fn write(&self, output: &Path) -> anyhow::Result<()> {
        for (path, change) in &self.files {
            write_file(path, change.to_text().as_bytes()).map_err(|e| {
                let model = output.display();
                Failure::usage(format!("{e}; {model} was written, and this config was not"))
            })?;
        }
        Ok(())
    }
}

/// The `config.json` to start from: next to the output, else next to the input.
fn source(input: &Path, output: &Path) -> anyhow::Result<PathBuf> {
    let [own, models] = [output, input].map(|path| folder(path).join(CONFIG));
    let there = [own, models].into_iter().find(|path| path.is_file());
    there.ok_or_else(|| {
        let (input, output) = (input.display(), output.display());
        let sentence = format!(
            "{input}: there is no {CONFIG} next to it or next to {output}, and --write-config \
             changes one"
        );
        Failure::usage(sentence).into()
    })
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn named(path: &Path, change: Result<ConfigChange, Refusal>) -> anyhow::Result<ConfigChange> {
    model::named(path, change.map_err(RewriteError::from))
}

fn json(path: &Path) -> anyhow::Result<Value> {
    let failed = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    Ok(hf::json::parse(&text).map_err(|e| failed(e.to_string()))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `a/m.onnx` with a config, and an empty folder `b`.
    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| root.path().join(name));
        for folder in [&a, &b] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(a.join("m.onnx"), "model").unwrap();
        fs::write(a.join(CONFIG), "{}").unwrap();
        (root, a, b)
    }

    #[test]
    fn the_config_of_the_input_changes_only_in_place() {
        let (root, a, b) = folders();
        let input = a.join("m.onnx");
        let is_refused = |output: Option<&Path>, in_place| {
            let refused = check(&input, output, in_place);
            refused.is_err_and(|e| e.to_string().contains("in another folder"))
        };
        assert!(check(&input, Some(&b.join("o.onnx")), false).is_ok());
        assert!(check(&input, None, true).is_ok());
        assert!(check(&input, Some(&input), true).is_ok());
        for in_place in [false, true] {
            assert!(is_refused(Some(&a.join("o.onnx")), in_place));
            assert!(is_refused(
                Some(&root.path().join("b/../a/o.onnx")),
                in_place
            ));
        }
        assert!(is_refused(None, false));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&a, root.path().join("link")).unwrap();
            assert!(is_refused(Some(&root.path().join("link/o.onnx")), false));
        }
    }

    #[test]
    fn what_cannot_be_a_config_is_refused_before_anything_is_written() {
        let (_root, a, b) = folders();
        let input = a.join("m.onnx");
        let refused = |output: &Path| check(&input, Some(output), false).unwrap_err().to_string();
        for name in [CONFIG, TOKENIZER, GENAI] {
            assert!(refused(&b.join(name)).contains("is the name of a config"));
            fs::create_dir(b.join(name)).unwrap();
            assert!(refused(&b.join("o.onnx")).contains("is no regular file"));
            fs::remove_dir(b.join(name)).unwrap();
        }
        fs::remove_file(a.join(CONFIG)).unwrap();
        assert!(refused(&b.join("o.onnx")).contains("there is no config.json next to it"));
        assert!(refused(&a.join("o.onnx")).contains("there is no config.json next to it"));
    }

    #[test]
    fn the_config_of_the_output_comes_first() {
        let (_root, a, b) = folders();
        let [input, output] = [a.join("m.onnx"), b.join("o.onnx")];
        assert_eq!(source(&input, &output).unwrap(), a.join(CONFIG));
        fs::write(b.join(CONFIG), "{}").unwrap();
        assert_eq!(source(&input, &output).unwrap(), b.join(CONFIG));
    }
}
