//! That what is taken over from before a rescale is what a whole detection of the result finds.

use posenc_ir::{DType, Model};

use crate::detect::{Found, Options, detect};
use crate::prove::testing::{fixture, rescaled_by};
use crate::request::LawName;
use crate::rewrite::rewrite;

/// What is compared: everything that a report or a check reads.
fn of(found: &Found) -> Vec<String> {
    let Found {
        attention,
        rotary,
        axial,
        not_rotary,
        findings,
        no_encodings,
        limits,
        mixers,
        partial,
        misplaced,
        no_attention,
        not_evaluated,
        rows,
        spread,
        attended,
        filled,
        met,
        unfitted_rotations,
        quantized,
        ports: _,
        lengths: _,
        classes: _,
        trace: _,
        custom: _,
        mixed: _,
        latent: _,
        gathered: _,
        later: _,
        late_masks: _,
    } = found;
    // The numbers are those that a rescale changes.
    let met: Vec<_> = met.iter().map(|met| met.node).collect();
    vec![
        format!("{attention:?}"),
        format!("{rotary:?} {axial:?} {not_rotary:?} {quantized:?}"),
        format!("{findings:?} {no_encodings:?}"),
        format!("{limits:?}"),
        format!("{mixers:?} {partial:?} {misplaced:?}"),
        format!("{no_attention:?} {not_evaluated:?}"),
        format!("{rows:?} {filled:?} {unfitted_rotations:?}"),
        format!("{spread:?} {attended:?} {met:?}"),
    ]
}

#[test]
fn a_rescaled_model_reads_as_if_it_were_detected_anew() {
    for name in [
        "mini/rope",
        "mini/rope-partial",
        "mini-cached/rope",
        "llama/dynamo23",
        "llama/ort-O2",
        "gpt_neox/optimum",
        "gemma3-text/optimum",
    ] {
        for law in [LawName::Linear, LawName::Dynamic, LawName::Yarn] {
            let request = rescaled_by(law, 4.0);
            let mut model = fixture(name);
            let before = detect(&model, &Options::default());
            let Ok(done) = rewrite(&mut model, &request) else {
                assert_eq!((name, law), ("llama/ort-O2", LawName::Dynamic), "refused");
                continue;
            };
            let anew = detect(&model, &Options::default());
            assert_eq!(of(&done.found), of(&anew), "{name} {law:?}");
            assert_ne!(of(&before)[1], of(&anew)[1], "{name} {law:?}: rotations");
        }
    }
}

/// `mini/rope` with the largest number that an operator makes of its cosines, added to the last norm.
fn with_cosines_elsewhere(op: &str) -> Model {
    let model = fixture("mini/rope");
    let graph = model.graph();
    let [cos, norm] = ["cos", "layer_norm_4"].map(|v| graph.find(graph.main(), v).unwrap());
    let mut out = graph.emitter(graph.main(), "more");
    let made = out.op(op, &[cos]);
    let number = out.cast(made, DType::F32);
    let most = out.op("ReduceMax", &[number]);
    let sum = out.op("Add", &[norm, most]);
    out.redirect(norm, sum).unwrap();
    model.clone().with_patch(out.finish()).unwrap().0
}

#[test]
fn frequencies_that_act_on_more_than_rotations_are_not_rescaled() {
    let request = rescaled_by(LawName::Linear, 4.0);
    for (op, is_changed) in [("Neg", true), ("Exp", true), ("Size", false)] {
        match rewrite(&mut with_cosines_elsewhere(op), &request) {
            Ok(_) => assert!(!is_changed, "{op}"),
            Err(why) => {
                assert!(is_changed, "{op}: {why}");
                let why = why.to_string();
                assert!(
                    why.contains("this node also reads the frequencies"),
                    "{why}"
                );
            }
        }
    }
}
