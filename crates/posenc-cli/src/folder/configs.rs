//! The configurations of a folder, which follow the models that they govern.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use posenc_encodings::hf;
use posenc_ir::write_file;
use posenc_onnx::report::ConfigFile;
use posenc_onnx::request::Config;
use posenc_onnx::{ConfigChange, Refusal, RefusalKind, RewriteError, Rewritten};
use serde_json::{Value, json};

use super::Folder;
use super::names::{CONFIG, GENAI, GENERATION, SENTENCES, TOKENIZER};
use crate::exit::Failure;
use crate::model::named;

/// What becomes of a file that names the same lengths.
type Beside = fn(&ConfigChange, &Value) -> Result<ConfigChange, Refusal>;

/// Files that name lengths which the model bounds.
const BESIDE: [(&str, Beside); 4] = [
    (GENAI, ConfigChange::genai_config),
    (GENERATION, ConfigChange::generation_config),
    (TOKENIZER, ConfigChange::tokenizer_config),
    (SENTENCES, ConfigChange::sentence_bert_config),
];

/// The configuration that values are inferred from which a request does not give: the `config.json` that
/// governs a model, or the length that a `genai_config.json` says.
pub(super) fn of_model(folder: &Folder, model: &Path) -> anyhow::Result<Option<Config>> {
    if let Some(config) = folder.nearest(model, CONFIG) {
        let path = folder.file(&config);
        let config = named(&path, Config::open(&path).map_err(RewriteError::from))?;
        return Ok(Some(config));
    }
    let Some(genai) = folder.nearest(model, GENAI) else {
        return Ok(None);
    };
    let path = folder.file(&genai);
    let text = said(&read(&path)?).to_string();
    Ok(Some(Config::from_text(path.display().to_string(), text)))
}

/// What a `genai_config.json` says, as a `config.json` would.
fn said(genai: &Value) -> Value {
    match genai.pointer("/model/context_length") {
        Some(length) => json!({"max_position_embeddings": length}),
        None => json!({}),
    }
}

/// Configurations that change.
#[derive(Debug, Default)]
pub(super) struct Configs {
    files: Vec<(PathBuf, ConfigChange)>,
    /// What a user should know of them.
    pub(super) warnings: Vec<String>,
}

/// What becomes of the configurations of a folder. What no key describes leaves them as they are, unless
/// they are `required`.
///
/// # Errors
/// When a config cannot be read, does not fit its models or cannot say what was done, or when two models
/// would change it differently.
pub(super) fn plan(
    folder: &Folder,
    all: &[(PathBuf, &Rewritten)],
    required: bool,
) -> anyhow::Result<Configs> {
    let mut configs = Configs::default();
    let mut values: BTreeMap<PathBuf, Value> = BTreeMap::new();
    let mut changes: BTreeMap<PathBuf, Vec<ConfigChange>> = BTreeMap::new();
    for (model, done) in all {
        let config = folder.nearest(model, CONFIG);
        if required && config.is_none() {
            let why = format!("there is no {CONFIG} for it, and --write-config changes one");
            return named(&folder.file(model), Err(Failure::usage(why)));
        }
        let source = config.clone().or_else(|| folder.nearest(model, GENAI));
        let old = match &source {
            Some(source) => value(folder, source, &mut values)?,
            None => json!({}),
        };
        if let Some(config) = &config
            && let Some(found) = folder.contradiction_before((config, &old), (model, done))
        {
            return Err(Failure::usage(found.sentence).into());
        }
        let old = if config.is_some() { old } else { said(&old) };
        let change = match done.config(&old) {
            Err(why) if *why.kind() == RefusalKind::NoEffect("write-config") && !required => {
                let file = config.map(|config| folder.file(&config).display().to_string());
                let warning = file.map(|file| format!("{file} stays as it is: {why}"));
                add(&mut configs.warnings, warning);
                continue;
            }
            change => {
                let source = source.as_ref().unwrap_or(model);
                named(&folder.file(source), change.map_err(RewriteError::from))?
            }
        };
        for (name, of) in BESIDE {
            let Some(file) = folder.nearest(model, name) else {
                continue;
            };
            let old = value(folder, &file, &mut values)?;
            let change = of(&change, &old).map_err(RewriteError::from);
            let change = named(&folder.file(&file), change)?;
            changes.entry(file).or_default().push(change);
        }
        match (config, source) {
            (Some(config), _) => changes.entry(config).or_default().push(change),
            (None, Some(source)) => {
                let source = folder.file(&source);
                for why in change.warnings() {
                    let warning = format!("{}: {why}", source.display());
                    add(&mut configs.warnings, Some(warning));
                }
            }
            (None, None) => {}
        }
    }
    for (file, changes) in &changes {
        let path = folder.file(file);
        let all: Vec<&ConfigChange> = changes.iter().collect();
        let together = ConfigChange::together(&values[file], &all).map_err(RewriteError::from);
        let together = named(&path, together)?;
        let path = path.display();
        let warnings = together.warnings().iter();
        warnings.for_each(|why| add(&mut configs.warnings, Some(format!("{path}: {why}"))));
        if !together.changes().is_empty() {
            configs.files.push((file.clone(), together));
        }
    }
    Ok(configs)
}

fn add(warnings: &mut Vec<String>, warning: Option<String>) {
    warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
}

/// A configuration, read once.
fn value(
    folder: &Folder,
    file: &Path,
    values: &mut BTreeMap<PathBuf, Value>,
) -> anyhow::Result<Value> {
    if let Some(value) = values.get(file) {
        return Ok(value.clone());
    }
    let value = read(&folder.file(file))?;
    values.insert(file.to_owned(), value.clone());
    Ok(value)
}

/// The JSON of a file.
///
/// # Errors
/// When it cannot be read, or is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::usage(e.to_string()));
    let value = hf::json::parse(&named(path, text)?);
    named(path, value.map_err(|e| Failure::usage(e.to_string())))
}

impl Configs {
    /// The files, for the report.
    pub(super) fn report(&self, output: &Path) -> Vec<ConfigFile> {
        let file = |(path, change): &(PathBuf, ConfigChange)| ConfigFile {
            path: output.join(path).display().to_string(),
            changes: change.changes().clone(),
        };
        self.files.iter().map(file).collect()
    }

    /// Whether a file changes.
    pub(super) fn changes(&self, file: &Path) -> bool {
        self.files.iter().any(|(changed, _)| changed == file)
    }

    /// The configurations of a model that change.
    pub(super) fn governing<'a>(
        &'a self,
        folder: &'a Folder,
        model: &'a Path,
    ) -> impl Iterator<Item = PathBuf> + 'a {
        let config = folder.nearest(model, CONFIG);
        config.into_iter().filter(|config| self.changes(config))
    }

    /// Writes the files into a folder.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(super) fn write(&self, to: &Path) -> anyhow::Result<()> {
        for (path, change) in &self.files {
            let written = write_file(to.join(path), change.to_text().as_bytes());
            written.map_err(|e| Failure::usage(e.to_string()))?;
        }
        Ok(())
    }
}
