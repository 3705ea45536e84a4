//! Models and what the configurations of their folder say of them.

use std::path::{Path, PathBuf};

use posenc_onnx::{Model, Rewritten};
use serde_json::Value;

use super::Folder;
use super::configs::read;
use super::names::CONFIG;
use crate::exit::sentence;

/// A configuration that says something else than a model.
#[derive(Debug)]
pub(crate) struct Contradiction {
    /// The file.
    pub(crate) config: PathBuf,
    /// The file, what it says and what the graph has, in one sentence.
    pub(crate) sentence: String,
}

impl Folder {
    /// What the `config.json` that governs a model says otherwise than the model; `None` where there is no
    /// such file, and where nothing of it can be compared.
    ///
    /// # Errors
    /// Why the file cannot be read, in one sentence that names it.
    pub(crate) fn contradiction(
        &self,
        path: &Path,
        model: &Model,
    ) -> Result<Option<Contradiction>, String> {
        let Some(config) = self.governing(path)? else {
            return Ok(None);
        };
        let said = read(&self.file(&config)).map_err(|e| sentence(&e))?;
        let why = model.contradiction(&said);
        Ok(why.map(|why| self.said(&config, path, &why)))
    }

    /// The same of a model that is rewritten: the config may say what it becomes.
    pub(super) fn contradiction_before(
        &self,
        (config, said): (&Path, &Value),
        (path, done): (&Path, &Rewritten),
    ) -> Option<Contradiction> {
        let why = done.contradiction(said)?;
        Some(self.said(config, path, &why))
    }

    fn said(&self, config: &Path, model: &Path, why: &str) -> Contradiction {
        let config = self.file(config);
        let [file, model] = [&config, model].map(Path::display);
        let sentence = format!("{file}: {why}; is it the config of {model}?");
        Contradiction { config, sentence }
    }

    /// The `config.json` of a model.
    fn governing(&self, model: &Path) -> Result<Option<PathBuf>, String> {
        let folders = model.ancestors().skip(1);
        for file in folders.map(|folder| folder.join(CONFIG)) {
            if self.others.binary_search(&file).is_ok() {
                return Ok(Some(file));
            }
            if let Some((_, why)) = self.stray.iter().find(|(path, _)| *path == file) {
                return Err(format!("{}: {why}", self.file(&file).display()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_config_is_compared_with_the_models_that_it_governs() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
        let yarn = format!("{fixtures}/llama-yarn/torchscript");
        let model = Model::open(format!("{yarn}/model.onnx")).unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("onnx")).unwrap();
        fs::write(root.path().join("onnx/m.onnx"), "it is not read").unwrap();
        let place = root.path().join(CONFIG);
        let found = || {
            let folder = Folder::read(root.path()).unwrap();
            let found = folder.contradiction(Path::new("onnx/m.onnx"), &model);
            found.map(|found| found.map(|found| found.sentence))
        };
        assert_eq!(found(), Ok(None), "there is no config");
        let own = fs::read_to_string(format!("{yarn}/{CONFIG}")).unwrap();
        fs::write(&place, &own).unwrap();
        assert_eq!(found(), Ok(None), "its own config");
        fs::write(&place, own.replace("\"factor\": 4.0", "\"factor\": 8.0")).unwrap();
        let want = format!(
            "{}: layer 0 is yarn × 8 in the config (rope_scaling) and yarn × 4 in the graph; is it the \
             config of onnx/m.onnx?",
            place.display()
        );
        assert_eq!(found(), Ok(Some(want)));
        fs::write(&place, "{").unwrap();
        let why = found().unwrap_err();
        assert!(why.contains("config.json: the config is not JSON"), "{why}");
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        let why = found().unwrap_err();
        assert!(why.contains("config.json: is a folder"), "{why}");
    }
}
