//! Elements that a mask of content selects, and numbers that are added up behind attention.

use super::*;
use crate::plan::unread::of_branch;

/// What of a model is not read, whose layer is followed by this.
fn unread(behind: impl Fn(&mut Sketch, &str) -> String) -> Vec<String> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let y = s.attends(&x, &x);
    let y = behind(&mut s, &y);
    let model = s.model(17, &[&y]);
    let found = found(&model);
    assert_eq!(found.attention.len(), 1);
    of_branch(&model, &found)
}

/// The places of the numbers above 0.
fn places(s: &mut Sketch, x: &str) -> String {
    let zero = s.float(0.0);
    let mask = s.op("Greater", &[x, &zero]);
    let places = s.op("NonZero", &[&mask]);
    s.transpose(&places, &[1, 0])
}

/// Changes the numbers above 0 and puts them back in their places.
fn changed(s: &mut Sketch, x: &str, change: impl Fn(&mut Sketch, &str) -> String) -> String {
    let places = places(s, x);
    let some = s.op("GatherND", &[x, &places]);
    let some = change(s, &some);
    s.op("ScatterND", &[x, &places, &some])
}

#[test]
fn selected_elements_that_stay_apart_mix_no_tokens() {
    let alone = unread(|s, y| changed(s, y, |s, some| s.op("Exp", &[some])));
    assert_eq!(alone, [""; 0]);
    let twice = unread(|s, y| {
        let y = changed(s, y, |s, some| s.op("Exp", &[some]));
        changed(s, &y, |s, some| s.op("Sqrt", &[some]))
    });
    assert_eq!(twice, [""; 0]);
}

#[test]
fn selected_elements_that_meet_each_other_mix_tokens() {
    let next = |s: &mut Sketch, some: &str| {
        let ends = s.ints(&[1, -1]);
        let next = s.op("Pad", &[some, &ends]);
        s.op("Add", &[some, &next])
    };
    let product = |s: &mut Sketch, some: &str| {
        let (row, column) = (s.unsqueeze(some, &[0]), s.unsqueeze(some, &[1]));
        let all = s.op("MatMul", &[&column, &row]);
        s.op("MatMul", &[&all, some])
    };
    let first = unread(|s, y| changed(s, y, next));
    assert!(first[0].contains("Add mixes tokens"), "{first:?}");
    let second = unread(|s, y| changed(s, y, product));
    assert!(second[0].contains("mixes tokens"), "{second:?}");
}

/// How many elements were selected.
fn count(s: &mut Sketch, some: &str) -> String {
    let shape = s.op("Shape", &[some]);
    let zero = s.int(0);
    s.gather(&shape, &zero, 0)
}

/// 0, 1, ... for the selected elements.
fn ranks(s: &mut Sketch, some: &str) -> String {
    let (zero, one) = (s.int(0), s.int(1));
    let count = count(s, some);
    s.op("Range", &[&zero, &count, &one])
}

#[test]
fn how_many_elements_are_selected_tells_none_its_rank() {
    let filled = unread(|s, y| {
        changed(s, y, |s, some| {
            let shape = s.op("Shape", &[some]);
            let zeros = s.op("ConstantOfShape", &[&shape]);
            s.op("Add", &[some, &zeros])
        })
    });
    assert_eq!(filled, [""; 0]);
    let indexed = unread(|s, y| {
        changed(s, y, |s, some| {
            let ranks = ranks(s, some);
            let ranks = s.unsqueeze(&ranks, &[1]);
            let shape = s.op("Shape", &[some]);
            let zeros = s.op("ConstantOfShape", &[&shape]);
            s.op("ScatterND", &[&zeros, &ranks, some])
        })
    });
    assert_eq!(indexed, [""; 0]);
}

