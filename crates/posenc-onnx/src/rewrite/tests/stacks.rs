//! Models of an encoder and a decoder, whose layers count within their stack.

use posenc_ir::{DType, Model, Tensor};
use posenc_runtime::{Backend, EvaluatorBackend, ModelSource, Options as RunOptions};

use crate::attention::Site;
use crate::detect::{Options, detect};
use crate::graph::ports::Lengths;
use crate::graph::sketch::{A, HIDDEN, SIZE, Sketch};
use crate::prove::inserted::entries;
use crate::prove::unchanged::is_unchanged;
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;
use posenc_encodings::kind::{Kind, Stack};

/// Two layers of an encoder and some of a decoder, without any encoding.
fn model(decoder_layers: usize) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for _ in 0..2 {
        x = s.attends(&x.clone(), &x);
    }
    let dims = ["batch", "decoder_sequence"];
    let ids = s.input("decoder_input_ids", DType::I64, &dims);
    let words = s.weights(&[30, HIDDEN]);
    let mut y = s.op("Gather", &[&words, &ids]);
    for _ in 0..decoder_layers {
        y = s.attends(&y.clone(), &y);
        y = s.attends(&y, &x);
    }
    s.model(17, &[&y])
}

#[test]
fn edits_name_what_each_stack_had() {
    let mut model = model(1);
    for (stack, theta) in [(Stack::Encoder, 1e4), (Stack::Decoder, 1e6)] {
        let mut request = Request {
            to: Some(Kind::Rope),
            stack: Some(stack),
            ..Request::default()
        };
        request.parameters.theta = Some(theta);
        let done = rewrite(&mut model, &request).unwrap();
        assert!(!done.report.edits.is_empty(), "{stack}");
    }
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let done = rewrite(&mut model, &request).unwrap();
    let reported = done.report.edits.iter().map(|edit| {
        let theta = |side: &serde_json::Value| side["params"]["theta"].as_f64();
        let law = edit.to["params"]["scaling"]["type"].as_str();
        (theta(&edit.from), theta(&edit.to), law)
    });
    let reported: Vec<_> = reported.collect();
    let scaled = |theta| (Some(theta), Some(theta), Some("linear"));
    assert_eq!(reported, [scaled(1e4), scaled(1e4), scaled(1e6)]);
}

/// An encoder with a mask and a decoder, each input declared with symbols of its own.
fn declared_apart() -> Model {
    let mut s = Sketch::default();
    let mut input = |name: &str| {
        let dims = [0, 1].map(|axis| format!("{name}_axis_{axis}"));
        s.input(name, DType::I64, &[&dims[0], &dims[1]])
    };
    let [ids, mask, others] = ["input_ids", "attention_mask", "decoder_input_ids"].map(&mut input);
    let words = s.weights(&[30, HIDDEN]);
    let [x, y] = [ids, others].map(|ids| s.gather(&words, &ids, 0));
    let mask = s.cast(&mask, DType::F32);
    let (one, least) = (s.float(1.0), s.float(-1e9));
    let mask = s.op("Sub", &[&one, &mask]);
    let mask = s.op("Mul", &[&mask, &least]);
    let mask = s.unsqueeze(&mask, &[1, 2]);
    let mut attends = |x: &str, keys: &str, mask: Option<&str>| {
        let [mut scores, v] = s.scored(x, keys);
        if let Some(mask) = mask {
            scores = s.op("Add", &[&scores, mask]);
        }
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let z = s.op("MatMul", &[&weights, &v]);
        let z = s.merged(&z);
        s.op("Add", &[x, &z])
    };
    let memory = attends(&x, &x, Some(&mask));
    let y = attends(&y, &y, None);
    let y = attends(&y, &memory, Some(&mask));
    s.model(17, &[&y])
}

/// The output for so many tokens of both stacks.
fn run(model: &Model, [encoder, decoder]: [usize; 2]) -> Vec<f64> {
    let model = model.to_bytes().unwrap();
    let source = ModelSource::Bytes {
        model: &model,
        folder: None,
    };
    let mut session = EvaluatorBackend
        .load(source, &RunOptions::default())
        .unwrap();
    let of = |n: usize, step: usize| {
        let ids: Vec<i64> = (0..n).map(|i| ((i * step) % 30) as i64).collect();
        Tensor::from_i64(&[1, n], &ids)
    };
    let ones = Tensor::from_i64(&[1, encoder], &vec![1; encoder]);
    let feeds = [
        ("input_ids", of(encoder, 7)),
        ("attention_mask", ones),
        ("decoder_input_ids", of(decoder, 11)),
    ];
    let output = session.outputs()[0].clone();
    let done = session.run(&feeds, &[&output]).unwrap();
    done[0].1.to_f64s().unwrap()
}

