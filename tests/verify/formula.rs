//! Faults in models whose graph was recorded after the fault: what was inserted is run against the
//! formula that the record of the swap names, and has to fail by that alone.

use posenc_ir::{Model, Weights};
use posenc_onnx::report::SiteCheck;
use posenc_onnx::verify::{VerifyOptions, verify};
use posenc_runtime::Backend;

use super::faults::Fault;
use super::{REWRITES, model, runtimes, scores, verified};

/// Faults that no formula shows, but the digests do: learned numbers are those of the model, embeddings
/// are no encoding, and layers that stay were not inserted.
const UNSEEN: [&str; 10] = [
    "t5-bias: a row of the table",
    "relative-bias: a row of the table",
    "shaw: a row of the table",
    "alibi: two rows of the embeddings exchanged",
    "alibi: the embeddings shifted by one row",
    "half of shaw: what a layer that stays weights twice, and no vectors",
    "half of shaw: vectors of the values twice in a layer that stays",
    "transformer-xl: one element of the projection",
    "learned: a row of the table",
    "conv: a tap of the kernel",
];

/// How the finding of a record without digests is named.
const LOST: &str = "posenc.written";

/// The model without the digests of its graph, which somebody who changes both would recompute.
fn without_digests(model: &Model) -> Model {
    let text = model.text(Weights::Full).to_string();
    let key = "\"posenc.written\"";
    assert_eq!(text.matches(key).count(), 1);
    Model::parse(&text.replace(key, "\"other.written\"")).unwrap()
}

#[test]
fn honest_swaps_pass_by_the_formula_alone() {
    for (rewrite, _, flags) in REWRITES.iter().filter(|r| r.2.starts_with("--to")) {
        let bare = without_digests(&model(rewrite));
        for backend in runtimes() {
            let report = verified(&bare, backend);
            // That the digests are gone is all that is wrong.
            let failed: Vec<&SiteCheck> = report.sites.iter().filter(|c| !c.ok).collect();
            let lost = matches!(failed[..], [one] if one.site == LOST);
            assert!(lost && !report.ok, "{rewrite}: {:?}", report.warnings);
            assert!(report.runs.iter().all(|run| run.ok), "{rewrite}");
            assert!(report.sites.len() > 1, "{rewrite} {flags}");
            let without = report.unchecked.iter().find(|u| u.contains("no record"));
            assert_eq!(without, None, "{rewrite}");
            let unchecked = report.unchecked.iter().find(|u| u.contains("formula"));
            assert_eq!(unchecked, None, "{rewrite}");
        }
    }
}

/// Whether a runtime finds nothing wrong but the lost digests. One that does not run the model finds nothing right either.
fn passes(model: &Model, backend: Box<dyn Backend>) -> bool {
    let options = VerifyOptions {
        lengths: vec![8],
        ..VerifyOptions::default()
    };
    verify(model, None, &options, &[backend]).is_ok_and(|report| {
        let mut others = report.sites.iter().filter(|c| c.site != LOST);
        others.all(|check| check.ok) && report.runs.iter().all(|run| run.ok)
    })
}

#[test]
fn faults_in_what_was_inserted_fail_by_the_formula_alone() {
    let missed = |fault: &&Fault| {
        let planted = without_digests(&fault.plant());
        let mut all = runtimes().into_iter();
        all.any(|backend| passes(&planted, backend))
    };
    let missed = scores::FAULTS.iter().filter(missed);
    let missed: Vec<String> = missed.map(|f| format!("{}: {}", f.of, f.what)).collect();
    assert_eq!(missed, UNSEEN);
}
