//! The report of `inspect` for every fixture, compared with its truth.

use posenc_tests::binary;
use posenc_tests::fixture::{self, Fixture};
use serde_json::Value;

fn inspect(fixture: &Fixture) -> Value {
    let model = fixture.model().display().to_string();
    binary::run(["inspect", &model, "--json"]).json()
}

fn entries(report: &Value) -> Vec<&Value> {
    let entries = report["encodings"].as_array().expect("a list of encodings");
    entries.iter().collect()
}

/// Whether a found value is the wanted one: numbers to a thousandth, objects key by key.
fn is_equal(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Number(got), Value::Number(want)) => {
            let [got, want] = [got, want].map(|n| n.as_f64().unwrap_or(f64::NAN));
            (got - want).abs() <= 1e-3 * want.abs()
        }
        (Value::Object(found), Value::Object(want)) => want.iter().all(|(key, want)| {
            found.get(key).is_some_and(|v| is_equal(v, want))
                || in_range(found.get(&format!("{key}_range")), want)
        }),
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(g, w)| is_equal(g, w))
        }
        _ => got == want,
    }
}

/// Whether a reported range contains the wanted number.
fn in_range(range: Option<&Value>, want: &Value) -> bool {
    let bound = |i: usize| range?.get(i)?.as_f64();
    match (bound(0), bound(1), want.as_f64()) {
        (Some(low), Some(high), Some(want)) => low <= want && want <= high,
        _ => false,
    }
}

/// The facts of a truth that a report lacks.
fn missing(truth: &Value, report: &Value) -> Vec<String> {
    let mut missing = vec![];
    let (want, got) = (entries(truth), entries(report));
    if want.len() != got.len() {
        missing.push(format!(
            "{} entries, not {}: {got:?}",
            got.len(),
            want.len()
        ));
    }
    let mut left = got.clone();
    for want in want {
        match left.iter().position(|got| is_equal(got, want)) {
            Some(found) => drop(left.remove(found)),
            None => missing.push(format!("no {want} in {got:?}")),
        }
    }
    let sites = report["attention"].as_array().expect("a list of sites");
    let attention = &truth["attention"];
    if attention["sites"] != sites.len() {
        missing.push(format!("{} attention sites", sites.len()));
    }
    for key in ["heads", "kv_heads", "head_dim", "causal", "past"] {
        if let Some(site) = sites.iter().find(|s| s[key] != attention[key]) {
            missing.push(format!("{key} of {site}"));
        }
    }
    missing
}

#[test]
fn every_fixture_is_reported_as_its_configuration_says() {
    let mut bad = vec![];
    for fixture in fixture::all() {
        let missing = missing(&fixture.truth(), &inspect(&fixture));
        if !missing.is_empty() {
            bad.push(format!("{}: {missing:#?}", fixture.name()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_truth_with_one_wrong_fact_does_not_match_the_report() {
    let fixture = Fixture::named("llama-yarn/torchscript");
    let (report, truth) = (inspect(&fixture), fixture.truth());
    assert_eq!(missing(&truth, &report), [""; 0]);
    for (pointer, wrong) in [
        ("/encodings/0/params/theta", Value::from(10100.0)),
        ("/encodings/0/params/rotary_dim", Value::from(8)),
        ("/encodings/0/params/layout", Value::from("interleaved")),
        ("/encodings/0/params/attention_factor", Value::from(1.0)),
        ("/encodings/0/params/scaling", Value::Null),
        ("/encodings/0/params/scaling/factor", Value::from(4.1)),
        ("/encodings/0/params/scaling/type", Value::from("linear")),
        (
            "/encodings/0/params/scaling/original_length",
            Value::from(512),
        ),
        ("/encodings/0/layers", Value::from(vec![0])),
        ("/encodings/0/sites", Value::from(1)),
        ("/encodings", Value::Array(vec![])),
        ("/attention/sites", Value::from(3)),
        ("/attention/kv_heads", Value::from(4)),
        ("/attention/causal", Value::from(false)),
        ("/attention/past", Value::from(true)),
    ] {
        let mut truth = truth.clone();
        *truth.pointer_mut(pointer).expect("the truth has it") = wrong;
        assert_ne!(missing(&truth, &report), [""; 0], "{pointer}");
    }
}

#[test]
fn models_without_rope_are_not_rescaled() {
    let mut seen = 0;
    for fixture in fixture::all() {
        let truth = fixture.truth();
        if entries(&truth).iter().any(|e| e["kind"] == "rope") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.onnx");
        let [model, out_text] = [&fixture.model(), &out].map(|p| p.display().to_string());
        let flags = "--scale yarn --factor 4 --original-length 64 -o";
        let arguments = ["rewrite", &model].into_iter().chain(flags.split(' '));
        let ran = binary::run(arguments.chain([&out_text[..]]));
        assert_eq!(ran.code, 4, "{}: {}", fixture.name(), ran.stderr);
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
        assert!(!out.exists(), "{}", fixture.name());
        seen += 1;
    }
    assert!(seen >= 5, "{seen} models");
}
