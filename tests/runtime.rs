//! One suite for every runtime: the same cases, each compared with results calculated by hand.

mod cases;
mod fused;
mod models;
mod refused;

use std::path::{Path, PathBuf};

use posenc_ir::{DType, Tensor};
use posenc_runtime::{
    Backend, Dim, ExecutionProvider, Fallback, ModelSource, NOT_BUILT, Optimization, Options,
    OrtBackend, Placement, Places, Provider, RuntimeError, TractBackend, runtimes,
};
use posenc_tests::shared::root;

use cases::{Case, Want, cases, transposed};
use models::Graph;
use refused::KNOWN;

fn places() -> Places {
    Places {
        project: vec![root().to_path_buf()],
        ..Places::default()
    }
}

/// ONNX Runtime. Without it the tests fail: a skipped test must not look like a passed one.
pub(crate) fn onnxruntime() -> OrtBackend {
    OrtBackend::open(&places()).unwrap_or_else(|error| {
        panic!("{error}; for the tests, run `cargo xtask test` once, which installs it")
    })
}

fn bytes(model: &[u8]) -> ModelSource<'_> {
    ModelSource::Bytes {
        model,
        folder: None,
    }
}

/// How a tensor differs from the wanted one.
#[derive(Clone, Debug, PartialEq)]
enum Mismatch {
    /// It has another type or shape, or no numbers.
    Form(String),
    /// Its elements are these.
    Values(Vec<f64>),
}

/// Compares a tensor with the wanted one; NaN equals nothing.
fn compare(got: &Tensor, want: &Want, bound: f64) -> Result<(), Mismatch> {
    let form = || Mismatch::Form(format!("{} {:?}", got.dtype(), got.dims()));
    if (got.dtype(), got.dims()) != (want.dtype, &want.dims[..]) {
        return Err(form());
    }
    let values = got.to_f64s().ok_or_else(form)?;
    let fits = |(g, w): (&f64, &f64)| g == w || (g - w).abs() <= bound;
    let same = values.len() == want.values.len() && values.iter().zip(&want.values).all(fits);
    if same {
        Ok(())
    } else {
        Err(Mismatch::Values(values))
    }
}

/// The result of a case.
enum Outcome {
    Right,
    Wrong(String),
    Refused(RuntimeError),
}

fn outcome(backend: &dyn Backend, options: &Options, case: &Case) -> Outcome {
    let mut session = match backend.load(bytes(&case.model), options) {
        Ok(session) => session,
        Err(error) => return Outcome::Refused(error),
    };
    for (i, run) in case.runs.iter().enumerate() {
        let got = match session.run(&run.feeds, &[]) {
            Ok(got) => got,
            Err(error) => return Outcome::Refused(error),
        };
        assert_eq!(got.len(), run.want.len(), "{}: outputs", case.name);
        for ((name, tensor), want) in got.iter().zip(&run.want) {
            assert_eq!(name, want.name, "{}", case.name);
            if let Err(found) = compare(tensor, want, case.bound) {
                return Outcome::Wrong(format!(
                    "run {i}, {name}: {found:?}, not {:?}",
                    want.values
                ));
            }
            controls(case, tensor, want);
        }
    }
    Outcome::Right
}

/// Requires that a wanted tensor with one wrong element, or another shape, does not match.
fn controls(case: &Case, got: &Tensor, want: &Want) {
    for i in 0..want.values.len() {
        for change in [1e-3, -1e-3, f64::NAN] {
            let mut values = want.values.clone();
            values[i] += change;
            let wrong = Want {
                dims: want.dims.clone(),
                values,
                ..*want
            };
            let found = compare(got, &wrong, case.bound);
            let noticed = matches!(found, Err(Mismatch::Values(_)));
            assert!(noticed, "{}: {change} at {i}: {found:?}", case.name);
        }
    }
    let mut dims = want.dims.clone();
    dims.insert(0, 1);
    let wrong = Want {
        dims,
        values: want.values.clone(),
        ..*want
    };
    let found = compare(got, &wrong, case.bound);
    let noticed = matches!(found, Err(Mismatch::Form(_)));
    assert!(noticed, "{}: shape: {found:?}", case.name);
}

