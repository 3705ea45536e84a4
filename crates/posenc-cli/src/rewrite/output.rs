//! Where the result of a rewrite is written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use posenc_encodings::kind::Kind;
use posenc_onnx::report::Rewrite;
use posenc_onnx::request::{Request, ScaleType};
use serde_json::Value;

use crate::exit::Failure;
use crate::files::{is_same, no_folder};

/// Whether the output can be written.
///
/// # Errors
/// When it is `-`, which means stdout elsewhere; when it is the input, by whatever name, and that was not allowed; when it is another file that
/// the command reads; when it is no regular file, a link to nowhere, or its folder does not exist.
pub fn check(input: &Path, output: &Path, in_place: bool, read: &[&Path]) -> anyhow::Result<()> {
    let path = output.display();
    if output == Path::new("-") {
        let sentence = "-: a model is not written to stdout; give a file with -o";
        return Err(Failure::usage(sentence).into());
    }
    if output.is_dir() {
        let sentence = format!("{path}: is a folder; give the file to write with -o");
        return Err(Failure::usage(sentence).into());
    }
    let folder = output.parent().filter(|f| !f.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|f| !f.is_dir()) {
        let sentence = format!("{path}: {}", no_folder(folder));
        return Err(Failure::usage(sentence).into());
    }
    if output.symlink_metadata().is_ok() && !output.is_file() {
        let sentence = format!("{path}: is no regular file, or a link to nowhere; give another -o");
        return Err(Failure::usage(sentence).into());
    }
    if read.iter().any(|path| is_same(path, output)) {
        let sentence = format!("{path}: is read by this command; give another -o");
        return Err(Failure::usage(sentence).into());
    }
    if !in_place && is_same(input, output) {
        let sentence = format!(
            "{path}: the output is the input; give another -o, or --in-place to replace the model"
        );
        return Err(Failure::usage(sentence).into());
    }
    Ok(())
}

/// `<stem>.<kind>[-<scale>].onnx` in the folder of the input.
pub fn default_path(input: &Path, report: &Rewrite, request: &Request) -> PathBuf {
    let to = report.edits.first().map(|edit| &edit.to);
    let word = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let kind = word(to.and_then(|to| to.get("kind")));
    let kind = request.to.map(|kind| kind.to_string()).or(kind);
    let params = to.map(|to| to.get("params").unwrap_or(to));
    let scale = word(params.and_then(|params| params.get("scaling")?.get("type")));
    let scale = request.scale.map(|scale| scale.to_string()).or(scale);
    let kind = kind.unwrap_or_else(|| Kind::Rope.to_string());
    input.with_file_name(name(input, &kind, scale.as_deref()))
}

fn name(input: &Path, kind: &str, scale: Option<&str>) -> OsString {
    let mut name = input.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{kind}"));
    let plain = ScaleType::None.to_string();
    if let Some(scale) = scale.filter(|s| *s != plain) {
        name.push(format!("-{scale}"));
    }
    name.push(".onnx");
    name
}

#[cfg(test)]
mod tests {
    use posenc_onnx::report::{Edit, Endpoint};
    use posenc_onnx::request::LawName;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_output_left_out_is_named_after_what_was_done() {
        let law = json!({"type": "yarn", "factor": 4.0});
        let yarn = json!({"kind": "rope", "params": {"theta": 1e4, "scaling": law}});
        let alibi = json!({"kind": "alibi"});
        let (rope, none) = (Some(Kind::Rope), Some(ScaleType::None));
        let cases = [
            ("a/m.onnx", None, None, Some(&alibi), "a/m.alibi.onnx"),
            ("m.onnx", None, None, Some(&yarn), "m.rope-yarn.onnx"),
            ("m.onnx", rope, none, Some(&yarn), "m.rope.onnx"),
            (
                "a.b/m.v2.onnx",
                Some(Kind::None),
                None,
                None,
                "a.b/m.v2.none.onnx",
            ),
            (
                "model",
                Some(Kind::T5Bias),
                Some(LawName::Linear.into()),
                None,
                "model.t5-bias-linear.onnx",
            ),
            ("m.onnx", None, None, None, "m.rope.onnx"),
        ];
        for (input, kind, scale, to, want) in cases {
            let mut report = Rewrite::new(Endpoint {
                path: String::new(),
                fingerprint: String::new(),
            });
            report.edits.extend(to.map(|to| Edit {
                site: String::new(),
                from: Value::Null,
                to: to.clone(),
                nodes_added: 0,
                nodes_removed: 0,
                initializers_changed: 0,
            }));
            let request = Request {
                to: kind,
                scale,
                ..Request::default()
            };
            assert_eq!(
                default_path(Path::new(input), &report, &request),
                Path::new(want)
            );
        }
    }

    #[test]
    fn the_input_is_replaced_only_on_request_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("m.onnx");
        std::fs::write(&input, b"model").unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let mut names = vec![input.clone(), inner.join("../m.onnx")];
        #[cfg(unix)]
        {
            let link = folder.path().join("link.onnx");
            std::os::unix::fs::symlink(&input, &link).unwrap();
            let hard = folder.path().join("hard.onnx");
            std::fs::hard_link(&input, &hard).unwrap();
            names.extend([link, hard]);
        }
        for name in names {
            let error = check(&input, &name, false, &[]).unwrap_err().to_string();
            assert!(error.contains("--in-place"), "{error}");
            assert!(check(&input, &name, true, &[]).is_ok());
        }
        let other = folder.path().join("other.onnx");
        std::fs::write(&other, b"model").unwrap();
        assert!(check(&input, &other, false, &[]).is_ok());
    }

    #[test]
    fn an_output_that_cannot_be_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("m.onnx");
        let config = folder.path().join("config.json");
        for file in [&input, &config] {
            std::fs::write(file, b"something").unwrap();
        }
        let read = [config.clone()];
        let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
        let mut cases = vec![
            (PathBuf::from("-"), "not written to stdout"),
            (folder.path().to_owned(), "is a folder"),
            (folder.path().join("no/m.onnx"), "there is no folder"),
            (config, "is read by this command"),
        ];
        #[cfg(unix)]
        {
            let link = folder.path().join("nowhere.onnx");
            std::os::unix::fs::symlink(folder.path().join("gone"), &link).unwrap();
            let device = PathBuf::from("/dev/null");
            cases.extend([link, device].map(|path| (path, "no regular file")));
        }
        assert!(check(&input, &folder.path().join("new.onnx"), false, &[]).is_ok());
        for (output, want) in cases {
            let error = check(&input, &output, false, &read).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
