//! A rewrite: its report, its proof, its difference, and the bytes of the result.

use std::path::Path;

use anyhow::{Context, Result};
use posenc_cli::steps::{self, Failure, keywords, output, shown};
use posenc_ir::Weights;
use posenc_onnx::request::{Config, Request, Tensors};
use posenc_onnx::{Model, RewriteError, Rewritten};
use serde_json::{Value, json};

use crate::model::Opened;
use crate::problem::at;
use crate::proof::prove;

/// A file that an option takes.
#[derive(Clone, Debug)]
pub struct Given {
    /// The option.
    pub option: String,
    /// The name of the file.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A result.
#[derive(Debug)]
pub struct Done {
    /// What was done, as tables and sentences.
    pub shown: Value,
    /// The name of the file.
    pub name: String,
    /// The file; `None` where a check failed.
    pub bytes: Option<Vec<u8>>,
    /// The `config.json` that matches it, where the request asks for it.
    pub config: Option<String>,
}

impl Opened {
    /// Rewrites the model as options say, which are a JSON object, and compares the result with
    /// formulas.
    ///
    /// # Errors
    /// When the request is refused, with what is missing of the model.
    pub fn rewrite(&self, options: &str, files: Vec<Given>) -> Result<Done> {
        let done = self.try_rewrite(options, files);
        let done = done.map_err(|error| at(&self.name, error));
        match (done, self.absence()?) {
            (Err(error), Some(absent)) => {
                let sentence = format!("{}; {absent}", steps::sentence(&error));
                Err(error.context(sentence))
            }
            (done, _) => done,
        }
    }

    fn absence(&self) -> Result<Option<String>> {
        steps::absence(Path::new(&self.name), self.model.as_ir())
    }

    fn try_rewrite(&self, options: &str, files: Vec<Given>) -> Result<Done> {
        let request = request(options, files)?;
        let mut done = self.model.plan(request.clone())?.apply()?;
        let mut report = done.report().clone();
        let proof = prove(&mut done, &request, &mut report)?;
        report.warnings.extend(self.absence()?);
        let name = output::default_path(Path::new(&self.name), &report, &request);
        let name = name.display().to_string();
        let passed = report.check.as_ref().is_none_or(|check| check.ok);
        let config = config(&done, &request)?;
        let mut shown = shown::rewritten(&report);
        shown["proof"] = proof;
        shown["name"] = name.clone().into();
        shown["difference"] = self.difference(&done, &name).into();
        shown["figures"] = self.figures(&done, &name)?.into();
        shown["external"] = locations(&done)?;
        let bytes = passed.then(|| done.to_bytes()).transpose()?;
        Ok(Done {
            shown,
            name,
            bytes,
            config,
        })
    }

    fn difference(&self, done: &Rewritten, name: &str) -> String {
        let [before, after] =
            [self.model.as_ir(), done.as_ir()].map(|model| model.text(Weights::Hash).to_string());
        shown::difference(&before, &after, [&self.name, name])
    }

