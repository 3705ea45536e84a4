mod unread;

use super::*;
use crate::detect::finding::Encoding;
use posenc_encodings::families::conv::Conv;

/// What is done to the residual stream before a layer without position, and the convolutional
/// encoding that is in it.
struct Case {
    name: &'static str,
    embed: fn(&mut Sketch, String) -> String,
    want: Option<(&'static [usize], usize)>,
}

/// A convolution of `[batch, channels, sequence]` with `taps`.
fn convolved(s: &mut Sketch, x: &str, groups: usize, taps: usize) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN / groups, taps]);
    let (before, after) = ((taps / 2) as i64, ((taps - 1) / 2) as i64);
    let attrs = [
        ("group", A::Int(groups as i64)),
        ("pads", A::Ints(&[before, after])),
    ];
    s.with("Conv", &[x, &w], &attrs)
}

/// `[batch, sequence, channels]` as `[batch, channels, sequence]`, and back.
fn transposed(s: &mut Sketch, x: &str) -> String {
    s.transpose(x, &[0, 2, 1])
}

/// `x · sigmoid(x)`.
fn activated(s: &mut Sketch, x: &str) -> String {
    let gate = s.op("Sigmoid", &[x]);
    s.op("Mul", &[x, &gate])
}

fn cases() -> Vec<Case> {
    let case = |name, want, embed| Case { name, embed, want };
    vec![
        case("grouped, activated", Some((&[5], 4)), |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, 4, 5);
            let y = activated(s, &y);
            let y = transposed(s, &y);
            s.op("Add", &[&x, &y])
        }),
        case(
            "depthwise, before activation",
            Some((&[3], HIDDEN)),
            |s, x| {
                let t = transposed(s, &x);
                let y = convolved(s, &t, HIDDEN, 3);
                let y = transposed(s, &y);
                s.op("Add", &[&y, &x])
            },
        ),
        case(
            "an even kernel whose last token is cropped",
            Some((&[4], 2)),
            |s, x| {
                let t = transposed(s, &x);
                let w = s.weights(&[HIDDEN, HIDDEN / 2, 4]);
                let attrs = [("group", A::Int(2)), ("pads", A::Ints(&[2, 2]))];
                let y = s.with("Conv", &[&t, &w], &attrs);
                let y = s.slice(&y, 2, [0, -1, 1]);
                let y = activated(s, &y);
                let y = transposed(s, &y);
                s.op("Add", &[&x, &y])
            },
        ),
        case("of integers", Some((&[3], 4)), |s, x| {
            let t = transposed(s, &x);
            let of = s.many("DynamicQuantizeLinear", &[&t], &[], 3);
            let cells = (0..HIDDEN * HIDDEN / 4 * 3).map(|n| (n % 7) as f64);
            let w = s.typed(DType::U8, &[HIDDEN, HIDDEN / 4, 3], cells);
            let (zero, scale) = (s.typed(DType::U8, &[], [3.0]), s.float(0.02));
            let attrs = [("group", A::Int(4)), ("pads", A::Ints(&[1, 1]))];
            let y = s.with("ConvInteger", &[&of[0], &w, &of[2], &zero], &attrs);
            let y = s.cast(&y, DType::F32);
            let scale = s.op("Mul", &[&of[1], &scale]);
            let y = s.op("Mul", &[&y, &scale]);
            let y = transposed(s, &y);
            s.op("Add", &[&x, &y])
        }),
        case(
            "a norm between convolution and addition",
            Some((&[3], 3)),
            |s, x| {
                let t = transposed(s, &x);
                let y = convolved(s, &t, 3, 3);
                let y = transposed(s, &y);
                let (scale, bias) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
                let y = s.op("LayerNormalization", &[&y, &scale, &bias]);
                s.op("Add", &[&x, &y])
            },
        ),
        case("tokens on a grid", Some((&[3, 3], HIDDEN)), |s, x| {
            let t = transposed(s, &x);
            let grid = s.reshape(&t, &[0, 0, 2, -1]);
            let w = s.weights(&[HIDDEN, 1, 3, 3]);
            let attrs = [
                ("group", A::Int(HIDDEN as i64)),
                ("pads", A::Ints(&[1, 1, 1, 1])),
            ];
            let y = s.with("Conv", &[&grid, &w], &attrs);
            let y = s.op("Add", &[&grid, &y]);
            let y = s.reshape(&y, &[0, 0, -1]);
            transposed(s, &y)
        }),
        case("added by a norm", Some((&[5], 4)), |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, 4, 5);
            let y = transposed(s, &y);
            let (scale, bias) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
            s.op("ms.SkipLayerNormalization", &[&y, &x, &scale, &bias])
        }),
        case("behind what changes nothing", Some((&[5], 4)), |s, x| {
            let (zero, one) = (s.float(0.0), s.float(1.0));
            let t = s.op("Add", &[&zero, &x]);
            let t = transposed(s, &t);
            let y = convolved(s, &t, 4, 5);
            let y = s.op("Mul", &[&y, &one]);
            let y = transposed(s, &y);
            let x = s.op("Sub", &[&x, &zero]);
            let x = s.op("Div", &[&x, &one]);
            s.op("Add", &[&x, &y])
        }),
        case("its input taken from zero", None, |s, x| {
            let zero = s.float(0.0);
            let t = transposed(s, &x);
            let y = convolved(s, &t, 4, 5);
            let y = transposed(s, &y);
            let x = s.op("Sub", &[&zero, &x]);
            s.op("Add", &[&x, &y])
        }),
        case("a product, added by a norm", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, HIDDEN, 3);
            let y = transposed(s, &y);
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[&y, &w]);
            let (scale, bias) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
            s.op("ms.SkipLayerNormalization", &[&x, &y, &scale, &bias])
        }),
        case("no addition", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, 4, 5);
            transposed(s, &y)
        }),
        case("added to something else", None, |s, x| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let other = s.op("MatMul", &[&x, &w]);
            let t = transposed(s, &other);
            let y = convolved(s, &t, 4, 5);
            let y = transposed(s, &y);
            s.op("Add", &[&x, &y])
        }),
        case("a product after the convolution", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, HIDDEN, 3);
            let y = transposed(s, &y);
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[&y, &w]);
            s.op("Add", &[&x, &y])
        }),
        case("within a feed-forward block", None, |s, x| {
            let (up, down) = (s.weights(&[HIDDEN, HIDDEN]), s.weights(&[HIDDEN, HIDDEN]));
            let y = s.op("MatMul", &[&x, &up]);
            let t = transposed(s, &y);
            let y = convolved(s, &t, HIDDEN, 3);
            let y = transposed(s, &y);
            let y = activated(s, &y);
            let y = s.op("MatMul", &[&y, &down]);
            s.op("Add", &[&x, &y])
        }),
        case(
            "between pointwise convolutions, as in a Conformer",
            None,
            |s, x| {
                let t = transposed(s, &x);
                let y = convolved(s, &t, 1, 1);
                let y = convolved(s, &y, HIDDEN, 5);
                let y = activated(s, &y);
                let y = convolved(s, &y, 1, 1);
                let y = transposed(s, &y);
                s.op("Add", &[&x, &y])
            },
        ),
        case("channels that are not grouped", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, 1, 3);
            let y = transposed(s, &y);
            s.op("Add", &[&x, &y])
        }),
        case("a kernel of one token", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, HIDDEN, 1);
            let y = transposed(s, &y);
            s.op("Add", &[&x, &y])
        }),
        case("a sum with a constant", None, |s, x| {
            let t = transposed(s, &x);
            let y = convolved(s, &t, 4, 3);
            let y = transposed(s, &y);
            let bias = s.weights(&[HIDDEN]);
            s.op("Add", &[&y, &bias])
        }),
    ]
}