#[test]
fn stacks_that_are_declared_apart_have_biases_of_their_own_lengths() {
    for kind in [Kind::Alibi, Kind::RelativeBias, Kind::Kerple] {
        let swapped = |stack| {
            let mut model = declared_apart();
            let mut request = Request {
                to: Some(kind),
                stack,
                ..Request::default()
            };
            request.parameters.seed = (kind == Kind::RelativeBias).then_some(1);
            rewrite(&mut model, &request).unwrap();
            model
        };
        let (both, one) = (swapped(None), swapped(Some(Stack::Decoder)));
        for lengths in [[12, 12], [12, 9], [9, 12]] {
            let differ = run(&both, lengths) != run(&declared_apart(), lengths);
            assert!(differ, "{kind} {lengths:?}");
        }
        // A bias among one token does nothing: that of the decoder is left.
        let [both, one, none] = [&both, &one, &declared_apart()].map(|model| run(model, [1, 10]));
        let apart = |a: &[f64], b: &[f64]| {
            let pairs = a.iter().zip(b);
            pairs.fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()))
        };
        assert!(apart(&both, &one) < 1e-9, "{kind}");
        assert!(apart(&both, &none) > 1e-3, "{kind}");
    }
}

#[test]
fn a_convolution_of_the_encoder_is_none_of_the_decoders() {
    let request = Request {
        to: Some(Kind::Conv),
        ..Request::default()
    };
    // The second layer of the decoder reads what the first one got from the encoder.
    let mut model = model(2);
    rewrite(&mut model, &request).unwrap();
    let found = detect(&model, &Options::default());
    let own = |site: &Site| entries(&found, site.index, Kind::Conv);
    let sites = found.attention.iter().filter(|site| !site.cross);
    let counts: Vec<usize> = sites.map(own).collect();
    assert_eq!(counts, [1, 1, 1, 1]);
}

/// A decoder of one layer, whose cross-attention and self-attention rotate queries and keys.
fn rotated_across() -> Model {
    let mut s = Sketch::default();
    let words = s.embedded();
    let memory = s.attends(&words, &words);
    let ids = s.input("decoder_input_ids", DType::I64, &["batch", "decoder"]);
    let table = s.weights(&[30, HIDDEN]);
    let mut y = s.op("Gather", &[&table, &ids]);
    let rotated = |s: &mut Sketch, x: &str, ids: &str| {
        let y = s.headed(x);
        let (shape, one, zero) = (s.op("Shape", &[ids]), s.int(1), s.int(0));
        let length = s.gather(&shape, &one, 0);
        let at = s.op("Range", &[&zero, &length, &one]);
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[0, 2]);
        let f = s.floats(&[1, 1, SIZE / 2], [1.0, 0.1, 0.01, 0.001]);
        let angles = s.op("Mul", &[&at, &f]);
        let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
        s.op("RotaryEmbedding", &[&y, &cos, &sin])
    };
    for keys in [None, Some(&memory)] {
        let own = y.clone();
        let (keys, counted) = match keys {
            Some(memory) => (memory, "input_ids"),
            None => (&own, "decoder_input_ids"),
        };
        let q = rotated(&mut s, &own, "decoder_input_ids");
        let k = rotated(&mut s, keys, counted);
        let v = s.headed(keys);
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let weighted = s.op("MatMul", &[&weights, &v]);
        let merged = s.merged(&weighted);
        y = s.op("Add", &[&own, &merged]);
    }
    s.model(23, &[&y])
}

#[test]
fn an_edit_is_that_of_its_site_and_cross_attention_keeps_its_encoding() {
    let mut scaled = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    scaled.parameters.factor = Some(2.0);
    let to = |kind| Request {
        to: Some(kind),
        ..Request::default()
    };
    for request in [to(Kind::None), scaled] {
        let done = rewrite(&mut rotated_across(), &request).unwrap();
        let kinds = |side: &serde_json::Value| match side {
            serde_json::Value::Null => "none".to_owned(),
            one => one["kind"].as_str().unwrap().to_owned(),
        };
        let last = done.report.edits.last().unwrap();
        let want = request
            .to
            .map_or("rope".to_owned(), |kind| kind.to_string());
        assert_eq!(
            (kinds(&last.from), kinds(&last.to)),
            ("rope".to_owned(), want)
        );
        let kept = "cross-attention keeps its rope at 1 sites: only self-attention is changed";
        let warnings = &done.report.warnings;
        assert!(warnings.iter().any(|w| w == kept), "{warnings:?}");
    }
    // Nor is there silence where cross-attention alone has one.
    let mut across = rotated_across();
    rewrite(&mut across, &to(Kind::None)).unwrap();
    let done = rewrite(&mut across, &to(Kind::None)).unwrap();
    assert!(done.report.edits.is_empty());
    let kept = "cross-attention keeps its rope at 1 sites: only self-attention is changed";
    assert_eq!(done.report.warnings, [kept]);
    // Without an encoding of its own, there is nothing to say.
    let done = rewrite(&mut model(1), &to(Kind::Rope)).unwrap();
    assert_eq!(done.report.warnings, [""; 0]);
}