#[test]
fn selected_elements_that_are_told_their_ranks_or_how_many_they_are_are_unread() {
    let added = |s: &mut Sketch, some: &str| {
        let ranks = ranks(s, some);
        let ranks = s.cast(&ranks, DType::F32);
        s.op("Add", &[some, &ranks])
    };
    let rows = |s: &mut Sketch, some: &str| {
        let table = s.weights(&[64]);
        let ranks = ranks(s, some);
        let rows = s.gather(&table, &ranks, 0);
        s.op("Add", &[some, &rows])
    };
    let first_rows = |s: &mut Sketch, some: &str| {
        let table = s.weights(&[64]);
        let count = count(s, some);
        let count = s.unsqueeze(&count, &[0]);
        let zero = s.ints(&[0]);
        let rows = s.op("Slice", &[&table, &zero, &count]);
        s.op("Add", &[some, &rows])
    };
    let summed = |s: &mut Sketch, some: &str| {
        let shape = s.op("Shape", &[some]);
        let one = s.float(1.0);
        let ones = s.op("Expand", &[&one, &shape]);
        let zero = s.int(0);
        let ranks = s.op("CumSum", &[&ones, &zero]);
        s.op("Mul", &[some, &ranks])
    };
    let counted = |s: &mut Sketch, some: &str| {
        let count = count(s, some);
        let count = s.cast(&count, DType::F32);
        s.op("Div", &[some, &count])
    };
    let kinds: [fn(&mut Sketch, &str) -> String; 5] = [added, rows, first_rows, summed, counted];
    for (at, change) in kinds.into_iter().enumerate() {
        let why = unread(|s, y| changed(s, y, change));
        assert!(!why.is_empty(), "{at}");
    }
}

#[test]
fn selected_elements_that_are_put_elsewhere_mix_tokens() {
    let why = unread(|s, y| {
        let places = places(s, y);
        let some = s.op("GatherND", &[y, &places]);
        // The places count from 0 on in another order.
        let turned = s.slice(&places, 0, [-1, i64::MIN, -1]);
        s.op("ScatterND", &[y, &turned, &some])
    });
    assert!(why[0].contains("mixes tokens"), "{why:?}");
}

#[test]
fn selected_elements_that_another_mask_puts_back_mix_tokens() {
    let why = unread(|s, y| {
        let ends = s.ints(&[0, 1, 0, 0, -1, 0]);
        let before = s.op("Pad", &[y, &ends]);
        let (some, other) = (places(s, y), places(s, &before));
        let some = s.op("GatherND", &[y, &some]);
        s.op("ScatterND", &[y, &other, &some])
    });
    assert!(why[0].contains("mixes tokens"), "{why:?}");
}

#[test]
fn a_mask_of_other_tokens_mixes_them() {
    let why = unread(|s, y| {
        let ends = s.ints(&[0, 1, 0, 0, -1, 0]);
        let before = s.op("Pad", &[y, &ends]);
        let places = places(s, &before);
        let some = s.op("GatherND", &[y, &places]);
        let some = s.op("Exp", &[&some]);
        s.op("ScatterND", &[y, &places, &some])
    });
    assert!(why[0].contains("ScatterND mixes tokens"), "{why:?}");
}

/// One number of each token, added up along the sequence.
fn added_up(s: &mut Sketch, y: &str, features: usize) -> String {
    let w = s.weights(&[HIDDEN, features]);
    let each = s.op("MatMul", &[y, &w]);
    let one = s.int(1);
    s.op("CumSum", &[&each, &one])
}

