//! Models with a position fail, and those without pass.

use posenc_ir::Model;

use super::check;
use crate::detect::{Options, detect};
use crate::prove::testing::{Evaluator, fixture};
use crate::report::SiteCheck;
use crate::request::Request;
use posenc_encodings::kind::Kind;

/// The checks of all sites of a model as it is.
fn checks(model: &Model) -> Vec<SiteCheck> {
    let found = detect(model, &Options::default());
    let sites: Vec<usize> = (0..found.attention.len()).collect();
    check((model, &found), &sites, &Evaluator::default()).unwrap()
}

fn failed(checks: &[SiteCheck]) -> Vec<&str> {
    let failed = checks.iter().filter(|check| !check.ok);
    failed.map(|check| check.quantity.as_str()).collect()
}

#[test]
fn every_encoding_that_is_left_is_seen() {
    // Rotations and absolute codes are in queries and keys, biases and terms in scores.
    for (kind, quantity) in [
        ("rope", "queries of equal tokens"),
        ("learned", "queries of equal tokens"),
        ("sinusoidal", "queries of equal tokens"),
        ("alibi", "scores of equal tokens"),
        ("t5", "scores of equal tokens"),
        ("relative-clipped", "scores of equal tokens"),
        ("shaw", "scores of equal tokens"),
        ("transformer-xl", "scores of equal tokens"),
    ] {
        let checks = checks(&fixture(&format!("mini/{kind}")));
        assert!(failed(&checks).contains(&quantity), "{kind}: {checks:?}");
    }
}

#[test]
fn a_model_without_positions_passes_at_every_site() {
    let checks = checks(&fixture("mini/none"));
    let all = ["queries", "keys", "scores"].map(|name| format!("{name} of equal tokens"));
    let quantities: Vec<&str> = checks.iter().map(|check| check.quantity.as_str()).collect();
    assert_eq!(quantities, [&all[..], &all[..]].concat());
    assert_eq!(failed(&checks), [""; 0]);
}

#[test]
fn a_position_in_one_layer_is_named_there() {
    let mut model = fixture("mini/alibi");
    let mut request = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    request.layers = Some("0".parse().unwrap());
    crate::rewrite::rewrite(&mut model, &request).unwrap();
    let found = detect(&model, &Options::default());
    let checks = checks(&model);
    let failed: Vec<&SiteCheck> = checks.iter().filter(|check| !check.ok).collect();
    assert!(!failed.is_empty());
    assert!(
        failed
            .iter()
            .all(|check| check.site == found.attention[1].name),
        "{failed:?}"
    );
}

#[test]
fn numbers_that_differ_everywhere_fail() {
    // The evaluator returns other numbers for the last token.
    let model = fixture("mini/none");
    let found = detect(&model, &Options::default());
    let wrong = Evaluator {
        fault: Some(|data, _| *data.last_mut().unwrap() += 1.0),
        ..Evaluator::default()
    };
    let checks = check((&model, &found), &[0], &wrong).unwrap();
    assert_eq!(failed(&checks).len(), 3, "{checks:?}");
}
