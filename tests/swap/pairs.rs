//! Every source to every target, and back.

use std::fs;
use std::path::Path;

use posenc_ir::Tensor;
use posenc_runtime::{Backend, TractBackend};
use posenc_tests::fixture::Fixture;
use posenc_tests::wire;

use super::{FLAGS, Wrong, clearly_differ, family, outputs, rewritten, swapped, targets, wrong};
use crate::logits::{distance, try_load};
use crate::runtime::onnxruntime;

/// The largest distance between tract and ONNX Runtime, relative to the largest logit.
const APART: f64 = 1e-4;

/// Exports that tract cannot run unchanged, with words of its refusal. An entry that tract runs, or
/// refuses with other words, fails the test of the references. Swapped models have no entries.
const TRACT_REFUSES: &[(&str, &str)] = &[
    ("mini/transformer-xl", DESCENDING),
    ("mini-encoder/transformer-xl", DESCENDING),
];

/// tract infers a wrong length for a `Range` with a negative step.
const DESCENDING: &str = "Range: Infering facts: Applying rule outputs[0].shape[0]";

/// The words of the known refusal of an unchanged fixture.
fn known_refusal(fixture: &Fixture) -> Option<&'static str> {
    let entry = TRACT_REFUSES
        .iter()
        .find(|(name, _)| *name == fixture.name());
    entry.map(|(_, words)| *words)
}

/// A model swapped to every encoding of its family and back again.
fn to_all_and_back(source: &Fixture) {
    let (backend, tract) = (onnxruntime(), TractBackend::default());
    let mut bad = Wrong::default();
    for target in targets(&source.family) {
        let name = format!("{} to {}", source.name(), target.exporter);
        let there = match swapped(&source.model(), &target) {
            Ok(there) => there,
            Err(why) => {
                bad.add(&name, [why]);
                continue;
            }
        };
        let model = there.model();
        bad.add(&name, wrong(&backend, &model, &target));
        bad.add(&name, mistaken(&backend, &model, &target));
        bad.add(&name, apart(&backend, &tract, &model, &target));
        if target != *source {
            let name = format!("{name} and back");
            match swapped(&model, source) {
                Ok(back) => bad.add(&name, wrong(&backend, &back.model(), source)),
                Err(why) => bad.add(&name, [why]),
            }
        }
    }
    bad.none();
}

/// The other encodings whose logits a model computes too, or cannot be compared with.
fn mistaken(backend: &dyn Backend, model: &Path, target: &Fixture) -> Vec<String> {
    let run = &target.runs()["full"];
    let got = try_load(backend, model).and_then(|mut session| outputs(&mut *session, run));
    match got {
        Ok(got) => too_close(&got, target),
        Err(error) => vec![error],
    }
}

/// The other encodings of a family whose logits these are, or cannot be compared with.
fn too_close(got: &Tensor, target: &Fixture) -> Vec<String> {
    let kind = |f: &Fixture| f.exporter.replace("-computed", "");
    let others = family(&target.family).into_iter();
    others
        .filter(|other| kind(other) != kind(target))
        .filter_map(|other| {
            let want = &other.runs()["full"].outputs["logits"];
            clearly_differ(got, want, &other.exporter).err()
        })
        .collect()
}

/// The runs in which tract and ONNX Runtime differ, or fail.
fn apart(ort: &dyn Backend, tract: &dyn Backend, model: &Path, target: &Fixture) -> Vec<String> {
    let sessions = [ort, tract].map(|backend| try_load(backend, model));
    let [Ok(mut ort), Ok(mut tract)] = sessions else {
        let failed = sessions.into_iter().filter_map(Result::err);
        return failed.collect();
    };
    let mut found = vec![];
    for (name, run) in target.runs() {
        let want = outputs(&mut *ort, &run).map_err(|e| format!("ONNX Runtime: {e}"));
        let got = outputs(&mut *tract, &run).map_err(|e| format!("tract: {e}"));
        let far = want.and_then(|want| distance(&got?, &want));
        if !far.as_ref().is_ok_and(|far| *far <= APART) {
            found.push(format!("{name}, tract from ONNX Runtime: {far:?}"));
        }
    }
    found
}

