//! Tables with other rows, compared with PyTorch: the outputs of Hugging Face's eager models with the
//! same weights and the table resized by PyTorch, in both runtimes.

mod again;
mod distances;
mod fixed;
mod image;
mod readers;

use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::{DType, Emitter, Model, Tensor, ValueId};
use posenc_runtime::{Backend, TractBackend};
use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::{self, Extension, Fixture};
use serde_json::json;
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, load, logits};
use crate::runtime::onnxruntime;

/// `rewrite` with these arguments, and the file that it writes.
fn rewritten(fixture: &Fixture, args: &[&str]) -> (TempDir, Ran) {
    let folder = tempfile::tempdir().unwrap();
    let [model, out] =
        [&fixture.model(), &folder.path().join("out.onnx")].map(|p| p.display().to_string());
    let flags = ["-o", &out, "--json"];
    let ran = binary::run(["rewrite", &model].iter().chain(args).chain(&flags));
    (folder, ran)
}

fn extended(fixture: &Fixture, extension: &Extension) -> TempDir {
    let args: Vec<&str> = extension.args.iter().map(String::as_str).collect();
    let (folder, ran) = rewritten(fixture, &args);
    let report = ran.json();
    assert_eq!(report["guarantee"], "new-function", "{}", fixture.name());
    let after = report["limits"]["after"].as_array().unwrap();
    let ends = after.iter().map(|l| l["length"].as_u64().unwrap());
    assert_eq!(ends.min(), extension.max_length(), "{report}");
    folder
}

fn model(folder: &TempDir) -> PathBuf {
    folder.path().join("out.onnx")
}

/// The fixtures of families with longer tables, with each of them.
fn extensions() -> Vec<(Fixture, Extension)> {
    let mut found = vec![];
    for fixture in fixture::all() {
        let own = fixture.extensions().into_iter();
        found.extend(own.map(|extension| (fixture.clone(), extension)));
    }
    assert!(found.len() >= 22, "{} extensions", found.len());
    found
}

/// The largest relative distance from PyTorch.
fn far(backend: &dyn Backend, model: &Path, extension: &Extension) -> f64 {
    let mut session = load(backend, model);
    let runs = extension.runs.values();
    let off = runs.map(|run| {
        let want = run.outputs.values().next().unwrap();
        let got = logits(&mut *session, &run.inputs).unwrap();
        distance(&got, want).unwrap()
    });
    off.fold(0.0, f64::max)
}

#[test]
fn every_way_to_resize_a_table_is_what_pytorch_computes() {
    let backend = onnxruntime();
    for (fixture, extension) in extensions() {
        let folder = extended(&fixture, &extension);
        let off = far(&backend, &model(&folder), &extension);
        assert!(
            off <= TOLERANCE,
            "{} {}: {off}",
            fixture.name(),
            extension.name
        );
    }
}

#[test]
fn tract_computes_the_same_tables() {
    let backend = TractBackend::default();
    let fixture = Fixture::named("bert/dynamo");
    for extension in fixture.extensions() {
        let folder = extended(&fixture, &extension);
        let off = far(&backend, &model(&folder), &extension);
        assert!(off <= TOLERANCE, "{}: {off}", extension.name);
    }
}

#[test]
fn a_table_resized_in_one_way_is_not_that_of_another() {
    let backend = onnxruntime();
    let fixture = Fixture::named("bert/dynamo");
    let all = fixture.extensions();
    let longer: Vec<&Extension> = all.iter().filter(|e| e.name != "truncate").collect();
    assert_eq!(longer.len(), 5);
    for extension in &longer {
        let folder = extended(&fixture, extension);
        for other in longer.iter().filter(|other| other.name != extension.name) {
            let off = far(&backend, &model(&folder), other);
            assert!(
                off > 100.0 * TOLERANCE,
                "{} passes as {}: {off}",
                extension.name,
                other.name
            );
        }
    }
}

/// The first output for tokens of this length.
fn output(model: &Path, length: usize) -> Tensor {
    let ids: Vec<i64> = (0..length).map(|i| 3 + (7 * i as i64) % 90).collect();
    let inputs = [
        ("input_ids".to_owned(), Tensor::from_i64(&[1, length], &ids)),
        (
            "attention_mask".to_owned(),
            Tensor::from_i64(&[1, length], &vec![1; length]),
        ),
    ];
    let mut session = load(&onnxruntime(), model);
    logits(&mut *session, &inputs.into()).unwrap()
}

