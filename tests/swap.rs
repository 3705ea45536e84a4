//! Swapped models compared with PyTorch. The fixtures `mini*` contain one transformer with every
//! encoding: each is the oracle of the others, swapped to its encoding.

mod caches;
mod equivariance;
mod pairs;
mod refusals;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use posenc_ir::Tensor;
use posenc_runtime::{Backend, Session};
use posenc_tests::binary;
use posenc_tests::fixture::{self, Fixture, Run};
use serde_json::Value;
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, logits, try_load};

/// The flags of `rewrite` for each encoding of the mini models.
const FLAGS: &[(&str, &str)] = &[
    ("none", "--to none"),
    ("sinusoidal", "--to sinusoidal"),
    ("sinusoidal-computed", "--to sinusoidal"),
    ("sinusoidal-concat", "--to sinusoidal --layout half"),
    ("learned", "--to learned"),
    ("rope", "--to rope"),
    ("rope-interleaved", "--to rope --layout interleaved"),
    ("rope-partial", "--to rope --rotary-dim 4"),
    ("alibi", "--to alibi"),
    ("t5", "--to t5-bias"),
    ("relative-clipped", "--to relative-bias"),
    ("shaw", "--to shaw"),
    ("transformer-xl", "--to transformer-xl"),
    ("conv", "--to conv"),
];

/// A model in a temporary folder.
struct Swapped {
    folder: TempDir,
}

impl Swapped {
    fn model(&self) -> PathBuf {
        self.folder.path().join("out.onnx")
    }
}

/// The model that `rewrite` writes with these flags and proves, else the reason why not.
fn rewritten(model: &Path, flags: &str, params: Option<&Path>) -> Result<Swapped, String> {
    let folder = tempfile::tempdir().unwrap();
    let swapped = Swapped { folder };
    let mut arguments: Vec<OsString> = vec!["rewrite".into(), model.into()];
    arguments.extend(flags.split(' ').map(OsString::from));
    if let Some(params) = params {
        arguments.extend(["--params".into(), params.into()]);
    }
    arguments.extend(["--json".into(), "-o".into(), swapped.model().into()]);
    let ran = binary::run(arguments);
    if ran.code != 0 {
        return Err(format!("exit {}: {}", ran.code, ran.stderr.trim()));
    }
    // Where no encoding was inserted, there is no formula to compare with.
    let report = ran.json();
    let untouched = report["edits"].as_array().is_some_and(Vec::is_empty);
    let proved = match &report["check"]["ok"] {
        Value::Null => flags.starts_with("--to none") || untouched,
        ok => *ok == true,
    };
    if proved {
        Ok(swapped)
    } else {
        Err(format!("it was not proved: {}", ran.stdout))
    }
}

/// A model swapped to the encoding of a mini fixture, with the parameters of that fixture.
fn swapped(model: &Path, target: &Fixture) -> Result<Swapped, String> {
    let flags = FLAGS.iter().find(|(name, _)| *name == target.exporter);
    let (_, flags) = flags.expect("every encoding has its flags");
    let params = target.path("params.safetensors");
    rewritten(model, flags, params.is_file().then_some(&params))
}

/// The fixtures of a mini family, in which `exporter` is the encoding.
fn family(name: &str) -> Vec<Fixture> {
    let found: Vec<Fixture> = fixture::all()
        .into_iter()
        .filter(|f| f.family == name)
        .collect();
    assert!(found.len() > 5, "{name} has {} fixtures", found.len());
    found
}

/// The fixtures of a family that are targets of a swap; computed sinusoids equal those of the table.
fn targets(name: &str) -> Vec<Fixture> {
    let mut found = family(name);
    found.retain(|f| f.exporter != "sinusoidal-computed");
    found
}

fn outputs(session: &mut dyn Session, run: &Run) -> Result<Tensor, String> {
    logits(session, &run.inputs)
}

/// The runs of a reference whose logits a model does not compute.
fn wrong(backend: &dyn Backend, model: &Path, target: &Fixture) -> Vec<String> {
    let mut session = match try_load(backend, model) {
        Ok(session) => session,
        Err(error) => return vec![error],
    };
    let mut wrong = vec![];
    for (name, run) in target.runs() {
        let far =
            outputs(&mut *session, &run).and_then(|got| distance(&got, &run.outputs["logits"]));
        if !far.as_ref().is_ok_and(|far| *far <= TOLERANCE) {
            wrong.push(format!("{name} on {}: {far:?}", backend.name()));
        }
    }
    wrong
}

/// Requires that logits differ clearly from those of `other`.
fn clearly_differ(got: &Tensor, want: &Tensor, other: &str) -> Result<(), String> {
    match distance(got, want) {
        Ok(far) if far >= 100.0 * TOLERANCE => Ok(()),
        Ok(far) => Err(format!("the logits are those of {other}, up to {far:e}")),
        Err(error) => Err(format!("cannot be compared with {other}: {error}")),
    }
}

#[test]
fn logits_that_are_equal_or_cannot_be_compared_do_not_clearly_differ() {
    let zeros = Tensor::from_f32(&[1, 2], &[0.0, 0.0]);
    let cases = [
        ("equal", zeros.clone(), "the logits are those of X"),
        (
            "nearly equal",
            Tensor::from_f32(&[1, 2], &[0.0, 1e-3]),
            "the logits are those of X",
        ),
        (
            "another shape",
            Tensor::from_f32(&[2], &[9.0, 9.0]),
            "cannot be compared with X",
        ),
        (
            "no number",
            Tensor::from_f32(&[1, 2], &[9.0, f32::NAN]),
            "cannot be compared with X",
        ),
    ];
    for (name, got, want) in cases {
        let why = clearly_differ(&got, &zeros, "X").unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
    let other = Tensor::from_f32(&[1, 2], &[0.0, 1e-2]);
    assert_eq!(clearly_differ(&other, &zeros, "X"), Ok(()));
}

/// The faults of several swaps.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn add(&mut self, name: &str, what: impl IntoIterator<Item = String>) {
        self.0
            .extend(what.into_iter().map(|w| format!("{name}: {w}")));
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}