#[test]
fn lengths_that_are_added_up_behind_all_attention_are_let_through() {
    let frames = |s: &mut Sketch, y: &str, features| {
        let ends = added_up(s, y, features);
        let places = s.range();
        let places = s.cast(&places, DType::F32);
        s.op("Less", &[&places, &ends])
    };
    assert_eq!(unread(|s, y| frames(s, y, 1)), [""; 0]);
    let several = unread(|s, y| frames(s, y, 2));
    assert!(several[0].contains("CumSum mixes tokens"), "{several:?}");
    // The frames of one sequence, from the end of the token before on.
    let of_one = |s: &mut Sketch, y: &str| {
        let w = s.weights(&[HIDDEN, 1]);
        let each = s.op("MatMul", &[y, &w]);
        let zero = s.int(0);
        let one = s.ints(&[1]);
        let each = s.gather(&each, &zero, 0);
        let each = s.op("Squeeze", &[&each, &one]);
        let ends = s.op("CumSum", &[&each, &zero]);
        let begin = s.slice(&ends, 0, [0, -1, 1]);
        let nothing = s.floats(&[1], [0.0]);
        let begins = s.concat(&[&nothing, &begin], 0);
        let begins = s.unsqueeze(&begins, &[1]);
        let places = s.range();
        let places = s.cast(&places, DType::F32);
        s.op("GreaterOrEqual", &[&places, &begins])
    };
    assert_eq!(unread(of_one), [""; 0]);
    let sums = unread(|s, y| added_up(s, y, 1));
    assert!(sums[0].contains("CumSum mixes tokens"), "{sums:?}");
    let content = unread(|s, y| {
        let ends = added_up(s, y, 1);
        s.op("Less", &[y, &ends])
    });
    assert!(content[0].contains("CumSum mixes tokens"), "{content:?}");
    let mut s = Sketch::default();
    let x = s.embedded();
    let sum = added_up(&mut s, &x, 1);
    let x = s.op("Add", &[&x, &sum]);
    let y = s.attends(&x, &x);
    let model = s.model(17, &[&y]);
    let before = of_branch(&model, &found(&model));
    assert!(before[0].contains("CumSum mixes tokens"), "{before:?}");
}

#[test]
fn a_sum_along_features_mixes_no_tokens() {
    let features = |s: &mut Sketch, y: &str| {
        let last = s.int(-1);
        s.op("CumSum", &[y, &last])
    };
    assert_eq!(unread(features), [""; 0]);
}

#[test]
fn a_few_numbers_beside_ids_are_no_tokens() {
    for (dims, is_mixed) in [(["3"], false), (["scales"], true)] {
        let why = unread(|s, y| {
            let scales = s.input("scales", DType::F32, &dims);
            let second = s.slice(&scales, 0, [1, 2, 1]);
            s.op("Mul", &[y, &second])
        });
        assert_eq!(!why.is_empty(), is_mixed, "{dims:?} {why:?}");
    }
}

#[test]
fn lengths_that_are_added_up_for_the_values_alone_mix_tokens() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let sum = added_up(&mut s, &x, 1);
    let (q, k) = (s.headed(&x), s.headed(&x));
    let later = s.op("Add", &[&x, &sum]);
    let v = s.headed(&later);
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    let model = s.model(17, &[&y]);
    let why = of_branch(&model, &found(&model));
    assert!(why[0].contains("CumSum mixes tokens"), "{why:?}");
}

#[test]
fn a_waveform_beside_ids_is_no_setting() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = s.attends(&x, &x);
    let wave = s.input("wave", DType::F32, &["batch", "64"]);
    let wave = s.unsqueeze(&wave, &[1]);
    let w = s.weights(&[HIDDEN, 1, 4]);
    let strides = [("strides", A::Ints(&[4]))];
    let frames = s.with("Conv", &[&wave, &w], &strides);
    let frames = s.transpose(&frames, &[0, 2, 1]);
    // Frames that meet each other without a softmax.
    let turned = s.transpose(&frames, &[0, 2, 1]);
    let all = s.op("MatMul", &[&frames, &turned]);
    let all = s.op("MatMul", &[&all, &frames]);
    let model = s.model(17, &[&x, &all]);
    let why = of_branch(&model, &found(&model));
    assert!(
        why.iter().any(|w| w.contains("MatMul mixes tokens")),
        "{why:?}"
    );
}

/// Tokens that are summed by a softmax of each, `[batch, 1, hidden]`.
fn pooled(s: &mut Sketch, y: &str, keys: &str) -> String {
    let query = s.weights(&[HIDDEN, 1]);
    let scores = s.op("MatMul", &[keys, &query]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(1))]);
    let weights = s.transpose(&weights, &[0, 2, 1]);
    s.op("MatMul", &[&weights, y])
}