#[test]
fn convolutions_are_encodings_where_they_are_added_to_their_input() {
    for case in cases() {
        let model = model(&Form {
            rotated: |s, x, _| s.headed(x),
            embed: case.embed,
            ..Form::default()
        });
        let found = found(&model);
        assert_eq!(found.attention.len(), 1, "{}", case.name);
        let got: Vec<&Encoding> = (found.findings.iter())
            .map(|f| &f.encoding)
            .filter(|e| matches!(e, Encoding::Conv(_)))
            .collect();
        let want = case.want.map(|(kernel, groups)| {
            Encoding::Conv(Conv {
                kernel: kernel.to_vec(),
                groups,
            })
        });
        assert_eq!(got, want.iter().collect::<Vec<_>>(), "{}", case.name);
    }
}

#[test]
fn a_product_on_the_path_is_named_as_the_reason() {
    let case = cases()
        .into_iter()
        .find(|c| c.name.contains("feed-forward"));
    let model = model(&Form {
        rotated: |s, x, _| s.headed(x),
        embed: case.unwrap().embed,
        ..Form::default()
    });
    let found = found(&model);
    let why: Vec<&str> = found.no_encodings.iter().map(|r| r.why.as_str()).collect();
    assert!(
        matches!(why[..], [one] if one.contains("MatMul")),
        "{why:?}"
    );
}

