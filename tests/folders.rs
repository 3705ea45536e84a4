//! Whole folders: their models are rewritten together or not at all, and everything else follows.

mod configs;
mod layout;
mod odd;
mod together;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::proto::{ModelProto, StringStringEntryProto};
use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::Fixture;
use prost::Message;
use serde_json::Value;
use tempfile::TempDir;

/// A folder `in` that is put together, and a place for `out` next to it.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        fs::create_dir(site.input()).unwrap();
        site
    }

    /// Decoders of two precisions below their configurations, as hubs hold them.
    fn of_llama() -> Self {
        let site = Self::new();
        site.model("onnx/model.onnx", "llama/torchscript");
        site.model("onnx/model_fp16.onnx", "llama/fp16");
        site.config("config.json", "llama/torchscript");
        site.put(
            "generation_config.json",
            r#"{"max_length": 64, "eos_token_id": 2}"#,
        );
        site.put("tokenizer_config.json", r#"{"model_max_length": 64}"#);
        site.put("tokenizer.json", "{ \"any\":\tbytes }");
        site.put("README.md", "# A model\r\n");
        site
    }

    fn input(&self) -> PathBuf {
        self.0.path().join("in")
    }

    fn output(&self) -> PathBuf {
        self.0.path().join("out")
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.input().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn model(&self, name: &str, fixture: &str) {
        self.put(name, fs::read(Fixture::named(fixture).model()).unwrap());
    }

    fn config(&self, name: &str, fixture: &str) {
        let path = Fixture::named(fixture).path("config.json");
        self.put(name, fs::read(path).unwrap());
    }

    /// The same model with its weights in another file.
    fn model_with_data(&self, name: &str, fixture: &str, data: &str) {
        let bytes = fs::read(Fixture::named(fixture).model()).unwrap();
        let mut model = ModelProto::decode(&bytes[..]).unwrap();
        let mut weights = vec![];
        for tensor in &mut model.graph.as_mut().unwrap().initializer {
            let Some(raw) = tensor.raw_data.take_if(|raw| raw.len() >= 1024) else {
                continue;
            };
            let entry = |key: &str, value: String| StringStringEntryProto {
                key: Some(key.to_owned()),
                value: Some(value),
            };
            tensor.external_data = vec![
                entry("location", data.to_owned()),
                entry("offset", weights.len().to_string()),
                entry("length", raw.len().to_string()),
            ];
            tensor.data_location = Some(1);
            weights.extend_from_slice(&raw);
        }
        assert!(!weights.is_empty(), "{fixture} has no large weights");
        self.put(name, model.encode_to_vec());
        let folder = Path::new(name).parent().unwrap();
        self.put(folder.join(data).to_str().unwrap(), weights);
    }

    /// Runs the command on the folder, which must stay as it is.
    fn run(&self, command: &str, flags: &[&str]) -> Ran {
        let before = files(&self.input());
        let input = self.input().display().to_string();
        let words = [command, &input].into_iter().chain(flags.iter().copied());
        let ran = binary::run(words);
        assert_eq!(files(&self.input()), before, "the input changed");
        ran
    }

    /// Rewrites the folder with these flags.
    fn rewrite(&self, flags: &[&str]) -> Ran {
        let output = self.output().display().to_string();
        let flags = [flags, &["-o", &output]].concat();
        self.run("rewrite", &flags)
    }

    /// A rewrite that ends with this code and says so; nothing is written.
    fn refuses(&self, flags: &[&str], code: i32, said: &str) {
        let ran = self.rewrite(flags);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        self.holds_the_input_alone();
    }

    fn holds_the_input_alone(&self) {
        let left: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != "in")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Every file below a folder, by its path; links are followed.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for entry in fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            all.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
    all
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The names of what is in a folder.
fn names(folder: &Path) -> Vec<String> {
    files(folder).into_keys().collect()
}

const YARN: [&str; 4] = ["--scale", "yarn", "--factor", "4"];
