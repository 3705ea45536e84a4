//! Real models with flipped bits or without their end: an answer or a one-line error, in time.

use std::fs;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use posenc_onnx::request::{LawName, Request};
use posenc_onnx::{Model, Plan, RewriteError};
use posenc_tests::binary;
use posenc_tests::fixture::Fixture;
use posenc_tests::fuzz::random::Random;

const CUTS: usize = 200;
const FLIPS: usize = 500;

/// Generous: a healthy run takes some hundredths of a second.
const LIMIT: Duration = Duration::from_secs(20);

/// A damaged model with a description of the damage.
struct Damaged {
    what: String,
    bytes: Vec<u8>,
}

/// Cuts and flips at reproducible offsets, of several exports.
fn damaged() -> Vec<Damaged> {
    let names = [
        "llama/optimum",
        "llama/dynamo",
        "gpt_neox/torchscript",
        "llama/fp16",
    ];
    let models = names.map(|name| fs::read(Fixture::named(name).model()).unwrap());
    let mut random = Random::new(7);
    let mut found = vec![];
    for i in 0..CUTS + FLIPS {
        let which = i % names.len();
        let mut bytes = models[which].clone();
        let at = random.below(bytes.len());
        let what = if i < CUTS {
            bytes.truncate(at);
            format!("{} cut at byte {at}", names[which])
        } else {
            let mask = 1 + random.below(255) as u8;
            bytes[at] ^= mask;
            format!("{} with byte {at} xor {mask:#x}", names[which])
        };
        found.push(Damaged { what, bytes });
    }
    found
}

fn request() -> Request {
    let mut request = Request {
        scale: Some(LawName::Yarn.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(4.0);
    request.parameters.original_length = Some(64);
    request
}

/// The answer of the library to a model that it can read.
enum Answer {
    /// It was rewritten.
    Rewritten,
    /// The rewrite was refused, with the text of the error.
    Refused(String),
}

/// Reads, inspects and rewrites a model; an error where it cannot be read.
fn answer(bytes: Vec<u8>) -> Result<Answer, String> {
    let sentence = |e: &dyn std::fmt::Display| e.to_string();
    let model = Model::from_bytes(bytes).map_err(|e| sentence(&e))?;
    let _ = model.inspect();
    let done = match model.plan(request()).and_then(Plan::apply) {
        Ok(done) => done,
        Err(error @ RewriteError::Result(_)) => panic!("{error}"),
        Err(error) => return Ok(Answer::Refused(sentence(&error))),
    };
    let written = done.to_bytes().map_err(|e| sentence(&e))?;
    Model::from_bytes(written).expect("a written model can be read and passes the check");
    Ok(Answer::Rewritten)
}

/// Whether an error is one line of a plausible length.
fn is_sentence(error: &str) -> bool {
    error.len() > 8 && error.len() < 1000 && !error.contains(['\n', '\r'])
}

#[test]
fn the_library_answers_every_cut_and_flip() {
    let (mut rewritten, mut refused, mut unreadable) = (0, 0, 0);
    for Damaged { what, bytes } in damaged() {
        let start = Instant::now();
        match catch_unwind(|| answer(bytes)) {
            Ok(Ok(Answer::Rewritten)) => rewritten += 1,
            Ok(Ok(Answer::Refused(error))) if is_sentence(&error) => refused += 1,
            Ok(Err(error)) if is_sentence(&error) => unreadable += 1,
            Ok(Ok(Answer::Refused(error)) | Err(error)) => panic!("{what}: no sentence: {error}"),
            Err(_) => panic!("{what}: it panicked"),
        }
        assert!(start.elapsed() < LIMIT, "{what}: {:?}", start.elapsed());
    }
    // A cut model cannot be read; most bytes are weights, where a flip changes nothing else.
    let counts = format!("{rewritten} rewritten, {refused} refused, {unreadable} unreadable");
    assert!(unreadable >= CUTS, "{counts}");
    assert!(rewritten > FLIPS / 2, "{counts}");
}

#[test]
fn the_binary_answers_cuts_and_flips_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for (i, Damaged { what, bytes }) in damaged().into_iter().enumerate() {
        if i % 35 > 1 {
            continue;
        }
        let input = folder.path().join("model.onnx");
        fs::write(&input, &bytes).unwrap();
        let output = folder.path().join("out.onnx");
        let mut arguments = vec!["rewrite".as_ref(), input.as_os_str(), "-o".as_ref()];
        arguments.push(output.as_os_str());
        let flags = "--scale yarn --factor 4 --original-length 64 --json";
        arguments.extend(flags.split(' ').map(AsRef::<std::ffi::OsStr>::as_ref));
        for arguments in [vec!["inspect".as_ref(), input.as_os_str()], arguments] {
            let ran = binary::run_within(LIMIT, arguments);
            let ran = ran.unwrap_or_else(|| panic!("{what}: it hangs"));
            refused += usize::from(ran.code != 0);
            assert_eq!(fault(&ran), None, "{what}");
            let wrote = output.exists();
            assert!(
                !wrote || ran.code == 0,
                "{what}: exit {} with output",
                ran.code
            );
        }
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(
            left.len(),
            1 + usize::from(output.exists()),
            "{what}: {left:?}"
        );
        let _ = fs::remove_file(&output);
    }
    assert!(refused >= 20, "{refused} runs ended in an error");
}

/// What is wrong with the end of a run, whatever its answer.
fn fault(ran: &binary::Ran) -> Option<String> {
    let lines = ran.stderr.lines().count();
    if !(0..=5).contains(&ran.code) {
        return Some(format!("exit {}: {}", ran.code, ran.stderr));
    }
    if ran.stderr.contains("panicked") {
        return Some(ran.stderr.clone());
    }
    if ran.code >= 2 && (lines != 1 || !is_sentence(ran.stderr.trim_end())) {
        return Some(format!("no sentence: {}", ran.stderr));
    }
    (ran.code >= 2 && !ran.stdout.is_empty()).then(|| "data in addition to an error".into())
}

#[test]
fn a_run_that_ends_badly_is_noticed() {
    let ran = |code, stdout: &str, stderr: &str| binary::Ran {
        code,
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    let sentence = "error: model.onnx: the file ends inside the field at byte 3\n";
    let cases = [
        ("an answer", ran(0, "{}", ""), true),
        ("a sentence", ran(3, "", sentence), true),
        ("a signal", ran(-1, "", ""), false),
        (
            "a panic",
            ran(101, "", "thread 'main' panicked at src/main.rs\n"),
            false,
        ),
        (
            "a panic that was caught",
            ran(0, "", "thread 'main' panicked at\n"),
            false,
        ),
        ("no message", ran(3, "", ""), false),
        (
            "two lines",
            ran(3, "", "error: one\nand another line\n"),
            false,
        ),
        ("data and an error", ran(3, "{}", sentence), false),
    ];
    for (name, ran, fine) in cases {
        assert_eq!(fault(&ran).is_none(), fine, "{name}");
    }
}
