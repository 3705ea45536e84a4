//! Roles of inputs whose names say nothing.

mod places;

use super::{Lengths, Ports, Role};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use posenc_ir::DType::{self, Bool, F32, I64};

const IDS: &[&str] = &["batch", "sequence"];

/// The role of the input `x`, beside ids that attention reads.
fn role(dtype: DType, dims: &[&str], reads: impl Fn(&mut Sketch) -> String) -> Role {
    let mut s = Sketch::default();
    s.embedded();
    s.input("x", dtype, dims);
    let y = reads(&mut s);
    let model = s.model(17, &[&y]);
    let ports = Ports::of(model.graph(), &Default::default());
    let mut ports = ports.iter();
    let port = ports.find(|port| model.graph().name(port.value) == "x");
    port.expect("it is an input").role
}

/// Attention of ids with something done to its scores `[batch, heads, sequence, keys]`.
fn attention(s: &mut Sketch, change: impl Fn(&mut Sketch, &str) -> String) -> String {
    let table = s.weights(&[30, HIDDEN]);
    let x = s.gather(&table, "input_ids", 0);
    let [scores, v] = s.scored(&x, &x);
    let scores = change(s, &scores);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

/// Queries, and perhaps keys, with each element multiplied by rows of so many tables that `x` picks.
fn scaled(s: &mut Sketch, tables: usize, keys: bool) -> String {
    let ids = s.weights(&[30, HIDDEN]);
    let x = s.gather(&ids, "input_ids", 0);
    let [mut q, mut k] = [0; 2].map(|_| s.headed(&x));
    for _ in 0..tables {
        let table = s.weights(&[64, SIZE]);
        let rows = s.gather(&table, "x", 0);
        let rows = s.unsqueeze(&rows, &[1]);
        q = s.op("Mul", &[&rows, &q]);
        if keys {
            k = s.op("Mul", &[&rows, &k]);
        }
    }
    s.op("Add", &[&q, &k])
}

#[test]
fn what_reaches_scores_is_a_mask() {
    let added = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let x = s.cast("x", F32);
            let one = s.float(1.0);
            let far = s.float(-1e4);
            let hidden = s.op("Sub", &[&one, &x]);
            let hidden = s.op("Mul", &[&hidden, &far]);
            let hidden = s.unsqueeze(&hidden, &[1, 2]);
            s.op("Add", &[scores, &hidden])
        })
    };
    assert_eq!(role(I64, IDS, added), Role::Padding);
    assert_eq!(role(F32, IDS, added), Role::Padding);
    let chosen = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let x = s.unsqueeze("x", &[1, 2]);
            let far = s.float(-1e4);
            s.op("Where", &[&x, scores, &far])
        })
    };
    assert_eq!(role(Bool, IDS, chosen), Role::Padding);
}

#[test]
fn what_reaches_scores_by_another_way_is_none() {
    // Of more axes, it may be a bias by position.
    let bias = |s: &mut Sketch| attention(s, |s, scores| s.op("Add", &[scores, "x"]));
    let heads = HEADS.to_string();
    let dims = ["batch", &heads, "sequence", "sequence"];
    assert_eq!(role(F32, &dims, bias), Role::Content);
    // Slopes and distances of positions.
    let sloped = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let x = s.cast("x", F32);
            let x = s.unsqueeze(&x, &[1, 2]);
            let slope = s.float(-0.25);
            let x = s.op("Mul", &[&x, &slope]);
            s.op("Add", &[scores, &x])
        })
    };
    assert_eq!(role(I64, IDS, sloped), Role::Content);
    let compared = |op: &'static str| {
        move |s: &mut Sketch| {
            attention(s, |s, scores| {
                let [rows, columns] = [2, 1].map(|axis| s.unsqueeze("x", &[1, axis + 1]));
                let hidden = s.op(op, &[&columns, &rows]);
                let hidden = s.cast(&hidden, DType::Bool);
                let far = s.float(-1e4);
                s.op("Where", &[&hidden, &far, scores])
            })
        }
    };
    for op in ["Sub", "Greater", "Equal"] {
        assert_eq!(role(I64, IDS, compared(op)), Role::Content, "{op}");
    }
    // A projection is between.
    let projected = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let x = s.cast("x", F32);
            let x = s.unsqueeze(&x, &[-1]);
            let w = s.weights(&[1, 1]);
            let x = s.op("MatMul", &[&x, &w]);
            let x = s.unsqueeze(&x, &[1]);
            s.op("Add", &[scores, &x])
        })
    };
    assert_eq!(role(I64, IDS, projected), Role::Content);
    // Only its sizes.
    let sizes = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let sizes = s.op("Shape", &["x"]);
            let sizes = s.cast(&sizes, F32);
            let size = s.slice(&sizes, 0, [1, 2, 1]);
            s.op("Div", &[scores, &size])
        })
    };
    assert_eq!(role(I64, IDS, sizes), Role::Content);
    // Only outputs.
    let pooled = |s: &mut Sketch| {
        let y = attention(s, |_, scores| scores.to_owned());
        let x = s.cast("x", F32);
        let x = s.unsqueeze(&x, &[-1]);
        s.op("Mul", &[&y, &x])
    };
    assert_eq!(role(I64, IDS, pooled), Role::Content);
}

