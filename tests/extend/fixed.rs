//! A graph of one length, opened for others: compared with the export of the same model for any length,
//! rewritten in the same way.

use posenc_runtime::TractBackend;

use super::*;

/// Lengths below, at and beyond the 12 tokens of the export.
const LENGTHS: [usize; 6] = [1, 2, 11, 12, 13, 40];

/// The logits of two sequences of so many tokens, of which the second ends with padding.
fn of(backend: &dyn Backend, model: &Path, length: usize) -> Tensor {
    let ids: Vec<i64> = (0..2 * length).map(|i| 3 + (7 * i as i64) % 90).collect();
    let dims = [2, length];
    let is_token = |i: usize| i64::from(i < 2 * length - length / 4);
    let mask: Vec<i64> = (0..2 * length).map(is_token).collect();
    let inputs = [
        ("input_ids".to_owned(), Tensor::from_i64(&dims, &ids)),
        ("attention_mask".to_owned(), Tensor::from_i64(&dims, &mask)),
    ];
    let mut session = load(backend, model);
    logits(&mut *session, &inputs.into()).unwrap()
}

/// The largest distance of two models at these lengths.
fn apart(backend: &dyn Backend, [a, b]: [&Path; 2]) -> f64 {
    let apart = LENGTHS.map(|length| {
        let [a, b] = [a, b].map(|model| of(backend, model, length));
        distance(&a, &b).unwrap()
    });
    apart.into_iter().fold(0.0, f64::max)
}

#[test]
fn an_opened_graph_computes_what_an_open_one_does() {
    let backend = onnxruntime();
    let [fixed, open] = ["llama/dynamo-static", "llama/dynamo"].map(Fixture::named);
    let longer: &[&str] = &["--max-length", "40"];
    let yarn = [
        "--scale",
        "yarn",
        "--factor",
        "4",
        "--original-length",
        "64",
    ];
    let all: [&[&str]; 3] = [&[], &["--scale", "linear", "--factor", "2"], &yarn];
    let made = all.map(|flags| {
        let flags = [flags, longer].concat();
        let (folder, ran) = rewritten(&fixed, &flags);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        folder
    });
    for (flags, folder) in all.iter().zip(&made) {
        let model = model(folder);
        let twin = match flags {
            [] => open.model(),
            flags => {
                let (twin, ran) = rewritten(&open, flags);
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                let path = twin.path().join("twin.onnx");
                fs::copy(twin.path().join("out.onnx"), &path).unwrap();
                let kept = folder.path().join("twin.onnx");
                fs::rename(path, &kept).unwrap();
                kept
            }
        };
        let off = apart(&backend, [&model, &twin]);
        assert!(off <= TOLERANCE, "{flags:?}: {off}");
    }
    let [plain, linear, _] = made.each_ref().map(model);
    let off = apart(&backend, [&linear, &plain]);
    assert!(off > 100.0 * TOLERANCE, "control: {off}");
    let off = apart(&TractBackend::default(), [&plain, &open.model()]);
    assert!(off <= TOLERANCE, "in tract: {off}");
}

#[test]
fn an_opened_graph_is_proven_against_the_original() {
    let fixed = Fixture::named("llama/dynamo-static");
    let (folder, ran) = rewritten(&fixed, &["--max-length", "40"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = ran.json();
    let lengths = |side: &str| -> Vec<u64> {
        let all = report["limits"][side].as_array().unwrap().iter();
        all.map(|limit| limit["length"].as_u64().unwrap()).collect()
    };
    assert_eq!((lengths("before")[0], lengths("after")[0]), (12, 40));
    let [out, original] = [model(&folder), fixed.model()].map(|path| path.display().to_string());
    let ran = binary::run(["verify", &out, &original, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
