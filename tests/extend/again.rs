//! Stretching what an earlier rewrite stretched: asked for once more it stays, and another scaling of it is
//! refused unless that is allowed.

use super::*;

/// `rewrite` of what another rewrite wrote.
pub(super) fn again(folder: &TempDir, args: &[&str]) -> Ran {
    let [old, new] = [model(folder), folder.path().join("again.onnx")];
    let [old, new] = [old, new].map(|p| p.display().to_string());
    let flags = ["-o", &new, "--json"];
    binary::run(["rewrite", &old].iter().chain(args).chain(&flags))
}

/// Such a rewrite is refused with exit code 2, and says so.
fn refused(folder: &TempDir, args: &[&str], says: &str) {
    let ran = again(folder, args);
    assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
}

#[test]
fn what_is_scaled_is_not_scaled_twice() {
    for (fixture, factor, other) in [
        ("t5-encoder/dynamo", "3", "2"),
        ("bloom/dynamo", "2", "4"),
        ("mini/sinusoidal", "2", "4"),
    ] {
        let fixture = Fixture::named(fixture);
        let scale = |factor| ["--scale", "linear", "--factor", factor];
        let (folder, ran) = rewritten(&fixture, &scale(factor));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let same = again(&folder, &scale(factor));
        assert_eq!(same.json()["edits"], json!([]), "{}", fixture.name());
        refused(&folder, &scale(other), "is scaled already, by");
        let args: Vec<&str> = [&scale(other)[..], &["--allow-rescale"]].concat();
        let allowed = again(&folder, &args);
        assert_eq!(allowed.code, 0, "{}", allowed.stderr);
        assert_ne!(allowed.json()["edits"], json!([]), "{}", fixture.name());
    }
}

#[test]
fn interpolated_rows_are_not_interpolated_again() {
    let fixture = Fixture::named("gpt2/dynamo");
    let to = |scale, length| ["--scale", scale, "--max-length", length];
    let (folder, ran) = rewritten(&fixture, &to("linear", "128"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let same = again(&folder, &to("linear", "128"));
    assert_eq!(same.json()["edits"], json!([]));
    refused(&folder, &to("cubic", "256"), "scaled already (linear)");
    for args in [
        vec!["--scale", "tile", "--max-length", "256"],
        vec!["--scale", "cubic", "--max-length", "256", "--allow-rescale"],
    ] {
        let ran = again(&folder, &args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }
    refused(&folder, &to("tile", "128"), "scaled already (linear)");
    // What is cut off stays interpolated.
    let cut = again(&folder, &to("truncate", "100"));
    assert_eq!(cut.code, 0, "{}", cut.stderr);
    fs::rename(folder.path().join("again.onnx"), model(&folder)).unwrap();
    refused(&folder, &to("linear", "256"), "scaled already (linear)");
}

#[test]
fn copied_rows_are_not_copied_again() {
    let fixture = Fixture::named("gpt2/dynamo");
    let to = |scale, length| ["--scale", scale, "--max-length", length];
    let (folder, ran) = rewritten(&fixture, &to("tile", "100"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for scale in ["tile", "linear"] {
        refused(&folder, &to(scale, "256"), "scaled already (tile)");
    }
    let shorter = again(&folder, &to("truncate", "64"));
    assert_eq!(shorter.code, 0, "{}", shorter.stderr);
    let same = again(&folder, &["--max-length", "100"]);
    assert_eq!(same.json()["edits"], json!([]), "{}", same.stderr);
}

#[test]
fn patches_are_not_interpolated_again() {
    let fixture = Fixture::named("vit/dynamo");
    let (folder, ran) = rewritten(&fixture, &["--image-size", "48x24"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let same = again(&folder, &["--image-size", "48x24"]);
    assert_eq!(same.json()["edits"], json!([]));
    for other in ["--antialias", "--align-corners", "--scale=linear"] {
        let args = ["--image-size", "48x24", other];
        refused(&folder, &args, "interpolated already (cubic)");
    }
    let other = ["--image-size", "32x32"];
    refused(&folder, &other, "interpolated already (cubic)");
    let allowed = again(&folder, &["--image-size", "32x32", "--allow-rescale"]);
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
}

#[test]
fn a_flag_that_has_no_effect_on_a_bias_is_refused() {
    for (fixture, args, says) in [
        (
            "t5-encoder/dynamo",
            &["--layers", "0"][..],
            "remove --layers",
        ),
        ("bloom/dynamo", &["--layers", "0"], "remove --layers"),
        (
            "bloom/dynamo",
            &["--align-corners"],
            "--align-corners has no effect",
        ),
        ("bloom/dynamo", &["--antialias"], "give --image-size"),
    ] {
        let fixture = Fixture::named(fixture);
        let linear = ["--scale", "linear", "--factor", "2"];
        let (_folder, ran) = rewritten(&fixture, &[&linear[..], args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
}