#[test]
fn slots_of_operators_tell_what_an_input_is() {
    let fused = |op: &'static str, slot: usize| {
        move |s: &mut Sketch| {
            let x = s.weights(&[64, 3, 8]);
            let inputs: Vec<&str> = (0..10).map(|i| if i == slot { "x" } else { &x }).collect();
            s.op(op, &inputs)
        }
    };
    for (op, slot, want) in [
        ("ms.RotaryEmbedding", 1, Role::Positions),
        ("ms.RotaryEmbedding", 2, Role::Content),
        ("RotaryEmbedding", 3, Role::Positions),
        ("RotaryEmbedding", 1, Role::Content),
        ("ms.GroupQueryAttention", 9, Role::Positions),
        ("ms.GroupQueryAttention", 5, Role::Counts),
        ("ms.GroupQueryAttention", 6, Role::Counts),
        ("ms.GroupQueryAttention", 7, Role::Content),
        ("Attention", 6, Role::Counts),
        ("ms.EmbedLayerNormalization", 0, Role::Tokens),
        ("ms.EmbedLayerNormalization", 7, Role::Padding),
        ("ms.EmbedLayerNormalization", 8, Role::Positions),
        ("ms.MultiHeadAttention", 4, Role::Padding),
        ("ms.MultiHeadAttention", 3, Role::Content),
        ("ms.Attention", 3, Role::Padding),
        ("ms.Attention", 2, Role::Content),
        ("Attention", 3, Role::Padding),
        ("Attention", 2, Role::Content),
    ] {
        assert_eq!(role(I64, IDS, fused(op, slot)), want, "{op} {slot}");
    }
    let dims = ["batch", "2", "past", "4"];
    for (op, slot, want) in [
        ("ms.GroupQueryAttention", 3, Role::Past),
        ("ms.GroupQueryAttention", 2, Role::Content),
        ("ms.MultiHeadAttention", 7, Role::Past),
        ("ms.MultiHeadAttention", 5, Role::Content),
        ("Attention", 4, Role::Past),
        ("Attention", 3, Role::Content),
    ] {
        assert_eq!(role(F32, &dims, fused(op, slot)), want, "{op} {slot}");
    }
    let counted = |s: &mut Sketch| {
        let axis = s.ints(&[1]);
        let lengths = s.op("ReduceSum", &["x", &axis]);
        let x = s.weights(&[2, 3, 8]);
        s.op("ms.GroupQueryAttention", &[&x, &x, &x, &x, &x, &lengths])
    };
    assert_eq!(role(I64, IDS, counted), Role::Padding);
}

#[test]
fn floats_of_two_axes_that_divide_scores_or_are_of_pairs_are_no_mask() {
    let divides = |s: &mut Sketch| {
        attention(s, |s, scores| {
            let x = s.unsqueeze("x", &[1, 2]);
            s.op("Div", &[scores, &x])
        })
    };
    assert_eq!(role(F32, IDS, divides), Role::Content);
    let added = |s: &mut Sketch| attention(s, |s, scores| s.op("Add", &[scores, "x"]));
    assert_eq!(role(F32, &["sequence", "sequence"], added), Role::Content);
    assert_eq!(role(F32, &["batch", "1"], added), Role::Content);
    // A slope may be in it.
    assert_eq!(role(F32, &["batch", "total"], added), Role::Content);
}

