//! The models under `fixtures/`, with their truth and their references.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::{DType, Tensor};
use serde_json::Value;

use crate::shared::root;

/// One export: a folder `fixtures/<family>/<exporter>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixture {
    /// The model, with its variant where it has one.
    pub family: String,
    /// The program that wrote the file; for `mini*` the encoding.
    pub exporter: String,
}

impl Fixture {
    /// The fixture of that name.
    ///
    /// # Panics
    /// When there is none.
    pub fn named(name: &str) -> Self {
        let found = all().into_iter().find(|f| f.name() == name);
        found.unwrap_or_else(|| panic!("no fixture {name}"))
    }

    /// `<family>/<exporter>`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.family, self.exporter)
    }

    /// The file of that name in the fixture's folder.
    pub fn path(&self, file: &str) -> PathBuf {
        let family = root().join("fixtures").join(&self.family);
        family.join(&self.exporter).join(file)
    }

    /// The model.
    pub fn model(&self) -> PathBuf {
        self.path("model.onnx")
    }

    /// The facts that `inspect` must report.
    pub fn truth(&self) -> Value {
        json(&self.path("truth.json"))
    }

    /// The Hugging Face configuration.
    pub fn config(&self) -> Value {
        json(&self.path("config.json"))
    }

    /// PyTorch's runs of the unchanged model, by name.
    pub fn runs(&self) -> BTreeMap<String, Run> {
        runs(&self.path("reference.safetensors"))
    }

    /// The runs of the family's weights with another scaling: `fixtures/<family>/oracle_<name>`.
    pub fn oracle(&self, name: &str) -> Oracle {
        let family = root().join("fixtures").join(&self.family);
        let changed = json(&family.join(format!("oracle_{name}.json")));
        let mut config = self.config();
        for (key, value) in changed["config"].as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Oracle {
            config,
            runs: runs(&family.join(format!("oracle_{name}.safetensors"))),
        }
    }
}

impl Fixture {
    /// The tables of other lengths of the family, `fixtures/<family>/extend_<name>`, by name.
    pub fn extensions(&self) -> Vec<Extension> {
        let family = root().join("fixtures").join(&self.family);
        let names = fs::read_dir(&family).expect("the folder of a family");
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names
            .filter_map(|name| {
                let name = name.strip_prefix("extend_")?.strip_suffix(".json")?;
                Some(name.to_owned())
            })
            .collect();
        names.sort();
        let read = |name: String| {
            let asked = json(&family.join(format!("extend_{name}.json")));
            let args = asked["args"].as_array().into_iter().flatten();
            Extension {
                args: args.filter_map(|a| Some(a.as_str()?.to_owned())).collect(),
                config: asked["config"].clone(),
                runs: runs(&family.join(format!("extend_{name}.safetensors"))),
                name,
            }
        };
        names.into_iter().map(read).collect()
    }
}

/// Runs of a model's weights with a table of other rows.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// The arguments of `rewrite` that ask for it.
    pub args: Vec<String>,
    /// What differs in the configuration.
    pub config: Value,
    /// PyTorch's runs, by length: `inside` the old one, `beyond` it, at the new `edge`.
    pub runs: BTreeMap<String, Run>,
}

impl Extension {
    /// The length of the configuration.
    pub fn max_length(&self) -> Option<u64> {
        let lengths = self.config.as_object()?;
        lengths.values().find_map(Value::as_u64)
    }
}

/// The inputs and outputs of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The graph's inputs by name.
    pub inputs: BTreeMap<String, Tensor>,
    /// PyTorch's outputs by name.
    pub outputs: BTreeMap<String, Tensor>,
}

/// Runs of a model's weights with another rotary configuration.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The whole configuration.
    pub config: Value,
    /// PyTorch's runs, by length: `short`, `edge`, `edge1`, `long`.
    pub runs: BTreeMap<String, Run>,
}

/// Every fixture, in order of its name.
pub fn all() -> Vec<Fixture> {
    let mut found = vec![];
    for family in folders(&root().join("fixtures")) {
        for exporter in folders(&family) {
            if exporter.join("model.onnx").is_file() {
                found.push(Fixture {
                    family: last(&family),
                    exporter: last(&exporter),
                });
            }
        }
    }
    assert!(found.len() >= 56, "fixtures are missing: {found:?}");
    found.sort();
    found
}

/// A JSON file.
///
/// # Panics
/// When it cannot be read.
pub fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The runs in a file of tensors named `<run>/input/<name>` and `<run>/output/<name>`.
pub fn runs(path: &Path) -> BTreeMap<String, Run> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (header, data) = header(&bytes).expect("fixtures contain safetensors");
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for (key, entry) in header.as_object().into_iter().flatten() {
        let parts: Vec<&str> = key.splitn(3, '/').collect();
        let [run, part, name] = parts[..] else {
            continue; // the frequencies of an oracle
        };
        let run = runs.entry(run.to_owned()).or_default();
        let tensors = match part {
            "input" => &mut run.inputs,
            _ => &mut run.outputs,
        };
        let tensor = tensor(entry, data).unwrap_or_else(|| panic!("{}: {key}", path.display()));
        tensors.insert(name.to_owned(), tensor);
    }
    // Without runs, a comparison would pass.
    let is_complete = |run: &Run| !run.inputs.is_empty() && !run.outputs.is_empty();
    let complete = !runs.is_empty() && runs.values().all(is_complete);
    assert!(complete, "{} lacks runs", path.display());
    runs
}

/// The header of a safetensors file, and the data to which its offsets refer.
fn header(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    Some((serde_json::from_slice(header).ok()?, data))
}

fn tensor(entry: &Value, data: &[u8]) -> Option<Tensor> {
    let dtype = match entry["dtype"].as_str()? {
        "I64" => DType::I64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        _ => return None,
    };
    let numbers = |key: &str| -> Option<Vec<usize>> {
        let list = entry[key].as_array()?.iter();
        list.map(|n| usize::try_from(n.as_u64()?).ok()).collect()
    };
    let [start, end] = numbers("data_offsets")?[..] else {
        return None;
    };
    Tensor::new(
        dtype,
        numbers("shape")?,
        data.get(start..end)?.to_vec().into(),
    )
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.flatten().map(|e| e.path());
    let mut found: Vec<PathBuf> = paths.filter(|p| p.is_dir()).collect();
    found.sort();
    found
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