#[test]
fn tokens_that_carry_a_position_may_be_pooled_and_weights_of_a_position_may_not() {
    let placed = |s: &mut Sketch, x: &str| {
        let at = s.range();
        let table = s.weights(&[40, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        s.op("Add", &[x, &rows])
    };
    let of = |weigh: &dyn Fn(&mut Sketch, &str) -> String| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = placed(&mut s, &x);
        let y = s.attends(&x, &x);
        let keys = weigh(&mut s, &y);
        let y = pooled(&mut s, &y, &keys);
        let model = s.model(23, &[&y]);
        of_branch(&model, &found(&model))
    };
    assert_eq!(of(&|_, y| y.to_owned()), [""; 0]);
    let added = of(&placed);
    assert!(added[0].contains("MatMul mixes tokens"), "{added:?}");
    let rotated = of(&|s, y| {
        let angles = angles(s);
        let angles = s.unsqueeze(&angles, &[0]);
        let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
        let heads = [("num_heads", A::Int(HEADS as i64))];
        s.with("RotaryEmbedding", &[y, &cos, &sin], &heads)
    });
    assert!(rotated[0].contains("MatMul mixes tokens"), "{rotated:?}");
}

#[test]
fn pixels_that_are_put_into_patches_beside_ids_are_no_setting() {
    let unread = |dims: &[i64]| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = s.attends(&x, &x);
        let picture = s.input("picture", DType::F32, &["batch", "64"]);
        let patches = s.reshape(&picture, dims);
        let all = s.op("Softmax", &[&patches]);
        let turned = s.transpose(&all, &[0, 2, 1]);
        let all = s.op("MatMul", &[&all, &turned]);
        let all = s.op("MatMul", &[&all, &patches]);
        let model = s.model(17, &[&x, &all]);
        of_branch(&model, &found(&model))
    };
    assert_eq!(unread(&[0, 1, 64]), [""; 0]);
    let why = unread(&[0, 4, 16]);
    assert!(why[0].contains("mixes tokens"), "{why:?}");
}

#[test]
fn attention_over_tokens_that_content_chose_is_left_out() {
    let misplaced = |half: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = s.attends(&x, &x);
        let w = s.weights(&[HIDDEN, 1]);
        let shares = s.op("MatMul", &[&x, &w]);
        let shares = s.reshape(&shares, &[0, -1]);
        let count = match half {
            true => {
                let (shape, one, two) = (s.op("Shape", &[&x]), s.ints(&[1]), s.ints(&[2]));
                let length = s.gather(&shape, &one, 0);
                s.op("Div", &[&length, &two])
            }
            false => s.ints(&[4]),
        };
        let best = s.many("TopK", &[&shares, &count], &[("axis", A::Int(1))], 2);
        let at = s.unsqueeze(&best[1], &[2]);
        let row = s.ints(&[1, 1, HIDDEN as i64]);
        let at = s.op("Expand", &[&at, &row]);
        let x = s.with("GatherElements", &[&x, &at], &[("axis", A::Int(1))]);
        let y = s.attends(&x, &x);
        let found = found(&s.model(17, &[&y]));
        (found.attention.len(), found.misplaced)
    };
    let (sites, why) = misplaced(true);
    assert_eq!(sites, 1);
    assert!(
        matches!(&why[..], [why] if why.contains("content chooses how many")),
        "{why:?}"
    );
    assert_eq!(misplaced(false), (2, vec![]));
}

/// What an expert does.
type Expert = fn(&mut Sketch, &Routed) -> String;

/// The tokens that a gate sends to an expert.
struct Routed {
    /// The tokens, `[token, feature]`.
    rows: String,
    /// Their places among all, `[token]`.
    places: String,
}