#[test]
fn what_is_kept_is_the_same_to_the_bit_inside_the_old_length() {
    for fixture in ["bert/dynamo", "gpt2/dynamo", "gpt2/optimum"].map(Fixture::named) {
        for scale in ["tile", "hierarchical"] {
            let (folder, ran) = rewritten(&fixture, &["--scale", scale, "--max-length", "96"]);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            for length in [1, 63, 64] {
                let (old, new) = (
                    output(&fixture.model(), length),
                    output(&model(&folder), length),
                );
                assert_eq!(old.bytes(), new.bytes(), "{} {scale}", fixture.name());
            }
            assert_eq!(output(&model(&folder), 96).dims()[1], 96);
        }
        let (folder, ran) = rewritten(&fixture, &["--scale", "linear", "--max-length", "96"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let (old, new) = (output(&fixture.model(), 64), output(&model(&folder), 64));
        assert_ne!(
            old.bytes(),
            new.bytes(),
            "control: interpolation changes rows"
        );
    }
}

#[test]
fn a_factor_of_one_changes_nothing() {
    let fixture = Fixture::named("gpt2/dynamo");
    for scale in ["linear", "cubic", "tile", "hierarchical"] {
        let (_folder, ran) = rewritten(&fixture, &["--scale", scale, "--factor", "1"]);
        let report = ran.json();
        assert_eq!(report["edits"], json!([]), "{scale}");
    }
}

#[test]
fn an_extended_model_verifies_and_another_table_does_not() {
    let fixture = Fixture::named("bert/dynamo");
    let (folder, ran) = rewritten(&fixture, &["--scale", "tile", "--max-length", "128"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let [old, new] = [&fixture.model(), &model(&folder)].map(|p| p.display().to_string());
    let verify = |new: &str| binary::run(["verify", &old, new, "-q"]);
    assert_eq!(verify(&new).code, 0, "{}", verify(&new).stderr);
    // The record says tile, the table is that of linear.
    let (other, ran) = rewritten(&fixture, &["--scale", "linear", "--max-length", "128"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let record = Model::open(&new).unwrap();
    let mut planted = Model::open(model(&other)).unwrap();
    for key in ["posenc.request", "posenc.written"] {
        let entry = record.metadata(key).unwrap_or_else(|| panic!("no {key}"));
        planted.set_metadata(key, entry.to_owned());
    }
    let path = folder.path().join("planted.onnx");
    fs::write(&path, planted.to_bytes().unwrap()).unwrap();
    assert_eq!(verify(&path.display().to_string()).code, 1, "control");
}

#[test]
fn what_cannot_be_resized_is_refused_by_name() {
    let gpt2 = Fixture::named("gpt2/dynamo");
    for (fixture, args, code, says) in [
        (&gpt2, &["--max-length", "128"][..], 2, "give --scale"),
        (&gpt2, &["--scale", "truncate"], 2, "give --max-length"),
        (
            &gpt2,
            &["--scale", "yarn"],
            4,
            "--scale yarn applies to RoPE only",
        ),
        (
            &gpt2,
            &["--scale", "truncate", "--max-length", "65"],
            2,
            "truncate cannot extend 64 rows to 65",
        ),
        (
            &gpt2,
            &["--scale", "hierarchical", "--max-length", "5000"],
            4,
            "64 rows have 4096 pairs",
        ),
        (
            &gpt2,
            &["--scale", "tile", "--align-corners"],
            2,
            "--align-corners has no effect",
        ),
        (
            &gpt2,
            &["--scale", "linear", "--factor", "1e300"],
            2,
            "--factor 1",
        ),
        (
            &gpt2,
            &["--scale", "linear", "--max-length", "99999999999"],
            2,
            "--max-length is 99999999999",
        ),
        (
            &gpt2,
            &["--scale", "linear", "--factor", "2", "--max-length", "96"],
            2,
            "remove one of them",
        ),
        (
            &Fixture::named("vit/dynamo"),
            &["--scale", "linear"],
            4,
            "positions of a grid",
        ),
    ] {
        let (folder, ran) = rewritten(fixture, args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
        assert!(!model(&folder).exists(), "{args:?}");
    }
}

/// A model with something added, as a file.
fn altered(folder: &Path, fixture: &str, change: impl Fn(&Model, &mut Emitter<'_>)) -> PathBuf {
    let model = Model::open(Fixture::named(fixture).model()).unwrap();
    let mut out = model.graph().emitter(model.graph().main(), "test");
    change(&model, &mut out);
    let patch = out.finish();
    let (model, _) = model.with_patch(patch).unwrap();
    let path = folder.join("altered.onnx");
    fs::write(&path, model.to_bytes().unwrap()).unwrap();
    path
}

/// The table of positions of BERT.
fn table(model: &Model) -> ValueId {
    let graph = model.graph();
    let is_table = |v: &ValueId| {
        graph.stored(*v).is_some() && graph.name(*v).ends_with("position_embeddings.weight")
    };
    graph
        .values()
        .find(is_table)
        .expect("BERT has a table of positions")
}

/// What is put on the outputs of BERT, given the positions `[1, tokens]` and a bound.
type OnOutputs = fn(&mut Emitter<'_>, ValueId, ValueId, i64) -> ValueId;

#[test]
fn what_ends_at_the_old_length_and_is_no_table_is_refused() {
    let hidden: OnOutputs = |out, logits, positions, bound| {
        let bound = out.scalar("bound", DType::I64, bound as f64);
        let inside = out.op("Less", &[positions, bound]);
        let inside = out.cast(inside, DType::F32);
        let axes = out.ints("axes", &[2]);
        let inside = out.op("Unsqueeze", &[inside, axes]);
        out.op("Mul", &[logits, inside])
    };
    let cut: OnOutputs = |out, logits, _, bound| {
        let ends = [0, bound, 1].map(|n| out.ints("end", &[n]));
        out.op("Slice", &[logits, ends[0], ends[1], ends[2]])
    };
    let cut_to_length: OnOutputs = |out, logits, positions, bound| {
        let shape = out.op("Shape", &[positions]);
        let one = out.ints("one", &[1]);
        let length = out.op("Gather", &[shape, one]);
        let bound = out.ints("bound", &[bound]);
        let end = out.op("Min", &[length, bound]);
        let zero = out.ints("zero", &[0]);
        out.op("Slice", &[logits, zero, end, one])
    };
    for (on, says) in [
        (hidden, "this Less has no effect up to 64 tokens"),
        (cut, "this Slice has no effect up to 64 tokens"),
        (cut_to_length, "this Min has no effect up to 64 tokens"),
    ] {
        for bound in [64, 1000] {
            let folder = tempfile::tempdir().unwrap();
            let model = altered(folder.path(), "bert/dynamo", |model, out| {
                let graph = model.graph();
                let rows = graph.uses(table(model))[0];
                let positions = graph.node(rows.node).input(1).unwrap();
                let logits = graph.scope(graph.main()).outputs()[0];
                let new = on(out, logits, positions, bound);
                out.redirect_output(logits, new).unwrap();
            });
            let to = folder.path().join("out.onnx");
            let ran = tiled(&model, &to);
            match bound {
                64 => {
                    assert_eq!(ran.code, 4, "{says}: {}", ran.stderr);
                    assert!(ran.stderr.contains(says), "{}", ran.stderr);
                    assert!(!to.exists());
                }
                _ => assert_eq!(ran.code, 0, "control of {says}: {}", ran.stderr),
            }
        }
    }
}

/// `rewrite` to 128 rows that repeat those of the table.
fn tiled(model: &Path, to: &Path) -> Ran {
    let files = [model, Path::new("-o"), to].map(|p| p.display().to_string());
    let flags = ["--scale", "tile", "--max-length", "128"].map(str::to_owned);
    binary::run(["rewrite".to_owned()].into_iter().chain(files).chain(flags))
}

#[test]
fn rows_of_padding_are_not_taken_for_position_0() {
    for (fixture, table, args, says) in [
        (
            "bert/dynamo",
            "position_embeddings.weight",
            &["--scale", "tile", "--max-length", "128"][..],
            "has zeros in row 0",
        ),
        (
            "mini/sinusoidal",
            "enc.pe",
            &["--scale", "linear", "--factor", "2"],
            "has other numbers than sines and cosines in row 0",
        ),
    ] {
        for is_planted in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let model = altered(folder.path(), fixture, |model, out| {
                let graph = model.graph();
                let rows = |v: &ValueId| {
                    let name = graph.name(*v);
                    graph.stored(*v).is_some() && name.ends_with(table)
                };
                let table = graph.values().find(rows).expect("a table of positions");
                let old = graph.constant(table).unwrap();
                let mut numbers = old.to_f64s().unwrap();
                let width = *old.dims().last().unwrap();
                if is_planted {
                    numbers[..width].fill(0.0);
                }
                let new = Tensor::from_f64(old.dtype(), old.dims(), &numbers);
                out.replace_constant(table, graph.uses(table), new).unwrap();
            });
            let to = folder.path().join("out.onnx");
            let files = [&model, Path::new("-o"), &to].map(|p| p.display().to_string());
            let arguments = args.iter().map(|s| (*s).to_owned());
            let ran = binary::run(
                ["rewrite".to_owned()]
                    .into_iter()
                    .chain(files)
                    .chain(arguments),
            );
            if is_planted {
                assert_eq!(ran.code, 4, "{fixture}: {}", ran.stderr);
                assert!(ran.stderr.contains(says), "{}", ran.stderr);
            } else {
                assert_eq!(ran.code, 0, "control of {fixture}: {}", ran.stderr);
            }
        }
    }
}

/// BERT with a table of 8 bits, whose rows are picked before or after they become floats.
fn quantized(folder: &Path, picks_first: bool) -> PathBuf {
    let model = Model::open(Fixture::named("bert/dynamo").model()).unwrap();
    let (graph, table) = (model.graph(), table(&model));
    let numbers = graph.constant(table).unwrap().to_f64s().unwrap();
    let steps: Vec<f64> = numbers
        .iter()
        .map(|v| (v / 0.02).round().clamp(-128.0, 127.0))
        .collect();
    let at = graph.uses(table)[0];
    let mut out = graph.emitter(graph.main(), "test");
    let bytes = out.constant("bytes", Tensor::from_f64(DType::I8, &[64, 64], &steps));
    let scale = out.constant("scale", Tensor::from_f32(&[], &[0.02]));
    if picks_first {
        let gather = graph.node(at.node);
        let rows = gather.output(0).unwrap();
        let picked = out.op("Gather", &[bytes, gather.input(1).unwrap()]);
        let floats = out.op("DequantizeLinear", &[picked, scale]);
        for reader in graph.uses(rows) {
            out.redirect_use(rows, *reader, floats).unwrap();
        }
    } else {
        let floats = out.op("DequantizeLinear", &[bytes, scale]);
        out.redirect_use(table, at, floats).unwrap();
    }
    let (model, _) = model.clone().with_patch(out.finish()).unwrap();
    let path = folder.join("quantized.onnx");
    fs::write(&path, model.to_bytes().unwrap()).unwrap();
    path
}

#[test]
fn a_table_of_8_bits_keeps_its_type() {
    for picks_first in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [model, out] = [
            quantized(folder.path(), picks_first),
            folder.path().join("out.onnx"),
        ];
        let run = |scale| {
            let args = [&model, Path::new("-o"), &out].map(|p| p.display().to_string());
            let flags = ["--scale", scale, "--max-length", "128"].map(str::to_owned);
            binary::run(["rewrite".to_owned()].into_iter().chain(args).chain(flags))
        };
        // Rows that are composed of others need integers beyond the type.
        let ran = run("hierarchical");
        assert_eq!(ran.code, 4, "{picks_first}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("which int8 does not have"),
            "{}",
            ran.stderr
        );
        assert!(!out.exists());
        for scale in ["linear", "tile"] {
            let ran = run(scale);
            assert_eq!(ran.code, 0, "{picks_first} {scale}: {}", ran.stderr);
            let longer = Model::open(&out).unwrap();
            let graph = longer.graph();
            let mut tables = graph
                .values()
                .filter(|v| graph.dtype(*v) == Some(DType::I8));
            let dims = tables.find_map(|v| graph.stored(v).map(|s| s.dims.clone()));
            assert_eq!(dims, Some(vec![128, 64]), "{scale}");
            assert_eq!(output(&out, 128).dims()[1], 128, "{scale}");
            let same = output(&model, 64).bytes() == output(&out, 64).bytes();
            assert_eq!(same, scale == "tile", "{scale}");
        }
    }
}
