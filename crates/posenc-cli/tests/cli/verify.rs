//! `verify`.

use std::io::{Cursor, Write};

use serde_json::Value;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::run::{Folder, addition, bytes, run};

#[test]
fn a_provider_that_is_not_available_is_exit_5() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    let ran = run(["verify", &model, "--provider", "NoSuchExecutionProvider"]);
    ran.failed(5, "an unknown provider");
}

#[test]
fn a_word_that_names_no_provider_is_exit_2_with_those_that_do() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    for (word, why) in [
        ("gpu", "known are cpu, cuda, tensorrt"),
        ("cuda:first", "no number of a device"),
        ("cuda,gpu_mem_limit", "KEY=VALUE"),
    ] {
        let ran = run(["verify", &model, "--provider", word]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}

#[test]
fn a_bound_below_zero_is_exit_2_with_what_it_must_be() {
    for flag in ["--atol", "--rtol"] {
        let ran = run(["verify", "m.onnx", flag, "-1"]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(
            ran.err.contains("a finite number of at least 0"),
            "{}",
            ran.err
        );
    }
}

/// An array of an `.npz` file: its name, its type as NumPy writes it, its shape and its bytes.
type Array<'a> = (&'a str, &'a str, &'a str, Vec<u8>);

/// The bytes of an `.npz` file.
fn saved(arrays: &[Array<'_>]) -> Vec<u8> {
    let mut file = ZipWriter::new(Cursor::new(vec![]));
    for (at, (name, dtype, shape, data)) in arrays.iter().enumerate() {
        // As savez and as savez_compressed.
        let method = [CompressionMethod::Stored, CompressionMethod::Deflated][at % 2];
        let options = SimpleFileOptions::default().compression_method(method);
        file.start_file(format!("{name}.npy"), options).unwrap();
        let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
        // The header ends at a multiple of 64 bytes, with a new line.
        let width = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let header = format!("{header:<width$}", width = width - 1) + "\n";
        file.write_all(b"\x93NUMPY\x01\x00").unwrap();
        file.write_all(&(header.len() as u16).to_le_bytes())
            .unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(data).unwrap();
    }
    file.finish().unwrap().into_inner()
}

fn ids(count: i64) -> Vec<u8> {
    (0..count).flat_map(|n| (n % 50).to_le_bytes()).collect()
}

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/mini/rope/model.onnx"
);

#[test]
fn given_inputs_are_run_on() {
    let folder = Folder::new();
    let mask: Vec<u8> = (0..21).flat_map(|_| 1i32.to_le_bytes()).collect();
    let arrays = [
        ("input_ids", "<i8", "(3, 7)", ids(21)),
        // Numbers that the type of the input holds.
        ("attention_mask", "<i4", "(3, 7)", mask),
    ];
    let file = folder.file("in.npz", saved(&arrays));
    let ran = run([
        "verify",
        MODEL,
        "--inputs",
        &file,
        "--provider",
        "tract",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert!(!runs.is_empty());
    for run in runs {
        assert_eq!((&run["length"], &run["batch"]), (&7.into(), &3.into()));
    }
}

#[test]
fn the_given_numbers_are_those_that_are_fed() {
    let folder = Folder::new();
    let far: Vec<u8> = (0..21i64).flat_map(|n| (n + 1000).to_le_bytes()).collect();
    let ones: Vec<u8> = (0..21).flat_map(|_| 1i64.to_le_bytes()).collect();
    let arrays = [
        ("input_ids", "<i8", "(3, 7)", far),
        ("attention_mask", "<i8", "(3, 7)", ones),
    ];
    let file = folder.file("in.npz", saved(&arrays));
    let ran = run(["verify", MODEL, "--inputs", &file, "--provider", "tract"]);
    assert_ne!(ran.code, 0, "the vocabulary has 53 words: {}", ran.out);
}

#[test]
fn inputs_that_do_not_fit_are_exit_2_and_named() {
    let folder = Folder::new();
    let mask = || ("attention_mask", "<i8", "(3, 7)", ids(21));
    let halves: Vec<u8> = (0..21)
        .flat_map(|n| (n as f32 + 0.5).to_le_bytes())
        .collect();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        (
            "no file of arrays",
            b"no zip".to_vec(),
            "this is no .npz file",
        ),
        (
            "a missing one",
            saved(&[mask()]),
            "input input_ids: the given inputs have no numbers for it",
        ),
        (
            "an unknown one",
            saved(&[
                ("input_ids", "<i8", "(3, 7)", ids(21)),
                mask(),
                ("x", "<i8", "(1,)", ids(1)),
            ]),
            "input x: no model has this input; there are: input_ids, attention_mask",
        ),
        (
            "other sizes",
            saved(&[("input_ids", "<i8", "(21,)", ids(21)), mask()]),
            "the given numbers have the sizes [21], and the input is declared as [batch, sequence]",
        ),
        (
            "numbers that are no ids",
            saved(&[("input_ids", "<f4", "(3, 7)", halves), mask()]),
            "the given numbers are float, which int64 does not hold exactly",
        ),
        (
            "no sequence",
            saved(&[("input_ids", "<i8", "(0, 7)", vec![]), mask()]),
            "input input_ids: the given array has no numbers",
        ),
        (
            "a token that has no row",
            saved(&[
                ("input_ids", "<i8", "(1, 1)", 53i64.to_le_bytes().to_vec()),
                mask(),
            ]),
            "the given tokens contain 53, and the model knows 53",
        ),
        (
            "text",
            saved(&[("input_ids", "<U1", "(3, 7)", ids(11)), mask()]),
            "array input_ids: its type",
        ),
    ];
    for (what, bytes, says) in cases {
        let file = folder.file("in.npz", bytes);
        let ran = run(["verify", MODEL, "--inputs", &file, "--provider", "tract"]);
        assert_eq!(ran.code, 2, "{what}: {}", ran.err);
        assert!(ran.err.contains(says), "{what}: {}", ran.err);
    }
}

#[test]
fn a_model_or_all_must_be_named() {
    let cases: [&[&str]; 4] = [
        &["verify"],
        &["verify", "--all", "m.onnx"],
        &["verify", "m.onnx", "--lengths", "0"],
        &["verify", "m.onnx", "--lengths", "4", "--inputs", "a.npz"],
    ];
    for words in cases {
        let ran = run(words.iter().copied());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}");
    }
}
