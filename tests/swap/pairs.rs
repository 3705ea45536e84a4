//! Every source to every target, and back.

use std::fs;
use std::path::Path;

use posenc_runtime::{Backend, TractBackend};
use posenc_tests::fixture::Fixture;
use posenc_tests::wire;

use super::{FLAGS, Swapped, Wrong, family, outputs, rewritten, swapped, targets, wrong};
use crate::logits::{TOLERANCE, distance, try_load};
use crate::runtime::onnxruntime;

/// How far tract may be from ONNX Runtime, relative to the largest logit.
const APART: f64 = 1e-4;

/// Exports that tract does not take as they are: ranges that run down.
const TRACT_REFUSES: &[&str] = &["mini/transformer-xl", "mini-encoder/transformer-xl"];

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
        bad.add(&name, wrong(&backend, &there.model(), &target));
        bad.add(&name, mistaken(&backend, &there, &target));
        if target != *source || !TRACT_REFUSES.contains(&&source.name()[..]) {
            bad.add(&name, apart(&backend, &tract, &there.model(), &target));
        }
        if target != *source {
            let name = format!("{name} and back");
            match swapped(&there.model(), source) {
                Ok(back) => bad.add(&name, wrong(&backend, &back.model(), source)),
                Err(why) => bad.add(&name, [why]),
            }
        }
    }
    bad.none();
}

/// Other encodings that a swapped model could pass for.
fn mistaken(backend: &dyn Backend, model: &Swapped, target: &Fixture) -> Vec<String> {
    let Ok(mut session) = try_load(backend, &model.model()) else {
        return vec![]; // said already
    };
    let run = &target.runs()["full"];
    let Ok(got) = outputs(&mut *session, run) else {
        return vec![];
    };
    let kind = |f: &Fixture| f.exporter.replace("-computed", "");
    let others = family(&target.family).into_iter();
    others
        .filter(|other| kind(other) != kind(target))
        .filter(|other| {
            let want = &other.runs()["full"].outputs["logits"];
            distance(&got, want).is_ok_and(|far| far < 100.0 * TOLERANCE)
        })
        .map(|other| format!("passes for {}", other.exporter))
        .collect()
}

/// The runs in which tract is not what ONNX Runtime is.
fn apart(ort: &dyn Backend, tract: &dyn Backend, model: &Path, target: &Fixture) -> Vec<String> {
    let sessions = [ort, tract].map(|backend| try_load(backend, model));
    let [Ok(mut ort), Ok(mut tract)] = sessions else {
        let failed = sessions.into_iter().filter_map(Result::err);
        return failed.collect();
    };
    let mut found = vec![];
    for (name, run) in target.runs() {
        let want = outputs(&mut *ort, &run);
        let got = outputs(&mut *tract, &run).map_err(|e| format!("tract: {e}"));
        let far = want.and_then(|want| distance(&got?, &want));
        if !far.as_ref().is_ok_and(|far| *far <= APART) {
            found.push(format!("{name}, tract from ONNX Runtime: {far:?}"));
        }
    }
    found
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
fn the_references_are_what_the_fixtures_compute_and_no_others() {
    let (backend, tract) = (onnxruntime(), TractBackend::default());
    let mut bad = Wrong::default();
    for name in ["mini", "mini-encoder"] {
        for fixture in family(name) {
            let model = fixture.model();
            bad.add(&fixture.name(), wrong(&backend, &model, &fixture));
            let apart = apart(&backend, &tract, &model, &fixture);
            match TRACT_REFUSES.contains(&&fixture.name()[..]) {
                true => assert_ne!(apart, [""; 0], "tract takes {}", fixture.name()),
                false => bad.add(&fixture.name(), apart),
            }
            for other in targets(name) {
                let kind = |f: &Fixture| f.exporter.replace("-computed", "");
                if kind(&other) != kind(&fixture) {
                    let fits = wrong(&backend, &model, &other).is_empty();
                    let fits = fits.then(|| format!("is also {}", other.exporter));
                    bad.add(&fixture.name(), fits);
                }
            }
        }
    }
    bad.none();
}

/// How many nodes do something when the model runs.
fn nodes(model: &Path) -> usize {
    let bytes = fs::read(model).unwrap();
    let graph = wire::all(&bytes, wire::model::GRAPH).next().unwrap();
    let nodes = wire::all(graph.payload, wire::graph::NODE);
    let free = |op: &str| matches!(op, "Constant" | "Identity");
    nodes
        .filter(|node| !free(&wire::texts(node.payload, wire::node::OP).concat()))
        .count()
}

/// The flags of a target, with a table of as many rows as tokens are looked at.
fn tabled(target: &Fixture) -> String {
    let flags = FLAGS.iter().find(|(name, _)| *name == target.exporter);
    format!("{} --max-length 256", flags.expect("it has flags").1)
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
                // The exports hold tables of sines, which are computed where no length is given.
                let made = match target.exporter.starts_with("sinusoidal") {
                    true => rewritten(&source.model(), &tabled(&target), None),
                    false => swapped(&source.model(), &target),
                };
                match made {
                    Ok(made) => {
                        let [got, most] = [&made.model(), &target.model()].map(|m| nodes(m));
                        let more = (got > most).then(|| format!("{got} nodes, native {most}"));
                        bad.add(&name, more);
                    }
                    Err(why) => bad.add(&name, [why]),
                }
            }
        }
    }
    bad.none();
}