#[test]
fn convolutions_are_taken_out_and_what_they_were_added_to_stays() {
    for case in cases().into_iter().filter(|c| c.want.is_some()) {
        let mut bare = model(&Form {
            rotated: |s, x, _| s.headed(x),
            embed: case.embed,
            ..Form::default()
        });
        let count = |m: &Model, op: &str| m.graph().nodes().filter(|(_, n)| n.is(op)).count();
        let norms = |m: &Model| {
            m.graph()
                .nodes()
                .filter(|(_, n)| n.op().ends_with("tion"))
                .count()
        };
        let before = (count(&bare, "Gather"), norms(&bare));
        let to_none = Request {
            to: Some(posenc_encodings::kind::Kind::None),
            ..Request::default()
        };
        let done = crate::rewrite::rewrite(&mut bare, &to_none);
        done.unwrap_or_else(|why| panic!("{}: {why}", case.name));
        bare.check().unwrap();
        assert_eq!(count(&bare, "Conv"), 0, "{}", case.name);
        // The embeddings, and a norm that adds; the norm of the branch is removed with it.
        let after = (count(&bare, "Gather"), norms(&bare));
        let branch = usize::from(case.name.starts_with("a norm between"));
        assert_eq!(after, (before.0, before.1 - branch), "{}", case.name);
    }
}

/// A convolution that takes steps of two tokens, added to `other` pooled to as many.
fn strided(s: &mut Sketch, x: &str, other: &str) -> String {
    let (x, other) = (transposed(s, x), transposed(s, other));
    let w = s.weights(&[HIDDEN, HIDDEN / 4, 4]);
    let attrs = [
        ("group", A::Int(4)),
        ("pads", A::Ints(&[1, 1])),
        ("strides", A::Ints(&[2])),
    ];
    let y = s.with("Conv", &[&x, &w], &attrs);
    let y = activated(s, &y);
    let attrs = [("kernel_shape", A::Ints(&[2])), ("strides", A::Ints(&[2]))];
    let pooled = s.with("AveragePool", &[&other], &attrs);
    let pooled = s.slice(&pooled, 2, [0, i64::MAX, 1]);
    let y = s.op("Add", &[&pooled, &y]);
    transposed(s, &y)
}

#[test]
fn a_convolution_that_takes_steps_is_added_to_its_input_pooled() {
    let looked_at = |embed: fn(&mut Sketch, String) -> String| {
        let model = model(&Form {
            rotated: |s, x, _| s.headed(x),
            attend: |s, q, k, v| {
                let scores = scores(s, q, k);
                let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
                s.op("MatMul", &[&weights, v])
            },
            embed,
        });
        let found = found(&model);
        assert_eq!(found.attention.len(), 1);
        let all = found.findings.into_iter().map(|f| f.encoding);
        (model, all.collect::<Vec<_>>())
    };
    let conv = Conv {
        kernel: vec![4],
        groups: 4,
    };
    let (mut bare, found) = looked_at(|s, x| strided(s, &x, &x));
    assert_eq!(found, [Encoding::Conv(conv)]);
    let to_none = Request {
        to: Some(posenc_encodings::kind::Kind::None),
        ..Request::default()
    };
    crate::rewrite::rewrite(&mut bare, &to_none).unwrap();
    let count = |op: &str| bare.graph().nodes().filter(|(_, n)| n.is(op)).count();
    assert_eq!((count("Conv"), count("AveragePool")), (0, 1));
    let (_, found) = looked_at(|s, x| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let other = s.op("MatMul", &[&x, &w]);
        strided(s, &x, &other)
    });
    assert_eq!(found, [], "pooled from something else");
    let (_, found) = looked_at(|s, x| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let other = s.op("MatMul", &[&x, &w]);
        strided(s, &other, &x)
    });
    assert_eq!(found, [], "a convolution of something else");
}

/// A feed-forward layer that is added to its input.
fn fed_forward(s: &mut Sketch, x: &str) -> String {
    let (up, down) = (s.weights(&[HIDDEN, HIDDEN]), s.weights(&[HIDDEN, HIDDEN]));
    let y = s.op("MatMul", &[x, &up]);
    let y = activated(s, &y);
    let y = s.op("MatMul", &[&y, &down]);
    s.op("Add", &[x, &y])
}

/// A convolution over neighbours that is added to its input.
fn neighbours(s: &mut Sketch, x: &str, groups: usize) -> String {
    let t = transposed(s, x);
    let y = convolved(s, &t, groups, 3);
    let y = transposed(s, &y);
    s.op("Add", &[x, &y])
}