#[test]
fn what_scales_queries_is_picked_by_positions() {
    assert_eq!(role(I64, IDS, |s| scaled(s, 2, true)), Role::Positions);
    assert_eq!(role(I64, &["batch"], |s| scaled(s, 2, true)), Role::Tokens);
    assert_eq!(
        role(I64, IDS, |s| scaled(s, 2, false)),
        Role::Tokens,
        "a gate"
    );
    assert_eq!(
        role(I64, IDS, |s| scaled(s, 1, true)),
        Role::Tokens,
        "a gate of both"
    );
    let added = |s: &mut Sketch| {
        let table = s.weights(&[64, HIDDEN]);
        let rows = s.gather(&table, "x", 0);
        let ids = s.weights(&[30, HIDDEN]);
        let x = s.gather(&ids, "input_ids", 0);
        s.op("Add", &[&rows, &x])
    };
    assert_eq!(role(I64, IDS, added), Role::Tokens);
    let scaled_by_a_mask = |s: &mut Sketch| {
        let table = s.weights(&[64, HIDDEN]);
        let rows = s.gather(&table, "x", 0);
        let kept = s.input("kept", F32, &["batch", "sequence", "1"]);
        s.op("Mul", &[&rows, &kept])
    };
    assert_eq!(role(I64, IDS, scaled_by_a_mask), Role::Tokens);
    let types = |s: &mut Sketch| {
        let table = s.weights(&[2, HIDDEN]);
        s.gather(&table, "x", 0)
    };
    assert_eq!(role(I64, IDS, types), Role::TokenTypes);
}

/// The input that is said to be unclear of `ids` and of another one, of which each picks rows of its own table, or of
/// the same one.
fn unclear(names: [&str; 2], dims: &[&str], rows: Option<usize>) -> Vec<String> {
    let mut s = Sketch::default();
    let [ids, other] = names;
    let (ids, other) = (s.input(ids, I64, IDS), s.input(other, I64, dims));
    let table = s.weights(&[99, HIDDEN]);
    let own = rows.map_or(table.clone(), |n| s.weights(&[n, HIDDEN]));
    let [a, b] = [(&table, &ids), (&own, &other)].map(|(table, ids)| s.gather(table, ids, 0));
    let y = s.op("Add", &[&a, &b]);
    let model = s.model(17, &[&y]);
    let ports = Ports::of(model.graph(), &Default::default());
    let input = |why: &String| {
        let said = why.split("the input ").nth(1)?.split(' ').next()?;
        Some(said.to_owned())
    };
    ports.unclear().iter().filter_map(input).collect()
}

#[test]
fn rows_of_a_table_of_its_own_may_be_those_of_positions() {
    let own = |other, rows| unclear(["input_ids", other], IDS, rows);
    assert_eq!(own("x", Some(512)), ["x"]);
    assert_eq!(unclear(["a", "b"], IDS, Some(512)), ["a", "b"]);
    let one = |dims: &[&str]| unclear(["input_ids", "x"], dims, Some(512));
    assert_eq!(one(&["1", "sequence"]), ["x"]);
    assert_eq!(one(&["sequence"]), ["x"]);
    assert_eq!(one(&["batch"]), [""; 0], "one for each sequence");
    assert_eq!(own("position_ids", Some(512)), [""; 0]);
    assert_eq!(own("lang_ids", Some(512)), [""; 0]);
    assert_eq!(own("hour", Some(24)), [""; 0], "too few for positions");
    assert_eq!(own("x", Some(2)), [""; 0], "types");
    assert_eq!(own("x", None), [""; 0], "another sequence");
}

/// The lengths of a mask behind ids of an encoder, with 8 tokens of the decoder and `past` before them: the symbol of
/// the mask, and whether keys are cached.
fn masked([first, second]: [&str; 2], symbol: &str, is_cached: bool) -> [usize; 2] {
    let mut s = Sketch::default();
    let ids = s.input(first, I64, &["a", "b"]);
    let mask = s.input("attention_mask", I64, &["c", symbol]);
    let others = s.input(second, I64, &["e", "f"]);
    let later = s.input("decoder_attention_mask", I64, &["g", "h"]);
    if is_cached {
        s.input(
            "past_key_values.0.key",
            DType::F32,
            &["e", "2", "past", "4"],
        );
    }
    let table = s.weights(&[99, HIDDEN]);
    let [a, b] = [&ids, &others].map(|ids| s.gather(&table, ids, 0));
    let model = s.model(17, &[&a, &b]);
    let ports = Ports::of(model.graph(), &Default::default());
    let at = Lengths {
        batch: 2,
        sequence: 8,
        past: if is_cached { 5 } else { 0 },
    };
    let of = |name: &str| {
        let graph = model.graph();
        let port = ports.iter().find(|port| graph.name(port.value) == name);
        ports.dims(port.unwrap(), at)[1]
    };
    [of(&mask), of(&later)]
}