/// A layer whose tokens go to one of two experts each, and what these give is added up in their places.
fn routed(s: &mut Sketch, y: &str, expert: Expert) -> String {
    let shape = s.op("Shape", &[y]);
    let all = s.reshape(y, &[-1, HIDDEN as i64]);
    let w = s.weights(&[HIDDEN, 2]);
    let gates = s.op("MatMul", &[&all, &w]);
    let gates = s.transpose(&gates, &[1, 0]);
    let zeros = s.op("Sub", &[&all, &all]);
    let mut sum = zeros;
    for at in 0..2 {
        let (row, zero) = (s.ints(&[at]), s.float(0.0));
        let gate = s.gather(&gates, &row, 0);
        let mask = s.op("Greater", &[&gate, &zero]);
        let found = s.op("NonZero", &[&mask]);
        let found = s.transpose(&found, &[1, 0]);
        let column = s.int(1);
        let places = s.gather(&found, &column, 1);
        let rows = s.gather(&all, &places, 0);
        // The gate of each, out of the gates in another order of axes.
        let (first, count, flat) = (s.int(0), s.int(2), s.ints(&[-1]));
        let row = s.gather(&found, &first, 1);
        let index = s.op("Mul", &[&places, &count]);
        let index = s.op("Add", &[&row, &index]);
        let turned = s.transpose(&gates, &[1, 0]);
        let weights = s.op("Reshape", &[&turned, &flat]);
        let weights = s.gather(&weights, &index, 0);
        let weights = s.unsqueeze(&weights, &[1]);
        let rows = s.op("Mul", &[&rows, &weights]);
        let given = expert(
            s,
            &Routed {
                rows,
                places: places.clone(),
            },
        );
        let places = s.unsqueeze(&places, &[1]);
        let like = s.op("Shape", &[&given]);
        let places = s.op("Expand", &[&places, &like]);
        let named = [("axis", A::Int(0)), ("reduction", A::Text("add"))];
        sum = s.with("ScatterElements", &[&sum, &places, &given], &named);
    }
    s.op("Reshape", &[&sum, &shape])
}

#[test]
fn rows_that_are_put_into_zeros_stay_apart() {
    // The rows of an expert are added to those that are there.
    let added = |from: fn(&mut Sketch, &str) -> String| {
        unread(move |s, y| {
            let at = places(s, y);
            let some = s.op("GatherND", &[y, &at]);
            let start = from(s, y);
            let before = s.op("GatherND", &[&start, &at]);
            let sum = s.op("Add", &[&before, &some]);
            s.op("ScatterND", &[&start, &at, &sum])
        })
    };
    let zeros = added(|s, y| {
        let shape = s.op("Shape", &[y]);
        s.op("ConstantOfShape", &[&shape])
    });
    assert_eq!(zeros, [""; 0]);
    let table = added(|s, y| {
        let (table, shape) = (s.weights(&[HIDDEN]), s.op("Shape", &[y]));
        s.op("Expand", &[&table, &shape])
    });
    assert!(!table.is_empty(), "numbers of its place");
}

#[test]
fn experts_of_single_tokens_mix_none() {
    let why = unread(|s, y| {
        routed(s, y, |s, routed| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            s.op("MatMul", &[&routed.rows, &w])
        })
    });
    assert_eq!(why, [""; 0]);
}

#[test]
fn experts_that_mix_tokens_or_are_told_their_places_are_unread() {
    let experts: [(&str, Expert); 3] = [
        ("a row of a table for each place", |s, routed| {
            let table = s.weights(&[64, HIDDEN]);
            let own = s.gather(&table, &routed.places, 0);
            s.op("Add", &[&routed.rows, &own])
        }),
        ("the place as a number", |s, routed| {
            let place = s.cast(&routed.places, DType::F32);
            let place = s.unsqueeze(&place, &[1]);
            s.op("Mul", &[&routed.rows, &place])
        }),
        ("the token before", |s, routed| {
            let (ends, shape) = (s.ints(&[1, 0, -1, 0]), s.op("Shape", &[&routed.rows]));
            let before = s.op("Pad", &[&routed.rows, &ends]);
            let before = s.op("Reshape", &[&before, &shape]);
            s.op("Add", &[&routed.rows, &before])
        }),
    ];
    for (name, expert) in experts {
        let why = unread(|s, y| routed(s, y, expert));
        assert!(!why.is_empty(), "{name}");
    }
}
