//! Other image sizes: the grid of patches, and `verify` on what was resized; and images of any size.

use super::*;

/// The arguments of an extension without its size, and with `--dynamic`.
fn dynamic(extension: &Extension) -> Vec<&str> {
    let args = extension.args.iter().map(String::as_str);
    let kept = args.filter(|arg| *arg != "--image-size" && !arg.contains('x'));
    kept.chain(["--dynamic"]).collect()
}

#[test]
fn images_of_any_size_give_what_pytorch_computes() {
    let backend = onnxruntime();
    let fixture = Fixture::named("vit/dynamo");
    let all = fixture.extensions();
    assert!(all.iter().any(|e| e.name.ends_with("antialias")));
    for extension in &all {
        let (folder, ran) = rewritten(&fixture, &dynamic(extension));
        assert_eq!(ran.code, 0, "{}: {}", extension.name, ran.stderr);
        let off = far(&backend, &model(&folder), extension);
        assert!(off <= TOLERANCE, "{}: {off}", extension.name);
        let others = all
            .iter()
            .filter(|other| dynamic(other) != dynamic(extension));
        for other in others {
            let off = far(&backend, &model(&folder), other);
            let name = &extension.name;
            assert!(
                off > 100.0 * TOLERANCE,
                "{name} passes as {}: {off}",
                other.name
            );
        }
    }
}

#[test]
fn tract_resizes_a_table_for_images_of_any_size() {
    let fixture = Fixture::named("vit/dynamo");
    let all = fixture.extensions();
    let plain = all.iter().find(|e| e.name == "image_24x16").expect("one");
    let (folder, ran) = rewritten(&fixture, &["--dynamic"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let off = far(&TractBackend::default(), &model(&folder), plain);
    assert!(off <= TOLERANCE, "{off}");
}

/// The first output for images of this size, so many at once.
fn of_images(model: &Path, [batch, height, width]: [usize; 3]) -> Tensor {
    let dims = [batch, 3, height, width];
    let pixels = (0..dims.iter().product::<usize>()).map(|i| (0.37 * i as f64).sin());
    let pixels: Vec<f64> = pixels.collect();
    let pixels = Tensor::from_f64(DType::F32, &dims, &pixels);
    let mut session = load(&onnxruntime(), model);
    logits(&mut *session, &[("pixel_values".to_owned(), pixels)].into()).unwrap()
}

#[test]
fn one_model_for_images_of_any_size_is_that_of_each() {
    let fixture = Fixture::named("vit/dynamo");
    for more in [
        &["--antialias"][..],
        &["--scale", "linear"],
        &["--align-corners"],
    ] {
        let (any, ran) = rewritten(&fixture, &[&["--dynamic"], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let sizes = [
            [1, 32, 32],
            [3, 32, 32],
            [2, 16, 40],
            [1, 64, 24],
            [1, 8, 8],
        ];
        for size @ [_, height, width] in sizes {
            let image = format!("{height}x{width}");
            let (own, ran) = rewritten(&fixture, &[&["--image-size", &image], more].concat());
            if (height, width) == (8, 8) {
                assert_eq!(ran.code, 2, "one patch");
                assert_eq!(of_images(&model(&any), size).dims()[0], 1);
                continue;
            }
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let [got, want] = [&any, &own].map(|folder| of_images(&model(folder), size));
            let off = distance(&got, &want).unwrap();
            assert!(off <= TOLERANCE, "{more:?} {size:?}: {off}");
        }
    }
}

#[test]
fn a_model_for_images_of_any_size_is_verified_and_not_made_twice() {
    let fixture = Fixture::named("vit/dynamo");
    let (folder, ran) = rewritten(&fixture, &["--dynamic", "--image-size", "16x40"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = ran.json();
    assert_eq!(report["inferred"][0]["value"], "multiples of 8x8");
    let [new, old] = [model(&folder), fixture.model()].map(|p| p.display().to_string());
    for args in [vec!["verify", &new], vec!["verify", &new, &old]] {
        let ran = binary::run(args.iter());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stdout);
    }
    let out = folder.path().join("again.onnx").display().to_string();
    let again = binary::run(["rewrite", &new, "--dynamic", "--json", "-o", &out]);
    assert_eq!((again.code, &again.json()["edits"]), (0, &json!([])));
    for (args, code, says) in [
        (&["--image-size", "48x48"][..], 2, "are open"),
        (
            &["--dynamic", "--max-length", "9"],
            2,
            "--max-length has no effect",
        ),
    ] {
        let ran = binary::run(["rewrite", &new].iter().chain(args).chain(&["-o", &out]));
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
    let gpt2 = Fixture::named("gpt2/dynamo");
    let (_, ran) = rewritten(&gpt2, &["--dynamic"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("--dynamic has no effect"),
        "{}",
        ran.stderr
    );
}

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

#[test]
fn a_model_without_positions_gets_another_image_size() {
    let fixture = Fixture::named("vit/dynamo");
    let (none, size) = (["--to", "none"], ["--image-size", "48x24"]);
    let outputs = [[&none, &size], [&size, &none]].map(|[first, second]| {
        let (folder, ran) = rewritten(&fixture, first);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let ran = again::again(&folder, second);
        let edits = ran.json()["edits"].as_array().unwrap().len();
        assert!(edits > 0, "{second:?}");
        of_images(&folder.path().join("again.onnx"), [2, 48, 24])
    });
    let [got, want] = &outputs;
    let off = distance(got, want).unwrap();
    assert!(off <= TOLERANCE, "{off}");
    // With positions, it is another output.
    let (folder, _) = rewritten(&fixture, &size);
    let other = of_images(&model(&folder), [2, 48, 24]);
    assert!(distance(got, &other).unwrap() > 100.0 * TOLERANCE);
}
