//! Refused swaps print one line and write nothing.

use std::fs;
use std::path::Path;

use posenc_tests::fixture::Fixture;
use posenc_tests::{binary, wire};

use super::FLAGS;

/// The exit code and the error of a rewrite, which must print no data and leave no file.
fn refused(model: &Path, flags: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.onnx");
    let [model, out_text] = [model, &out].map(|p| p.display().to_string());
    let arguments = ["rewrite", &model].into_iter().chain(flags.split(' '));
    let ran = binary::run(arguments.chain(["-o", &out_text]));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{model} {flags}: left {left:?}");
    assert_eq!(ran.stdout, "", "{model} {flags}");
    (ran.code, ran.stderr.trim().to_owned())
}

/// Whether a sentence names a node of the model as `graph/node`.
fn names_a_node(model: &Path, sentence: &str) -> bool {
    let bytes = fs::read(model).unwrap();
    let graph = wire::all(&bytes, wire::model::GRAPH).next().unwrap();
    let words = sentence.split(|c: char| c.is_whitespace() || ":,;()\"`".contains(c));
    let words: Vec<&str> = words.collect();
    wire::all(graph.payload, wire::graph::NODE).any(|node| {
        let name = format!("/{}", wire::texts(node.payload, wire::node::NAME).concat());
        name.len() > 1 && words.iter().any(|word| word.ends_with(&name))
    })
}

/// Unsupported swaps (exit 4): the fixture and the flags.
const UNSUPPORTED: &[(&str, &str)] = &[
    // A step has its own token only, and a convolution reads the neighbors.
    ("mini-cached/none", "--to conv"),
    ("mini-cached/rope", "--to conv"),
    ("mini-cached/t5", "--to conv"),
    ("gpt2/optimum", "--to conv"),
    ("llama/optimum", "--to conv"),
];

#[test]
fn an_unsupported_swap_names_the_node_and_writes_nothing() {
    for (name, flags) in UNSUPPORTED {
        let model = Fixture::named(name).model();
        let (code, said) = refused(&model, flags);
        assert_eq!(code, 4, "{name} {flags}: {said}");
        assert_eq!(said.lines().count(), 1, "{name} {flags}: {said}");
        assert!(names_a_node(&model, &said), "{name} {flags}: {said}");
    }
}

/// Parameters that do not fit the model (exit 2), and a word of the error.
const UNFIT: &[(&str, &str, &str)] = &[
    ("mini/none", "--to rope --rotary-dim 5", "rotary"),
    ("mini/none", "--to rope --rotary-dim 10", "rotary"),
    ("mini/none", "--to alibi --slopes 0.5,0.25", "slopes"),
    (
        "mini/none",
        "--to learned --params fixtures/mini/t5/params.safetensors",
        "relative_attention_bias",
    ),
    (
        "mini/none",
        "--to shaw --params fixtures/mini/conv/params.safetensors",
        "params",
    ),
    (
        "gpt2/dynamo",
        "--to learned --params fixtures/mini/learned/params.safetensors",
        "position_embedding",
    ),
    (
        "gpt2/dynamo",
        "--to t5-bias --params fixtures/mini/t5/params.safetensors",
        "relative_attention_bias",
    ),
    (
        "gpt2/dynamo",
        "--to conv --params fixtures/mini/conv/params.safetensors",
        "weight",
    ),
    (
        "gpt2/dynamo",
        "--to transformer-xl --params fixtures/mini/transformer-xl/params.safetensors",
        "_bias",
    ),
    (
        "mini/none",
        "--to alibi --params fixtures/absent.safetensors",
        "absent",
    ),
    (
        "mini/none",
        "--to alibi --params fixtures/README.md",
        "README.md",
    ),
    ("mini/none", "--to rope --layers 7", "7"),
    ("mini/none", "--to rope --stack encoder", "encoder"),
];

#[test]
fn parameters_that_do_not_fit_are_named_and_nothing_is_written() {
    for (name, flags, word) in UNFIT {
        let model = Fixture::named(name).model();
        let (code, said) = refused(&model, flags);
        assert_eq!(code, 2, "{name} {flags}: {said}");
        assert!(said.contains(word), "{name} {flags}: {said}");
    }
}

#[test]
fn a_model_without_attention_has_nothing_to_swap() {
    for name in ["passthrough", "rnn-lstm"] {
        let model = Path::new("fixtures/bad").join(format!("{name}.onnx"));
        for (_, flags) in FLAGS {
            let (code, said) = refused(&model, flags);
            assert_eq!(code, 1, "{name} {flags}: {said}");
        }
    }
}

#[test]
fn a_sentence_that_names_no_node_is_noticed() {
    let model = Fixture::named("mini/none").model();
    assert!(names_a_node(
        &model,
        "error: out.onnx: main_graph/node_softmax: cannot be done"
    ));
    for said in [
        "",
        "cannot be done",
        "main_graph/: cannot be done",
        "the softmaxes cannot be done",
        "main_graph/node_softmaxes: cannot be done",
    ] {
        assert!(!names_a_node(&model, said), "{said}");
    }
}
