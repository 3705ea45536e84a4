//! `verify` on rewritten models: honest ones pass, and planted faults are reported at the right site,
//! in tract and in ONNX Runtime.

mod faults;
mod formula;
mod original;
mod rotations;
mod scores;
mod unchanged;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use posenc_ir::{Model, Tensor, Weights};
use posenc_onnx::report::Verify;
use posenc_onnx::verify::{VerifyOptions, verify};
use posenc_runtime::{Backend, TractBackend};
use posenc_tests::binary;
use posenc_tests::shared::root;

use crate::runtime::onnxruntime;

/// Rewrites of fixtures: a name, the fixture and the flags.
const REWRITES: [(&str, &str, &str); 18] = [
    ("rope", "mini/rope", "--scale linear --factor 2"),
    ("to rope", "mini/none", "--to rope"),
    ("to none", "mini/rope", "--to none"),
    ("alibi", "mini/none", "--to alibi"),
    ("symmetric alibi", "mini-encoder/none", "--to alibi"),
    ("t5-bias", "mini/none", "--to t5-bias"),
    ("relative-bias", "mini/none", "--to relative-bias"),
    ("kerple", "mini/none", "--to kerple"),
    ("shaw", "mini/none", "--to shaw"),
    ("transformer-xl", "mini/none", "--to transformer-xl"),
    (
        "transformer-xl, folded",
        "bloom/dynamo",
        "--to transformer-xl --seed 1",
    ),
    ("learned", "mini/none", "--to learned --max-length 64"),
    ("sinusoidal", "mini/none", "--to sinusoidal"),
    ("conv", "mini/none", "--to conv"),
    ("half of shaw", "mini/shaw", "--to rope --layers 0"),
    ("cached", "mini-cached/rope", "--scale linear --factor 2"),
    (
        "dynamic",
        "mini/rope",
        "--scale dynamic --factor 4 --original-length 16",
    ),
    ("tile", "mini/learned", "--scale tile --factor 2"),
];

/// The bytes of every rewrite, by its name.
fn rewritten() -> &'static BTreeMap<&'static str, Vec<u8>> {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.onnx");
        let rewrite = |(name, fixture, flags): (&'static str, &str, &str)| {
            let model = root().join(format!("fixtures/{fixture}/model.onnx"));
            let [model, out_path] = [&model, &out].map(|p| p.to_str().unwrap());
            let mut arguments = vec!["rewrite", model, "-o", out_path];
            arguments.extend(flags.split(' '));
            let ran = binary::run(&arguments);
            assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
            (name, std::fs::read(&out).unwrap())
        };
        REWRITES.map(rewrite).into()
    })
}

fn model(rewrite: &str) -> Model {
    Model::from_bytes(rewritten()[rewrite].clone()).unwrap()
}

/// Verifies at one short length.
fn verified(model: &Model, backend: Box<dyn Backend>) -> Verify {
    let options = VerifyOptions {
        lengths: vec![8],
        ..VerifyOptions::default()
    };
    verify(model, None, &options, &[backend]).unwrap_or_else(|e| panic!("{e}"))
}

/// The names of sites and outputs with a failed check.
fn failing(report: &Verify) -> Vec<String> {
    let mut failed: Vec<String> = vec![];
    for check in report.sites.iter().filter(|c| !c.ok) {
        if !failed.contains(&check.site) {
            failed.push(check.site.clone());
        }
    }
    failed
}

fn runtimes() -> [Box<dyn Backend>; 2] {
    [Box::new(TractBackend::default()), Box::new(onnxruntime())]
}

/// The model with `values` in place of those of a constant.
fn revalued(mut model: Model, name: &str, values: impl Fn(Vec<f64>) -> Vec<f64>) -> Model {
    let graph = model.graph();
    let constant = graph
        .find(graph.main(), name)
        .unwrap_or_else(|| panic!("{name}"));
    let old = graph.constant(constant).unwrap();
    let new = values(old.to_f64s().unwrap());
    let tensor = Tensor::from_f64(old.dtype(), old.dims(), &new);
    let mut out = graph.emitter(graph.main(), "posenc_fault");
    out.replace_constant(constant, graph.uses(constant), tensor)
        .unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    model
}

