//! Other image sizes: the grid of patches, and `verify` on what was resized.

use super::*;

#[test]
fn a_grid_resized_in_one_way_is_not_that_of_another() {
    let backend = onnxruntime();
    let fixture = Fixture::named("vit/dynamo");
    let all = fixture.extensions();
    let named = |name: &str| all.iter().find(|e| e.name == name).expect("an extension");
    let pair = ["image_24x16", "image_24x16_antialias"].map(named);
    for [own, other] in [pair, [pair[1], pair[0]]] {
        let folder = extended(&fixture, own);
        let off = far(&backend, &model(&folder), other);
        assert!(
            off > 100.0 * TOLERANCE,
            "{} passes as {}: {off}",
            own.name,
            other.name
        );
    }
    let (_, ran) = rewritten(&fixture, &["--image-size", "24x20"]);
    assert_eq!(ran.code, 2);
    let says = "20 pixels or patches is no whole number of steps of 8; 16 or 24 would be";
    assert!(ran.stderr.contains(says), "{}", ran.stderr);
    let (_, ran) = rewritten(&fixture, &["--image-size", "4294967296x8"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let (_, ran) = rewritten(&fixture, &["--image-size", "32x32"]);
    assert_eq!(
        (ran.code, &ran.json()["edits"]),
        (0, &json!([])),
        "the size that it has"
    );
}

#[test]
fn a_model_for_another_image_size_is_verified_alone_and_beside_the_original() {
    let fixture = Fixture::named("vit/dynamo");
    let (folder, ran) = rewritten(&fixture, &["--image-size", "48x24"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let [new, old] = [model(&folder), fixture.model()].map(|p| p.display().to_string());
    for args in [vec!["verify", &new], vec!["verify", &new, &old]] {
        let ran = binary::run(args.iter());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stdout);
    }
}