fn suite(backend: &dyn Backend, options: &Options) {
    let mut surprises = Vec::new();
    for case in cases() {
        let known = KNOWN
            .iter()
            .find(|row| (row.0, row.1) == (backend.name(), case.name));
        match (outcome(backend, options, &case), known) {
            (Outcome::Right, None) => {}
            (Outcome::Right, Some(_)) => {
                surprises.push(format!("{}: passes; remove it from KNOWN", case.name));
            }
            (Outcome::Refused(error), Some(row)) if error.to_string().contains(row.2) => {}
            (Outcome::Refused(error), _) => surprises.push(format!("{}: {error}", case.name)),
            (Outcome::Wrong(found), _) => surprises.push(format!("{}: {found}", case.name)),
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn tract_passes_the_suite() {
    suite(&TractBackend::new(), &Options::default());
}

#[test]
fn onnxruntime_passes_the_suite_optimized() {
    suite(&onnxruntime(), &Options::default());
}

#[test]
fn onnxruntime_passes_the_suite_without_optimization() {
    let options = Options {
        optimization: Optimization::Off,
        ..Options::default()
    };
    suite(&onnxruntime(), &options);
}

#[test]
fn known_failures_name_runtimes_and_cases_that_exist() {
    let names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    for (runtime, case, _) in KNOWN {
        assert!(["tract", "onnxruntime"].contains(runtime), "{runtime}");
        assert!(names.contains(case), "{case}");
    }
}

/// Both runtimes.
fn both() -> [Box<dyn Backend>; 2] {
    [Box::new(TractBackend::new()), Box::new(onnxruntime())]
}

#[test]
fn outputs_are_in_the_requested_order() {
    let model = transposed();
    let x = Tensor::from_f32(&[1, 2], &[1.0, 2.0]);
    let transposed = Tensor::from_f32(&[2, 1], &[1.0, 2.0]);
    let negated = Tensor::from_f32(&[1, 2], &[-1.0, -2.0]);
    for backend in both() {
        let mut session = backend.load(bytes(&model), &Options::default()).unwrap();
        assert_eq!(session.outputs(), ["t", "n"]);
        let feeds = [("x", x.clone())];
        let t = ("t".to_owned(), transposed.clone());
        let n = ("n".to_owned(), negated.clone());
        for (names, want) in [
            (vec![], vec![t.clone(), n.clone()]),
            (vec!["n"], vec![n.clone()]),
            (vec!["n", "t"], vec![n, t]),
        ] {
            let got = session.run(&feeds, &names).unwrap();
            assert_eq!(got, want, "{} {names:?}", backend.name());
        }
        match session.run(&feeds, &["t", "x"]) {
            Err(RuntimeError::Output { name, known }) => {
                assert_eq!((name.as_str(), known.as_str()), ("x", "t, n"));
            }
            other => panic!("{}: {other:?}", backend.name()),
        }
    }
}

#[test]
fn initializers_are_not_among_the_inputs() {
    let model = Graph::new()
        .input("x", DType::F16, &["batch", "", "3"])
        .input("w", DType::F16, &["3"])
        .init("w", &Tensor::from_f64(DType::F16, &[3], &[1.0, 2.0, 3.0]))
        .node("Mul", &["x", "w"], &["y"], vec![])
        .output("y", DType::F16, &["batch", "", "3"])
        .model(17);
    for backend in both() {
        let session = backend.load(bytes(&model), &Options::default()).unwrap();
        let [x] = session.inputs() else {
            panic!("{}: {:?}", backend.name(), session.inputs());
        };
        let dims = [Dim::Symbol("batch".into()), Dim::Unknown, Dim::Fixed(3)];
        assert_eq!((x.name.as_str(), x.dtype), ("x", Some(DType::F16)));
        assert_eq!(x.dims.as_deref(), Some(&dims[..]), "{}", backend.name());
    }
}

#[test]
fn a_wrong_feed_is_named() {
    let model = transposed();
    let x = Tensor::from_f32(&[1, 2], &[1.0, 2.0]);
    let cases = [
        ("missing", vec![], "x"),
        ("unknown", vec![("x", x.clone()), ("z", x.clone())], "z"),
        ("type", vec![("x", Tensor::from_i64(&[1, 2], &[1, 2]))], "x"),
        (
            "rank",
            vec![("x", Tensor::from_f32(&[2], &[1.0, 2.0]))],
            "x",
        ),
    ];
    for backend in both() {
        let mut session = backend.load(bytes(&model), &Options::default()).unwrap();
        for (case, feeds, want) in &cases {
            match session.run(feeds, &[]) {
                Err(RuntimeError::Feed { name, .. }) => assert_eq!(name, *want, "{case}"),
                other => panic!("{}: {case}: {other:?}", backend.name()),
            }
        }
        // The session is still usable.
        let got = session.run(&[("x", x.clone())], &[]).unwrap();
        assert_eq!(got.len(), 2, "{}", backend.name());
    }
}

#[test]
fn external_data_is_read_from_a_file_and_from_memory() {
    let model = Graph::new()
        .input("x", DType::F32, &["n"])
        .external("w", DType::F32, &[2], "weights.bin")
        .node("Mul", &["x", "w"], &["y"], vec![])
        .output("y", DType::F32, &["n"])
        .model(17);
    let folder = tempfile::tempdir().unwrap();
    let weights = Tensor::from_f32(&[2], &[10.0, 100.0]);
    std::fs::write(folder.path().join("weights.bin"), weights.bytes()).unwrap();
    let file = folder.path().join("model.onnx");
    std::fs::write(&file, &model).unwrap();
    let feeds = [("x", Tensor::from_f32(&[2], &[1.5, 2.5]))];
    let want = [("y".to_owned(), Tensor::from_f32(&[2], &[15.0, 250.0]))];
    let in_memory = ModelSource::Bytes {
        model: &model,
        folder: Some(folder.path()),
    };
    let options = Options::default();
    for backend in both() {
        for source in [ModelSource::File(&file), in_memory] {
            let mut session = backend.load(source, &options).unwrap();
            let got = session.run(&feeds, &[]).unwrap();
            assert_eq!(got, want, "{} {source:?}", backend.name());
        }
        let nowhere = ModelSource::Bytes {
            model: &model,
            folder: Some(Path::new("/nonexistent")),
        };
        let error = backend.load(nowhere, &options).unwrap_err();
        let refused = matches!(error, RuntimeError::Unsupported { .. });
        assert!(refused, "{}: {error}", backend.name());
    }
}

#[test]
fn an_invalid_model_is_refused_in_one_line() {
    let unknown = Graph::new()
        .input("x", DType::F32, &["n"])
        .node("NoSuchOperator", &["x"], &["y"], vec![])
        .output("y", DType::F32, &["n"])
        .model(17);
    let dangling = Graph::new()
        .input("x", DType::F32, &["n"])
        .node("Add", &["x", "nothing"], &["y"], vec![])
        .output("y", DType::F32, &["n"])
        .model(17);
    let mut cut = transposed();
    cut.truncate(cut.len() / 2);
    let cases: [(&str, &[u8]); 5] = [
        ("nothing", b""),
        ("noise", b"\xff\xff\xff\xff\xff this is no model"),
        ("cut off", &cut),
        ("unknown operator", &unknown),
        ("dangling input", &dangling),
    ];
    for backend in both() {
        for (case, model) in cases {
            let error = backend.load(bytes(model), &Options::default()).unwrap_err();
            let text = error.to_string();
            let refused = matches!(error, RuntimeError::Unsupported { .. });
            assert!(
                refused && !text.contains('\n'),
                "{}: {case}: {text}",
                backend.name()
            );
        }
        let missing = ModelSource::File(Path::new("/nonexistent/model.onnx"));
        let error = backend.load(missing, &Options::default()).unwrap_err();
        let refused = matches!(error, RuntimeError::Unsupported { .. });
        let named = error.to_string().contains("/nonexistent/model.onnx");
        assert!(refused && named, "{}: {error}", backend.name());
    }
}

#[test]
fn shapes_that_do_not_fit_are_an_error_and_leave_the_session_usable() {
    let model = Graph::new()
        .input("a", DType::F32, &["n"])
        .input("b", DType::F32, &["m"])
        .node("Add", &["a", "b"], &["y"], vec![])
        .output("y", DType::F32, &[""])
        .model(17);
    let ones = |n: usize| Tensor::from_f32(&[n], &vec![1.0; n]);
    for backend in both() {
        let mut session = backend.load(bytes(&model), &Options::default()).unwrap();
        let error = session.run(&[("a", ones(2)), ("b", ones(3))], &[]);
        let error = error.unwrap_err();
        let right = matches!(
            error,
            RuntimeError::Unsupported { .. } | RuntimeError::Failed { .. }
        );
        assert!(right, "{}: {error}", backend.name());
        let good = session.run(&[("a", ones(2)), ("b", ones(2))], &[]).unwrap();
        assert_eq!(good[0].1, Tensor::from_f32(&[2], &[2.0, 2.0]));
    }
}

#[test]
fn absent_providers_are_unavailable() {
    let model = transposed();
    let other = |name: &str| Provider::Other(ExecutionProvider::named(name));
    let load = |backend: &dyn Backend, provider: Provider| {
        let options = Options {
            provider,
            ..Options::default()
        };
        backend.load(bytes(&model), &options)
    };
    for backend in both() {
        // The tests' library is the one without CUDA.
        for provider in [
            Provider::cuda(0),
            Provider::cuda(3),
            other("DmlExecutionProvider"),
            other("MIGraphXExecutionProvider"),
            other("AbacusExecutionProvider"),
        ] {
            let error = load(&*backend, provider.clone()).unwrap_err();
            let right = matches!(error, RuntimeError::Unavailable { .. });
            assert!(right, "{} {provider}: {error}", backend.name());
        }
        load(&*backend, Provider::Cpu).unwrap();
    }
    // As a device, with an option.
    let mut by_name = ExecutionProvider::named("CPUExecutionProvider");
    let arena = ("use_arena".to_owned(), "0".to_owned());
    by_name.options.extend([arena]);
    load(&onnxruntime(), Provider::Other(by_name.clone())).unwrap();
    by_name.device = Some(100);
    let error = load(&onnxruntime(), Provider::Other(by_name)).unwrap_err();
    assert!(
        error.to_string().contains("there is no such device"),
        "{error}"
    );
    // A plugin that is no library.
    let mut plugin = ExecutionProvider::named("AbacusExecutionProvider");
    let file = root().join("Cargo.toml").to_str().unwrap().to_owned();
    plugin.options.extend([("library".to_owned(), file)]);
    let error = load(&onnxruntime(), Provider::Other(plugin)).unwrap_err();
    assert!(error.to_string().contains("Cargo.toml"), "{error}");
    assert!(matches!(error, RuntimeError::Unavailable { .. }), "{error}");
}

#[test]
fn tract_refuses_to_run_without_optimization() {
    let options = Options {
        optimization: Optimization::Off,
        ..Options::default()
    };
    let error = TractBackend::new().load(bytes(&transposed()), &options);
    let error = error.unwrap_err();
    assert!(matches!(error, RuntimeError::Unsupported { .. }), "{error}");
}

#[test]
fn placement_counts_nodes_where_it_is_recorded() {
    let model = transposed();
    let backend = onnxruntime();
    let feeds = [("x", Tensor::from_f32(&[1, 2], &[1.0, 2.0]))];
    for (placement, want) in [(Placement::Recorded, 2), (Placement::Ignored, 0)] {
        let options = Options {
            placement,
            optimization: Optimization::Off,
            fallback: Fallback::Refused,
            ..Options::default()
        };
        let mut session = backend.load(bytes(&model), &options).unwrap();
        for _ in 0..2 {
            session.run(&feeds, &[]).unwrap();
        }
        let counts = session.placement();
        assert_eq!(counts.values().sum::<usize>(), want, "{counts:?}");
        assert_eq!(counts.contains_key("CPUExecutionProvider"), want > 0);
        assert_eq!(session.placement(), counts);
    }
}

#[test]
fn a_broken_library_that_was_named_is_not_replaced_by_another() {
    let used = onnxruntime();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("libonnxruntime.so");
    std::fs::write(&text, "not a library").unwrap();
    let at = |path: PathBuf| Places {
        explicit: Some(path),
        ..places()
    };
    for (path, reason) in [
        (text, "this process already uses"),
        (folder.path().join("missing.so"), "there is no such file"),
        (folder.path().join("missing"), "there is no such file"),
    ] {
        let error = OrtBackend::open(&at(path.clone())).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), reason, "pip install onnxruntime"] {
            assert!(error.contains(part), "{error}");
        }
    }
    let same = OrtBackend::open(&at(used.path().to_path_buf())).unwrap();
    assert_eq!(same.path(), used.path());
}

#[test]
fn the_listing_says_what_works_and_why_the_rest_does_not() {
    let used = onnxruntime();
    let found = runtimes(&places());
    let names: Vec<&str> = found.iter().map(|r| r.name).collect();
    assert_eq!(names, ["tract", "onnxruntime"]);
    assert_eq!(found[1].path.as_deref(), Some(used.path()));
    assert_eq!(found[1].version.as_deref(), Some("1.31.1"));
    let state = |name: &str| found[1].providers.iter().find(|p| p.name == name).unwrap();
    assert_eq!(state("cpu").missing, None);
    for name in [
        "cuda", "tensorrt", "directml", "coreml", "openvino", "migraphx", "webgpu",
    ] {
        assert_eq!(state(name).missing.as_deref(), Some(NOT_BUILT), "{name}");
    }
}

#[test]
fn the_version_of_tract_is_that_of_the_manifest() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let pinned = format!("tract-onnx = \"={}\"", TractBackend::new().version());
    assert!(manifest.contains(&pinned), "{pinned}");
}