    fn figures(&self, done: &Rewritten, name: &str) -> Result<Vec<String>> {
        let result = Model::checked(done.as_ir().clone())?;
        Ok(shown::compared([
            (&self.name, &self.model),
            (name, &result),
        ]))
    }
}

/// The request of options and files.
fn request(options: &str, files: Vec<Given>) -> Result<Request> {
    let mut request = keywords::request(options)?;
    for file in files {
        let config = || {
            let text = String::from_utf8(file.bytes.clone());
            let text = text.map_err(|_| Failure::usage(format!("{}: is no text", file.name)))?;
            anyhow::Ok(Config::from_text(&file.name, text))
        };
        match file.option.as_str() {
            "hf_config" => request.hf_config = Some(config()?),
            "model_config" => request.model_config = Some(config()?),
            "params" => request.params = Some(Tensors::from_bytes(file.name, file.bytes)),
            other => return Err(Failure::usage(format!("`{other}`: takes no file")).into()),
        }
    }
    request.check_supported().map_err(RewriteError::from)?;
    Ok(request)
}

/// The config of the result, where it is asked for.
fn config(done: &Rewritten, request: &Request) -> Result<Option<String>> {
    if !request.allowances.write_config {
        return Ok(None);
    }
    let Some(config) = &request.model_config else {
        let why = "`write-config` needs the config of the model: give `model-config`";
        return Err(Failure::usage(why).into());
    };
    let value = serde_json::to_value(config).context(config.name().to_owned())?;
    let change = done.config(&value).map_err(RewriteError::from)?;
    Ok(Some(change.to_text()))
}

/// The files that the result names.
fn locations(done: &Rewritten) -> Result<Value> {
    let mut all: Vec<String> = vec![];
    for external in done.as_ir().external_data()? {
        if !all.contains(&external.location) {
            all.push(external.location);
        }
    }
    Ok(json!(all))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::problem::problem;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");

    fn llama() -> Opened {
        let bytes = std::fs::read(format!("{FIXTURES}/llama/dynamo/model.onnx")).unwrap();
        Opened::read("model.onnx", bytes, BTreeMap::new()).unwrap()
    }

    fn config() -> Given {
        Given {
            option: "model_config".to_owned(),
            name: "config.json".to_owned(),
            bytes: std::fs::read(format!("{FIXTURES}/llama/dynamo/config.json")).unwrap(),
        }
    }

    #[test]
    fn a_rewrite_has_a_file_a_proof_and_a_difference() {
        let options = r#"{"scale": "yarn", "factor": 4.0, "write_config": true}"#;
        let done = llama().rewrite(options, vec![config()]).unwrap();
        assert_eq!(done.name, "model.rope-yarn.onnx");
        let bytes = done.bytes.unwrap();
        let read = posenc_ir::Model::from_bytes(bytes).unwrap();
        assert!(read.metadata("posenc.unread").is_none());
        assert!(done.config.unwrap().contains("yarn"));
        let shown = &done.shown;
        assert_eq!(shown["ok"], true);
        let check = shown["check"].as_str().unwrap();
        assert!(
            check.starts_with("checked against the formula in f64: 2 sites"),
            "{check}"
        );
        assert_eq!(shown["proof"]["ran"].as_array().unwrap().len(), 2);
        let difference = shown["difference"].as_str().unwrap();
        assert!(
            difference.starts_with("--- model.onnx\n+++ model.rope-yarn.onnx\n"),
            "{difference}"
        );
        assert!(
            shown["figures"][0]
                .as_str()
                .unwrap()
                .contains("model.rope-yarn.onnx")
        );
        assert_eq!(shown["external"], json!([]));
    }

    #[test]
    fn what_was_not_shown_is_said() {
        let done = llama().rewrite(r#"{"to": "alibi"}"#, vec![]).unwrap();
        let proof = &done.shown["proof"];
        let [ran, left] = ["ran", "left"].map(|part| proof[part].to_string());
        assert!(ran.contains("on different tokens in two orders"), "{ran}");
        assert!(left.contains("how a runtime rounds"), "{left}");
        assert_eq!(done.shown["ok"], true);
    }

    #[test]
    fn a_request_is_refused_with_the_code_of_the_command_line() {
        let file = |option: &str, bytes: &[u8]| Given {
            option: option.to_owned(),
            name: "f".to_owned(),
            bytes: bytes.to_vec(),
        };
        let cases = [
            (r#"{"scale": "yarn"}"#, vec![], 2, "“original length”"),
            (
                r#"{"scale": "yarn", "factor": "x"}"#,
                vec![],
                2,
                "“factor”: ",
            ),
            (r#"{"slopes": [1.0]}"#, vec![], 2, "“slopes”"),
            (
                r#"{"scale": "linear", "factor": 2.0, "write_config": true}"#,
                vec![],
                2,
                "“model config”",
            ),
            ("{}", vec![file("hf_config", &[0xff])], 2, "f: is no text"),
            (
                "{}",
                vec![file("factor", b"2")],
                2,
                "“factor”: takes no file",
            ),
            (r#"{"scale": "cubic"}"#, vec![], 2, "cubic"),
        ];
        for (options, files, exit, part) in cases {
            let problem = problem(&llama().rewrite(options, files).unwrap_err());
            let sentence = problem["sentence"].as_str().unwrap();
            assert_eq!(problem["exit"], exit, "{options}: {sentence}");
            assert!(
                sentence.starts_with("model.onnx: ") && sentence.contains(part),
                "{sentence}"
            );
        }
    }
}