fn normed(s: &mut Sketch, x: &str) -> String {
    let (scale, bias) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
    s.op("LayerNormalization", &[x, &scale, &bias])
}

/// The convolutions that are found, and what else is said about some.
fn said(embed: fn(&mut Sketch, String) -> String) -> (Vec<usize>, Vec<String>, Vec<String>) {
    let found = found(&model(&Form {
        rotated: |s, x, _| s.headed(x),
        embed,
        ..Form::default()
    }));
    let groups = found.findings.iter().filter_map(|f| match &f.encoding {
        Encoding::Conv(conv) => Some(conv.groups),
        _ => None,
    });
    let why = found.no_encodings.iter().map(|r| r.why.clone());
    (groups.collect(), why.collect(), found.not_evaluated.clone())
}

/// A block that mixes neighbours in place of attention.
fn local_block(s: &mut Sketch, x: &str) -> String {
    let y = neighbours(s, x, 3);
    let y = normed(s, &y);
    let y = fed_forward(s, &y);
    normed(s, &y)
}

#[test]
fn convolutions_in_place_of_attention_are_layers() {
    let (found, why, not_evaluated) = said(|s, x| {
        let y = local_block(s, &x);
        local_block(s, &y)
    });
    assert_eq!((found, not_evaluated), (vec![], vec![]));
    let layer = |w: &String| w.contains("is between it and attention");
    assert!(why.iter().filter(|w| layer(w)).count() == 2, "{why:?}");
    // One alone may be an encoding before a block that begins with another layer.
    let (found, _, not_evaluated) = said(|s, x| local_block(s, &x));
    assert!(found.is_empty());
    assert!(
        matches!(&not_evaluated[..], [one] if one.contains("may encode position")),
        "{not_evaluated:?}"
    );
    // One after such a layer is read by attention.
    let (found, ..) = said(|s, x| {
        let y = fed_forward(s, &x);
        let y = neighbours(s, &y, 3);
        normed(s, &y)
    });
    assert_eq!(found, [3]);
}

#[test]
fn convolutions_that_follow_each_other_are_encodings_together() {
    let (found, ..) = said(|s, x| {
        let y = neighbours(s, &x, 3);
        neighbours(s, &y, 4)
    });
    assert_eq!(found, [3, 4]);
}

fn blocks(s: &mut Sketch, x: &str, groups: usize) -> String {
    (0..2).fold(x.to_owned(), |y, _| {
        let y = neighbours(s, &y, groups);
        fed_forward(s, &y)
    })
}

#[test]
fn of_equal_convolutions_all_encode_or_none_can_be_told() {
    let (found, _, not_evaluated) = said(|s, x| {
        let y = blocks(s, &x, HIDDEN);
        neighbours(s, &y, HIDDEN)
    });
    assert_eq!(found, [HIDDEN]);
    let may = |w: &String| w.contains("may encode position");
    assert!(
        not_evaluated.len() == 2 && not_evaluated.iter().all(may),
        "{not_evaluated:?}"
    );
    let (found, _, not_evaluated) = said(|s, x| {
        let y = blocks(s, &x, 3);
        neighbours(s, &y, HIDDEN)
    });
    assert_eq!((found, not_evaluated), (vec![HIDDEN], vec![]), "others");
}

/// A convolution over neighbours of a projection, which a layer projects again and adds to its input where it `joins`.
fn merged_by_layer(s: &mut Sketch, x: &str, joins: bool) -> String {
    let weights = [(); 2].map(|()| s.weights(&[HIDDEN, HIDDEN]));
    let y = s.op("MatMul", &[x, &weights[0]]);
    let y = neighbours(s, &y, 3);
    let y = s.op("MatMul", &[&y, &weights[1]]);
    if joins { s.op("Add", &[x, &y]) } else { y }
}

#[test]
fn a_convolution_within_a_layer_that_is_added_to_its_input_is_no_encoding() {
    let (found, why, not_evaluated) = said(|s, x| merged_by_layer(s, &x, true));
    assert_eq!(found, [0; 0]);
    assert!(
        why.iter()
            .any(|w| w.contains("is between it and attention")),
        "{why:?}"
    );
    assert!(
        not_evaluated
            .iter()
            .any(|w| w.contains("may encode position")),
        "{not_evaluated:?}"
    );
    let (found, ..) = said(|s, x| merged_by_layer(s, &x, false));
    assert_eq!(found, [3], "control");
}
