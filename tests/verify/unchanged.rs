//! Outputs of a rewritten model at lengths at which it computes what its original does.

use posenc_ir::Model;
use posenc_onnx::report::{Run, Verify};
use posenc_onnx::verify::{VerifyOptions, verify};
use posenc_tests::shared::root;

use super::{model, revalued, runtimes};

/// The fixture, verified against its rewrite at these lengths in both runtimes.
fn compared(fixture: &str, out: &Model, lengths: &[usize]) -> Verify {
    let original = root().join(format!("fixtures/{fixture}/model.onnx"));
    let original = Model::open(original).unwrap();
    let options = VerifyOptions {
        lengths: lengths.to_vec(),
        ..VerifyOptions::default()
    };
    verify(&original, Some(out), &options, &runtimes()).unwrap()
}

fn at(report: &Verify, length: usize) -> impl Iterator<Item = &Run> {
    report.runs.iter().filter(move |run| run.length == length)
}

#[test]
fn outputs_are_judged_where_the_encodings_have_the_same_numbers() {
    let out = model("dynamic");
    let report = compared("mini/rope", &out, &[8, 16, 24]);
    assert!(report.ok, "{:?}", report.warnings);
    for length in [8, 16] {
        assert!(at(&report, length).count() >= 3, "{length}");
        assert!(at(&report, length).all(Run::is_comparison), "{length}");
    }
    assert!(at(&report, 24).all(|run| !run.is_comparison()));
    assert!(at(&report, 24).all(|run| run.max_abs > Some(1e-3)));
    let says = |word: &str| report.unchecked.iter().any(|why| why.contains(word));
    assert!(
        says("at length 24, because a rewrite"),
        "{:?}",
        report.unchecked
    );

    // A control: a weight that is not as it was shows there.
    let changed = revalued(out, "val_45", |mut values| {
        values.iter_mut().for_each(|v| *v *= 1.5);
        values
    });
    let report = compared("mini/rope", &changed, &[8, 24]);
    assert!(at(&report, 8).all(|run| !run.ok), "{:?}", report.runs);
    assert!(at(&report, 24).all(|run| run.ok), "{:?}", report.runs);
}

#[test]
fn a_longer_table_runs_alone_where_the_original_ends() {
    let out = model("tile");
    let report = compared("mini/learned", &out, &[8, 48]);
    assert!(report.ok, "{:?}", report.warnings);
    assert!(at(&report, 8).all(|run| run.is_comparison() && run.max_abs == Some(0.0)));
    assert!(at(&report, 48).count() >= 3);
    assert!(at(&report, 48).all(|run| run.ok && !run.is_comparison()));
    let says = |word: &str| report.unchecked.iter().any(|why| why.contains(word));
    assert!(
        says("at length 48, because the original"),
        "{:?}",
        report.unchecked
    );
}