/// The faults of tract without a known refusal, or a line which says that the refusal is gone.
fn unexpected(found: Vec<String>, known: Option<&str>) -> Vec<String> {
    match known {
        None => found,
        Some(_) if found.is_empty() => {
            vec!["tract runs it now: remove this entry from TRACT_REFUSES".into()]
        }
        Some(words) => {
            let others = found.into_iter().filter(|fault| !fault.contains(words));
            others.collect()
        }
    }
}

#[test]
fn a_known_refusal_that_is_gone_or_changed_is_noticed() {
    let faults = |list: &[&str]| -> Vec<String> { list.iter().map(|f| (*f).into()).collect() };
    let cases = [
        ("nothing", faults(&[]), None, faults(&[])),
        ("a fault", faults(&["far"]), None, faults(&["far"])),
        (
            "known",
            faults(&["it panicked: x"]),
            Some("panicked"),
            faults(&[]),
        ),
        (
            "known and more",
            faults(&["it panicked", "far"]),
            Some("panicked"),
            faults(&["far"]),
        ),
    ];
    for (name, found, known, want) in cases {
        assert_eq!(unexpected(found, known), want, "{name}");
    }
    let gone = unexpected(vec![], Some("panicked"));
    assert!(gone[0].contains("remove this entry"), "{gone:?}");
    for (name, _) in TRACT_REFUSES {
        Fixture::named(name);
    }
}

#[test]
fn logits_of_another_encoding_and_none_at_all_are_mistaken() {
    let backend = onnxruntime();
    let [alibi, rope] = ["mini/alibi", "mini/rope"].map(Fixture::named);
    assert_eq!(mistaken(&backend, &alibi.model(), &alibi), [""; 0]);
    let faults = mistaken(&backend, &rope.model(), &alibi);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].contains("the logits are those of rope"),
        "{faults:?}"
    );
    let broken = Path::new("fixtures/README.md");
    let faults = mistaken(&backend, broken, &alibi);
    assert!(faults[0].contains("README.md"), "{faults:?}");
    // Logits of one token less.
    let short = Tensor::from_f32(&[1, 1, 1], &[0.0]);
    let faults = too_close(&short, &alibi);
    assert_eq!(faults.len(), family("mini").len() - 1, "{faults:?}");
    assert!(faults[0].contains("cannot be compared"), "{faults:?}");
}

/// One test for each source.
macro_rules! sources {
    ($($name:ident: $fixture:literal;)*) => {
        $(
            #[test]
            fn $name() {
                to_all_and_back(&Fixture::named($fixture));
            }
        )*

        #[test]
        fn every_mini_fixture_is_a_source() {
            let mut named = [$($fixture),*];
            named.sort();
            let mut all: Vec<String> = vec![];
            for name in ["mini", "mini-encoder"] {
                all.extend(family(name).iter().map(Fixture::name));
            }
            all.sort();
            assert_eq!(all, named);
        }
    };
}

sources! {
    nothing_becomes_everything: "mini/none";
    sinusoids_become_everything: "mini/sinusoidal";
    sinusoids_in_halves_become_everything: "mini/sinusoidal-concat";
    computed_sinusoids_become_everything: "mini/sinusoidal-computed";
    a_table_becomes_everything: "mini/learned";
    rope_becomes_everything: "mini/rope";
    interleaved_rope_becomes_everything: "mini/rope-interleaved";
    partial_rope_becomes_everything: "mini/rope-partial";
    alibi_becomes_everything: "mini/alibi";
    a_t5_bias_becomes_everything: "mini/t5";
    a_clipped_bias_becomes_everything: "mini/relative-clipped";
    shaw_becomes_everything: "mini/shaw";
    transformer_xl_becomes_everything: "mini/transformer-xl";
    a_convolution_becomes_everything: "mini/conv";
    nothing_in_an_encoder: "mini-encoder/none";
    a_table_in_an_encoder: "mini-encoder/learned";
    rope_in_an_encoder: "mini-encoder/rope";
    alibi_in_an_encoder: "mini-encoder/alibi";
    a_t5_bias_in_an_encoder: "mini-encoder/t5";
    a_clipped_bias_in_an_encoder: "mini-encoder/relative-clipped";
    shaw_in_an_encoder: "mini-encoder/shaw";
    transformer_xl_in_an_encoder: "mini-encoder/transformer-xl";
}