#[test]
fn a_mask_is_as_long_as_the_ids_before_it() {
    let names = ["input_ids", "decoder_input_ids"];
    assert_eq!(masked(names, "d", false), [9, 8]);
    assert_eq!(masked(names, "b", false), [9, 8], "one symbol for both");
    assert_eq!(masked(names, "f", false), [8, 8], "that of the decoder");
    assert_eq!(masked(names, "d", true), [13, 13], "cached tokens count");
}

#[test]
fn rows_of_a_small_table_are_of_types_beside_ids_alone() {
    let role = |name: &str, beside: bool| {
        let mut s = Sketch::default();
        let x = s.input(name, I64, IDS);
        let table = s.weights(&[4, HIDDEN]);
        let mut y = s.gather(&table, &x, 0);
        if beside {
            let words = s.embedded();
            y = s.op("Add", &[&y, &words]);
        }
        let model = s.model(17, &[&y]);
        let ports = Ports::of(model.graph(), &Default::default());
        ports.iter().next().map(|port| port.role)
    };
    assert_eq!(role("x", true), Some(Role::TokenTypes));
    assert_eq!(role("x", false), Some(Role::Tokens));
    assert_eq!(role("token_type_ids", false), Some(Role::TokenTypes));
}

#[test]
fn a_cache_is_what_new_rows_are_appended_to() {
    let dims = ["batch", "2", "past", "4"];
    let joined = |s: &mut Sketch| {
        let new = s.weights(&[1, 2, 1, 4]);
        let past = s.transpose("x", &[0, 1, 2, 3]);
        s.concat(&[&past, &new], 2)
    };
    assert_eq!(role(F32, &dims, joined), Role::Past);
    let prepended = |s: &mut Sketch| {
        let new = s.weights(&[1, 2, 1, 4]);
        s.concat(&[&new, "x"], 2)
    };
    assert_eq!(role(F32, &dims, prepended), Role::Content);
    let also_read = |s: &mut Sketch| {
        let new = s.weights(&[1, 2, 1, 4]);
        let negated = s.op("Neg", &["x"]);
        let joined = s.concat(&["x", &new], 2);
        s.op("Add", &[&joined, &negated])
    };
    assert_eq!(role(F32, &dims, also_read), Role::Content);
    let written = |s: &mut Sketch, are_keys: bool| {
        let at = s.ints(&[0]);
        let [new, w] = [[1, 2, 1, 4], [1, 1, 4, 4]].map(|dims| s.weights(&dims));
        let new = match are_keys {
            true => s.op("MatMul", &[&new, &w]),
            false => new,
        };
        s.op("ScatterND", &["x", &at, &new])
    };
    assert_eq!(role(F32, &dims, |s| written(s, true)), Role::Past);
    assert_eq!(role(F32, &dims, |s| written(s, false)), Role::Content);
    let written_and_read = |s: &mut Sketch| {
        let negated = s.op("Neg", &["x"]);
        let written = written(s, true);
        s.op("Add", &[&written, &negated])
    };
    assert_eq!(role(F32, &dims, written_and_read), Role::Content);
}

/// Sequences of features of three axes.
const FEATURES: &[&str] = &["batch", "time", "8"];

#[test]
fn features_that_are_joined_with_features_are_no_cache() {
    let joined = |s: &mut Sketch, makes: bool, name: &str| {
        let more = s.input("more", F32, FEATURES);
        let w = s.weights(&[8, 8]);
        let more = match makes {
            true => s.op("MatMul", &[&more, &w]),
            false => more,
        };
        let both = s.concat(&[name, &more], 1);
        let w = s.weights(&[8, 8]);
        s.op("MatMul", &[&both, &w])
    };
    assert_eq!(
        role(F32, FEATURES, |s| joined(s, false, "x")),
        Role::Content
    );
    assert_eq!(role(F32, FEATURES, |s| joined(s, true, "x")), Role::Past);
    let named = |makes: bool| {
        let mut s = Sketch::default();
        s.embedded();
        s.input("past_x", F32, FEATURES);
        let y = joined(&mut s, makes, "past_x");
        let model = s.model(17, &[&y]);
        let ports = Ports::of(model.graph(), &Default::default());
        let port = ports
            .iter()
            .find(|port| model.graph().name(port.value) == "past_x");
        port.map(|port| port.role)
    };
    assert_eq!(named(false), Some(Role::Content));
    assert_eq!(named(true), Some(Role::Past), "new features join it");
}