#[test]
fn a_rescale_changes_a_stack_of_two_tokens_where_the_other_has_one() {
    let scaled = |mut model: Model| {
        let request = Request {
            to: Some(Kind::Rope),
            ..Request::default()
        };
        rewrite(&mut model, &request).unwrap();
        let mut request = Request {
            scale: Some(LawName::Linear.into()),
            ..Request::default()
        };
        request.parameters.factor = Some(2.0);
        let mut other = model.clone();
        rewrite(&mut other, &request).unwrap();
        [model, other]
    };
    let is_unchanged = |models: &[Model; 2], sequence| {
        let found = models.each_ref().map(|m| detect(m, &Options::default()));
        let at = Lengths {
            batch: 1,
            sequence,
            past: 0,
        };
        let pair = [(&models[0], &found[0]), (&models[1], &found[1])];
        is_unchanged(&pair, at).unwrap()
    };
    let mut s = Sketch::default();
    let x = s.embedded();
    let y = s.attends(&x, &x);
    let one = scaled(s.model(17, &[&y]));
    assert!(is_unchanged(&one, 1), "the only position is 0");
    assert!(!is_unchanged(&one, 2));
    // The decoder has a token more.
    assert!(!is_unchanged(&scaled(model(1)), 1));
}

/// A decoder that reads what an encoder gives, with a number of each place as a factor.
fn gated_memory(is_gated: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mut memory = s.attends(&x, &x);
    if is_gated {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1]);
        let wave = s.op("Sin", &[&at]);
        memory = s.op("Mul", &[&memory, &wave]);
    }
    let ids = s.input("decoder_input_ids", DType::I64, &["batch", "decoder"]);
    let words = s.weights(&[30, HIDDEN]);
    let mut y = s.op("Gather", &[&words, &ids]);
    y = s.attends(&y.clone(), &y);
    y = s.attends(&y, &memory);
    s.model(17, &[&y])
}

#[test]
fn cross_attention_keeps_no_position_that_was_not_read() {
    let to = |kind, allow_unread| {
        let mut request = Request {
            to: Some(kind),
            ..Request::default()
        };
        request.allowances.allow_unread = allow_unread;
        request
    };
    for kind in [Kind::Alibi, Kind::None] {
        let error = rewrite(&mut gated_memory(true), &to(kind, false)).unwrap_err();
        let why = "cross-attention keeps it";
        assert!(error.to_string().contains(why), "{kind}: {error}");
        assert!(rewrite(&mut gated_memory(true), &to(kind, true)).is_ok());
        assert!(rewrite(&mut gated_memory(false), &to(kind, false)).is_ok());
    }
}

/// One layer behind a table that is added, with the embeddings added once more behind it: those before
/// the table, or those behind.
fn forked(before: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (table, at) = (s.weights(&[40, HIDDEN]), s.range());
    let rows = s.gather(&table, &at, 0);
    let sum = s.op("Add", &[&x, &rows]);
    let y = s.attends(&sum, &sum);
    let y = s.op("Add", &[&y, if before { &x } else { &sum }]);
    s.model(17, &[&y])
}

#[test]
fn content_that_goes_around_the_old_encoding_is_not_given_the_new_one() {
    for kind in [Kind::Sinusoidal, Kind::Alibi, Kind::None] {
        for before in [false, true] {
            let request = Request {
                to: Some(kind),
                ..Request::default()
            };
            let refused = before && kind.is_absolute();
            match rewrite(&mut forked(before), &request) {
                Ok(_) => assert!(!refused, "{kind} {before}"),
                Err(why) => {
                    assert!(refused, "{kind} {before}: {why}");
                    assert!(why.to_string().contains("before the old encoding"), "{why}");
                }
            }
        }
    }
}