#[test]
fn every_mini_fixture_computes_its_reference_and_no_other() {
    let (backend, tract) = (onnxruntime(), TractBackend::default());
    let mut bad = Wrong::default();
    for name in ["mini", "mini-encoder"] {
        for fixture in family(name) {
            let model = fixture.model();
            bad.add(&fixture.name(), wrong(&backend, &model, &fixture));
            bad.add(&fixture.name(), mistaken(&backend, &model, &fixture));
            let apart = apart(&backend, &tract, &model, &fixture);
            bad.add(&fixture.name(), unexpected(apart, known_refusal(&fixture)));
        }
    }
    bad.none();
}

/// The number of nodes that compute something at run time.
fn nodes(model: &Path) -> usize {
    let bytes = fs::read(model).unwrap();
    let graph = wire::all(&bytes, wire::model::GRAPH).next().unwrap();
    let nodes = wire::all(graph.payload, wire::graph::NODE);
    let is_free = |op: &str| matches!(op, "Constant" | "Identity");
    nodes
        .filter(|node| !is_free(&wire::texts(node.payload, wire::node::OP).concat()))
        .count()
}

/// What is wrong where a model has more nodes than a native export.
fn more_nodes(made: &Path, native: &Path) -> Option<String> {
    let [got, most] = [made, native].map(nodes);
    (got > most).then(|| format!("{got} nodes, native {most}"))
}

#[test]
fn more_nodes_than_those_of_an_export_are_noticed() {
    for name in ["mini", "mini-encoder"] {
        let export = |encoding: &str| Fixture::named(&format!("{name}/{encoding}")).model();
        let none = export("none");
        assert_eq!(more_nodes(&none, &none), None, "{name}");
        for more in ["t5", "alibi", "rope"] {
            let more = export(more);
            let said = more_nodes(&more, &none).unwrap();
            let want = format!("{} nodes, native {}", nodes(&more), nodes(&none));
            assert_eq!(said, want, "{name}");
            assert_eq!(more_nodes(&none, &more), None, "{name}");
        }
    }
}

/// The flags of a target with a table of 256 rows.
fn tabled(target: &Fixture) -> String {
    let flags = FLAGS.iter().find(|(name, _)| *name == target.exporter);
    format!(
        "{} --max-length 256",
        flags.expect("every encoding has flags").1
    )
}

#[test]
fn swapped_models_have_no_more_nodes_than_native_exports() {
    let mut bad = Wrong::default();
    for name in ["mini", "mini-encoder"] {
        let source = Fixture::named(&format!("{name}/none"));
        let other = Fixture::named(&format!("{name}/rope"));
        for target in targets(name) {
            for source in [&source, &other] {
                let name = format!("{} to {}", source.name(), target.exporter);
                // The exports contain tables of sines; without a length, a swap computes them.
                let made = if target.exporter.starts_with("sinusoidal") {
                    rewritten(&source.model(), &tabled(&target), None)
                } else {
                    swapped(&source.model(), &target)
                };
                match made {
                    Ok(made) => bad.add(&name, more_nodes(&made.model(), &target.model())),
                    Err(why) => bad.add(&name, [why]),
                }
            }
        }
    }
    bad.none();
}
