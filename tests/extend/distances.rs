//! Tables by distance with other rows, compared with PyTorch: the model that `fixtures/relative_key.py` makes.

use super::*;

/// The model, and PyTorch's runs with tables of 150 tokens.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/extend/relative-key");

fn widened(args: &[&str]) -> (TempDir, Ran) {
    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (format!("{FOLDER}/model.onnx"), model(&folder));
    let out = out.display().to_string();
    let all = [
        "rewrite",
        &from,
        "--max-length",
        "150",
        "-o",
        &out,
        "--json",
    ];
    let ran = binary::run(all.iter().chain(args));
    (folder, ran)
}

/// The largest relative distance from PyTorch's runs of a name.
fn apart(folder: &TempDir, name: &str) -> f64 {
    let extension = Extension {
        name: name.to_owned(),
        args: vec![],
        config: json!({}),
        runs: fixture::runs(&Path::new(FOLDER).join(format!("{name}.safetensors"))),
    };
    far(&onnxruntime(), &model(folder), &extension)
}

#[test]
fn tables_by_distance_are_those_of_pytorch() {
    for (args, name, other) in [
        (&[][..], "clamped", "linear"),
        (&["--scale", "linear"], "linear", "clamped"),
    ] {
        let (folder, ran) = widened(args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let limits = ran.json()["limits"]["after"].clone();
        let lengths = limits.as_array().into_iter().flatten();
        let least = lengths.filter_map(|l| l["length"].as_u64()).min();
        assert_eq!(least, Some(150), "{name}");
        let off = apart(&folder, name);
        assert!(off <= TOLERANCE, "{name}: {off}");
        let off = apart(&folder, other);
        assert!(off > 100.0 * TOLERANCE, "{name} passes as {other}: {off}");
    }
    let (_, ran) = widened(&["--scale", "cubic"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
}