#[test]
fn one_number_for_each_image_is_no_position_and_no_token() {
    let ports = |steps: &str, classes: &str, name: &str, images: &[&str]| {
        let mut s = Sketch::default();
        let x = s.input("hidden_states", F32, images);
        let [step, class] = [(name, steps), ("class_labels", classes)]
            .map(|(name, dim)| s.input(name, I64, &[dim]));
        let step = s.cast(&step, F32);
        let step = s.op("Sin", &[&step]);
        let table = s.weights(&[10, 8]);
        let class = s.gather(&table, &class, 0);
        let model = s.model(17, &[&x, &step, &class]);
        let ports = Ports::of(model.graph(), &Default::default());
        let role = ports.iter().nth(1).map(|port| port.role);
        (role, ports.fixed_sequence(), ports.has_free_content())
    };
    let image = |batch| [batch, "4", "16", "16"];
    let content = Some(Role::Content);
    assert_eq!(ports("1", "1", "t", &image("1")), (content, None, false));
    let open = ports("batch", "batch", "t", &image("batch"));
    assert_eq!(open.0, content);
    // Controls: as many numbers as tokens, and a name of the field.
    let tokens = ports("sequence", "1", "t", &["batch", "sequence", "8"]);
    assert_eq!(tokens.0, Some(Role::Positions));
    let named = ports("1", "1", "position_ids", &image("1"));
    assert_eq!(named.0, Some(Role::Positions));
    let latents = ports("1", "1", "t", &["1", "sequence", "8"]);
    assert_eq!(latents.0, content);
    let sound = ports("batch", "batch", "t", &["batch", "samples"]);
    assert_eq!(sound.0, content);
    let flat = ports("sequence", "1", "t", &["sequence", "8"]);
    assert_eq!(flat.0, Some(Role::Positions), "features without a batch");
}

#[test]
fn coordinates_of_tokens_are_before_the_batch_or_last() {
    let axis = |dims: &[&str]| {
        let mut s = Sketch::default();
        let x = s.embedded();
        s.input("position_ids", I64, dims);
        let y = s.op("Neg", &["position_ids"]);
        let model = s.model(17, &[&x, &y]);
        let ports = Ports::of(model.graph(), &Default::default());
        let mut all = ports.iter();
        let port = all.find(|port| model.graph().name(port.value) == "position_ids");
        ports.position_axis(port.expect("it is an input"))
    };
    assert_eq!(axis(&["batch", "sequence"]), 1);
    assert_eq!(axis(&["sequence", "batch"]), 0);
    assert_eq!(axis(&["3", "batch", "sequence"]), 2);
    assert_eq!(axis(&["batch", "sequence", "2"]), 1);
    assert_eq!(axis(&["batch", "others", "2"]), 2, "not those of the ids");
}

#[test]
fn caches_of_a_window_are_as_long_and_unfilled_by_fewer_tokens() {
    let unfilled = |wraps: i64, size: &str, tokens: usize| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let past = s.input("past", F32, &["batch", "2", size, "4"]);
        let attrs = [
            ("local_window_size", A::Int(8)),
            ("sliding_window_cache", A::Int(wraps)),
        ];
        let inputs = [x.as_str(), &x, &x, &past];
        let y = s.with("ms.GroupQueryAttention", &inputs, &attrs);
        let model = s.model(17, &[&y]);
        let ports = Ports::of(model.graph(), &Default::default());
        let at = Lengths {
            batch: 2,
            sequence: tokens,
            past: 0,
        };
        let port = ports.iter().find(|port| port.role == Role::Past);
        let length = ports.dims(port.expect("it is a cache"), at)[2];
        (length, ports.unfilled(model.graph(), at).count())
    };
    assert_eq!(unfilled(1, "past", 5), (8, 1));
    assert_eq!(unfilled(1, "past", 8), (8, 0));
    assert_eq!(unfilled(1, "16", 8), (16, 1), "a declared size");
    assert_eq!(unfilled(0, "past", 5), (0, 0));
}
