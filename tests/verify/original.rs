//! A rewritten model and its original: nothing outside of the edits may differ, whatever the
//! outputs do.

use posenc_ir::{Model, Tensor, Weights};
use posenc_onnx::report::Verify;
use posenc_onnx::verify::{VerifyOptions, verify};
use posenc_runtime::TractBackend;
use posenc_tests::binary;
use posenc_tests::shared::root;

use super::{REWRITES, failing, model, revalued};

fn original(rewrite: &str) -> Model {
    let (_, fixture, _) = REWRITES.iter().find(|r| r.0 == rewrite).unwrap();
    Model::open(root().join(format!("fixtures/{fixture}/model.onnx"))).unwrap()
}

fn against(original: &Model, out: &Model) -> Verify {
    let options = VerifyOptions {
        lengths: vec![8],
        ..VerifyOptions::default()
    };
    let backend = [Box::new(TractBackend::default()) as _];
    verify(original, Some(out), &options, &backend).unwrap_or_else(|e| panic!("{e}"))
}

/// The places that differ from the original.
fn differing(report: &Verify) -> Vec<&str> {
    let checks = report.sites.iter();
    let failed = checks.filter(|c| !c.ok && c.quantity == "original");
    failed.map(|c| &*c.site).collect()
}

fn edited(model: &Model, from: &str, to: &str) -> Model {
    let text = model.text(Weights::Full).to_string();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    Model::parse(&text.replace(from, to)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn honest_rewrites_pass_although_their_outputs_differ() {
    for (rewrite, ..) in REWRITES {
        let (original, out) = (original(rewrite), model(rewrite));
        for report in [against(&original, &out), against(&out, &original)] {
            assert_eq!(
                failing(&report),
                [""; 0],
                "{rewrite}: {:?}",
                report.warnings
            );
            assert!(report.ok, "{rewrite}");
            let says = |word: &str| report.unchecked.iter().any(|u| u.contains(word));
            // These act on longer sequences.
            let is_same = ["dynamic", "tile"].contains(&rewrite);
            let judged = !says("outputs against those of the original");
            assert_eq!(judged, is_same, "{rewrite}: {:?}", report.unchecked);
            assert!(!says("nodes"), "{rewrite}: {:?}", report.unchecked);
            let differs = report.runs.iter().any(|r| r.max_abs > Some(1e-3));
            let zeros = [
                "t5-bias",
                "relative-bias",
                "shaw",
                "transformer-xl",
                "learned",
                "conv",
            ];
            let acts = !is_same && !zeros.contains(&rewrite);
            assert_eq!(differs, acts, "{rewrite}");
        }
    }
}

#[test]
fn changes_outside_of_the_edits_are_named() {
    let nudge: fn(Vec<f64>) -> Vec<f64> = |mut v| {
        v[3] = f64::from(f32::from_bits((v[3] as f32).to_bits() ^ 1));
        v
    };
    let mut faults: Vec<(&str, Model, &str)> = vec![];
    for rewrite in ["alibi", "t5-bias", "learned", "to rope"] {
        let bit = revalued(model(rewrite), "blocks.0.up.bias", nudge);
        faults.push((rewrite, bit, "blocks.0.up.bias"));
        let gelu = "[\"node_gelu_1\"] gelu_1 = Gelu <approximate = \"none\">";
        let tanh = gelu.replace("none", "tanh");
        let changed = edited(&model(rewrite), gelu, &tanh);
        faults.push((rewrite, changed, "node_gelu_1"));
        let last = "logits = MatMul(layer_norm_4, val_124)";
        let turned = "plus = MatMul(layer_norm_4, val_124)\n  logits = Neg(plus)";
        faults.push((rewrite, edited(&model(rewrite), last, turned), "logits"));
    }
    let outputs = |a: usize, b: usize| {
        let each = ["\"present.1.key\"", "\"present.1.value\""];
        format!(
            "float[batch,3,total_sequence,8] {}, float[batch,3,total_sequence,8] {})\n",
            each[a], each[b]
        )
    };
    let exchanged = edited(&model("cached"), &outputs(0, 1), &outputs(1, 0));
    faults.push(("cached", exchanged, "outputs"));
    for (rewrite, out, place) in faults {
        let report = against(&original(rewrite), &out);
        assert!(!report.ok, "{rewrite}: {place}");
        let differing = differing(&report);
        assert!(
            differing.iter().any(|d| d.contains(place)),
            "{rewrite}: {place} is not among {differing:?}"
        );
    }
}

#[test]
fn a_few_bytes_of_a_large_weight_are_noticed() {
    let rows = 16384;
    let mut large = original("alibi");
    let graph = large.graph();
    let table = graph.find(graph.main(), "embed.weight").unwrap();
    let values: Vec<f32> = (0..rows * 24).map(|i| (i as f32).sin()).collect();
    let mut out = graph.emitter(graph.main(), "posenc_test");
    let tensor = Tensor::from_f32(&[rows, 24], &values);
    out.replace_constant(table, graph.uses(table), tensor)
        .unwrap();
    let patch = out.finish();
    large.commit(patch).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["large.onnx", "out.onnx"].map(|name| folder.path().join(name));
    std::fs::write(&from, large.to_bytes().unwrap()).unwrap();
    let arguments = [
        "rewrite",
        from.to_str().unwrap(),
        "-o",
        to.to_str().unwrap(),
        "--to",
        "alibi",
    ];
    let ran = binary::run(arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let honest = std::fs::read(&to).unwrap();
    let of = |bytes: Vec<u8>| {
        let (from, out) = (
            Model::open(&from).unwrap(),
            Model::from_bytes(bytes).unwrap(),
        );
        against(&from, &out)
    };
    assert!(of(honest.clone()).ok);
    let at = 300_000 * 4;
    let old = values[300_000].to_le_bytes();
    let start = (0..honest.len() - at)
        .find(|i| {
            honest[*i..].starts_with(&values[0].to_le_bytes()) && honest[i + at..].starts_with(&old)
        })
        .unwrap();
    let mut changed = honest;
    changed[start + at] ^= 1;
    changed[start + at + 1] ^= 0x20;
    let report = of(changed);
    assert_eq!(differing(&report), ["embed.weight"]);
    assert!(!report.ok);
}