#[test]
fn honest_rewrites_pass_in_both_runtimes_written_in_another_way_too() {
    for (rewrite, ..) in REWRITES {
        let text = model(rewrite).text(Weights::Full).to_string();
        let respelled = text.replace("posenc/", "renamed/");
        for backend in runtimes() {
            let report = verified(&model(rewrite), backend);
            assert_eq!(failing(&report), [""; 0], "{rewrite}");
            assert!(report.ok, "{rewrite}");
        }
        for text in [text, respelled] {
            let report = verified(
                &Model::parse(&text).unwrap(),
                runtimes().into_iter().next().unwrap(),
            );
            assert_eq!(
                failing(&report),
                [""; 0],
                "{rewrite}: {:?}",
                report.warnings
            );
        }
    }
}

#[test]
fn encodings_that_are_rewritten_again_pass() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.onnx", "second.onnx"].map(|name| folder.path().join(name));
    for (to, then) in [
        ("--to alibi --bidirectional", "--max-length 4096"),
        ("--to alibi --bidirectional", "--scale linear --factor 2"),
        ("--to alibi", "--scale linear --factor 2"),
        ("--to rope", "--layout interleaved"),
    ] {
        let original = root().join("fixtures/mini/none/model.onnx");
        for (from, flags, out) in [(&original, to, &first), (&first, then, &second)] {
            let [from, out] = [from, out].map(|path| path.to_str().unwrap());
            let mut arguments = vec!["rewrite", from, "-o", out];
            arguments.extend(flags.split(' '));
            let ran = binary::run(&arguments);
            assert_eq!(ran.code, 0, "{to}, {flags}: {}", ran.stderr);
        }
        for backend in runtimes() {
            let report = verified(&Model::open(&second).unwrap(), backend);
            let why = format!("{to}, {then}: {:?}", report.warnings);
            assert_eq!(failing(&report), [""; 0], "{why}");
            assert!(report.ok, "{why}");
        }
        for path in [&first, &second] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_weight_of_the_original_that_changed_is_named() {
    let original = Model::open(root().join("fixtures/mini/none/model.onnx")).unwrap();
    let out = model("alibi");
    let changed = revalued(out.clone(), "val_41", |mut values| {
        values[7] += 0.5;
        values
    });
    let options = VerifyOptions {
        lengths: vec![8],
        ..VerifyOptions::default()
    };
    for (out, ok) in [(out, true), (changed, false)] {
        let backend: [Box<dyn Backend>; 1] = [Box::new(TractBackend::default())];
        let report = verify(&original, Some(&out), &options, &backend).unwrap();
        assert_eq!(failing(&report).is_empty(), ok, "{:?}", report.warnings);
        let says = |word: &str| report.unchecked.iter().any(|u| u.contains(word));
        assert!(!says("weights"), "{:?}", report.unchecked);
    }
}

/// The output of `verify` of a fixture in tract alone, and its exit code.
fn alone(fixture: &str) -> (String, i32) {
    let path = root().join(format!("fixtures/{fixture}/model.onnx"));
    let path = path.to_str().unwrap();
    let ran = binary::run(["verify", path, "--provider", "tract", "--lengths", "8"]);
    (ran.stdout, ran.code)
}

#[test]
fn without_a_record_the_last_line_says_what_was_not_checked() {
    for (fixture, code) in [("mini/alibi", 0), ("mini/t5", 0), ("mini/none", 1)] {
        let (out, got) = alone(fixture);
        let last = out.lines().last().unwrap_or_default();
        assert!(last.starts_with("not checked: masks, values"), "{last}");
        assert!(last.contains("no record of a rewrite"), "{last}");
        let nothing = out.contains("nothing could be compared");
        assert_eq!(nothing, code == 1, "{fixture}: {out}");
        assert_eq!(got, code, "{fixture}");
    }
}

#[test]
fn lengths_that_no_memory_holds_are_refused_at_once() {
    let path = root().join("fixtures/mini/rope/model.onnx");
    let path = path.to_str().unwrap();
    let limit = std::time::Duration::from_secs(60);
    let arguments = ["verify", path, "--provider", "tract", "--lengths", "100000"];
    let ran = binary::run_within(limit, arguments).expect("it ends");
    assert!(
        ran.stderr
            .contains("length 100000 needs 60000000000 scores"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.code, 4);
}
