//! Caches of fixed size that new keys and values are written into.

use posenc_encodings::kind::Kind;

use super::*;
use crate::report::LimitCause;
use crate::request::Request;
use crate::rewrite::rewrite;

/// Slots of the caches.
const SLOTS: i64 = 40;

/// How new keys are written into a cache.
type Write = fn(&mut Sketch, [&str; 2]) -> String;

/// A layer with caches that new keys and values are written into at their positions, and a mask by the place of each
/// slot.
fn model(write: Write, is_causal: bool, rotates: [bool; 2]) -> Model {
    let mut s = Sketch::default();
    let dims = [
        "batch",
        &HEADS.to_string(),
        &SLOTS.to_string(),
        &SIZE.to_string(),
    ];
    for name in ["past_key_values.0.key", "past_key_values.0.value"] {
        s.input(name, DType::F32, &dims);
    }
    s.input("cache_position", DType::I64, &["sequence"]);
    let x = s.embedded();
    let turned = |s: &mut Sketch, x: &str| {
        let angles = angles_of(s, "cache_position");
        let (cos, sin) = waves(s, &angles);
        let other = swapped(s, x);
        mixed(s, x, &other, &cos, &sin)
    };
    let mut q = s.headed(&x);
    if rotates[0] {
        q = turned(&mut s, &q);
    }
    let [k, v] = ["past_key_values.0.key", "past_key_values.0.value"].map(|cache| {
        let mut new = s.headed(&x);
        if rotates[1] && cache.ends_with("key") {
            new = turned(&mut s, &new);
        }
        write(&mut s, [cache, &new])
    });
    let keys = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &keys]);
    let slots = s.ints(&(0..SLOTS).collect::<Vec<i64>>());
    let own = s.unsqueeze("cache_position", &[1]);
    let own = match is_causal {
        true => own,
        false => s.ints(&[SLOTS]),
    };
    let later = s.op("Greater", &[&slots, &own]);
    let y = s.masked([&scores, &v], &later);
    s.model(18, &[&y, &k, &v])
}

/// New keys at these slots, tokens first.
fn put(s: &mut Sketch, pair: [&str; 2], slots: &str) -> String {
    let [cache, new] = pair.map(|x| s.transpose(x, &[2, 0, 1, 3]));
    let at = s.unsqueeze(slots, &[1]);
    let all = s.op("ScatterND", &[&cache, &at, &new]);
    s.transpose(&all, &[1, 2, 0, 3])
}

/// Tokens first, as `index_put` writes them.
fn by_rows(s: &mut Sketch, pair: [&str; 2]) -> String {
    put(s, pair, "cache_position")
}

/// New keys at these slots along the axis of tokens, in place of what is there or as `reduction` says.
fn scattered(
    s: &mut Sketch,
    [cache, new]: [&str; 2],
    slots: &str,
    reduction: &'static str,
) -> String {
    let at = s.reshape(slots, &[1, 1, -1, 1]);
    let shape = s.op("Shape", &[new]);
    let at = s.op("Expand", &[&at, &shape]);
    let attrs = [("axis", A::Int(2)), ("reduction", A::Text(reduction))];
    s.with("ScatterElements", &[cache, &at, new], &attrs)
}

/// Along the axis of tokens, as `scatter` writes them.
fn by_elements(s: &mut Sketch, pair: [&str; 2]) -> String {
    scattered(s, pair, "cache_position", "none")
}

/// From the slot of the first token of each sequence on, as the standard operator writes them.
fn by_operator(s: &mut Sketch, [cache, new]: [&str; 2]) -> String {
    let first = s.slice("cache_position", 0, [0, 1, 1]);
    let shape = s.op("Shape", &[new]);
    let batch = s.slice(&shape, 0, [0, 1, 1]);
    let first = s.op("Expand", &[&first, &batch]);
    s.with(
        "TensorScatter",
        &[cache, new, &first],
        &[("axis", A::Int(2))],
    )
}

/// Between two parts of the cache, from the slot of the first token on. The slots behind it are lost, as many as are
/// new, or none.
fn between(s: &mut Sketch, [cache, new]: [&str; 2], is_lost: bool) -> String {
    let [zero, axis, all] = [0, 2, i64::MAX].map(|n| s.ints(&[n]));
    let first = s.slice("cache_position", 0, [0, 1, 1]);
    let shape = s.op("Shape", &[new]);
    let length = s.slice(&shape, 0, [2, 3, 1]);
    let behind = match is_lost {
        true => s.op("Add", &[&first, &length]),
        false => first.clone(),
    };
    let before = s.op("Slice", &[cache, &zero, &first, &axis]);
    let after = s.op("Slice", &[cache, &behind, &all, &axis]);
    s.concat(&[&before, new, &after], 2)
}

/// Between the slots before and behind them.
fn by_parts(s: &mut Sketch, pair: [&str; 2]) -> String {
    between(s, pair, true)
}

#[test]
fn a_mask_by_slots_is_causal_where_places_are_compared() {
    for write in [by_rows, by_elements, by_operator, by_parts] {
        for is_causal in [true, false] {
            let found = detect(&model(write, is_causal, [false; 2]), &Options::default());
            let [site] = &found.attention[..] else {
                panic!("{:?}", found.attention)
            };
            assert_eq!(
                (site.mask.causal, site.past, site.cross),
                (Some(is_causal), true, false)
            );
            let limits: Vec<_> = found.limits.iter().map(|l| (l.length, l.cause)).collect();
            assert_eq!(limits, [(SLOTS as usize, LimitCause::StaticShape)]);
        }
    }
}

/// How many sites rotate, and how many are refused, where queries and keys are rotated before keys are written.
fn rotating(write: Write, rotates: [bool; 2]) -> [usize; 2] {
    let found = detect(&model(write, true, rotates), &Options::default());
    [found.rotary.len(), found.not_rotary.len()]
}

#[test]
fn rotations_of_keys_are_read_before_they_are_written() {
    for write in [by_rows, by_elements, by_operator, by_parts] {
        assert_eq!(rotating(write, [true; 2]), [1, 0]);
        assert_eq!(rotating(write, [true, false]), [0, 1], "queries alone");
        assert_eq!(rotating(write, [false, true]), [0, 1], "keys alone");
        assert_eq!(rotating(write, [false; 2]), [0, 0]);
    }
}

/// Adds new keys to what is in the slots.
fn by_sums(s: &mut Sketch, pair: [&str; 2]) -> String {
    scattered(s, pair, "cache_position", "add")
}

/// Between all slots, which get more.
fn inserted(s: &mut Sketch, pair: [&str; 2]) -> String {
    between(s, pair, false)
}

/// Behind the newest slots: the first ones are lost, as many as are new.
fn rolled(s: &mut Sketch, [cache, new]: [&str; 2]) -> String {
    let [axis, all] = [2, i64::MAX].map(|n| s.ints(&[n]));
    let shape = s.op("Shape", &[new]);
    let length = s.slice(&shape, 0, [2, 3, 1]);
    let newest = s.op("Slice", &[cache, &length, &all, &axis]);
    s.concat(&[&newest, new], 2)
}

#[test]
fn keys_that_are_put_beside_others_are_not_written() {
    for write in [by_sums, inserted, rolled] {
        let found = detect(&model(write, true, [false; 2]), &Options::default());
        assert!(found.attention.iter().all(|site| site.buffer.is_none()));
    }
    let found = detect(&model(by_rows, true, [false; 2]), &Options::default());
    assert!(
        found.attention.iter().all(|site| site.buffer.is_some()),
        "control"
    );
}

#[test]
fn encodings_are_removed_beside_slots_and_none_is_put_between_queries_and_keys() {
    let swapped = |to: Kind| {
        let request = Request {
            to: Some(to),
            ..Request::default()
        };
        let done = rewrite(&mut model(by_rows, true, [true; 2]), &request);
        done.err().map(|why| why.to_string())
    };
    assert_eq!(swapped(Kind::None), None);
    for to in [Kind::Alibi, Kind::T5Bias, Kind::Shaw] {
        let why = swapped(to).unwrap_or_default();
        assert!(why.contains("written into slots of a cache"), "{to}: {why}");
    }
}

/// Rotates what was written by the slots.
fn turned_behind(s: &mut Sketch, pair: [&str; 2]) -> String {
    let all = by_elements(s, pair);
    if !pair[0].ends_with("key") {
        return all;
    }
    let slots = s.ints(&(0..SLOTS).collect::<Vec<i64>>());
    let angles = angles_of(s, &slots);
    let (cos, sin) = waves(s, &angles);
    let other = swapped(s, &all);
    mixed(s, &all, &other, &cos, &sin)
}

#[test]
fn keys_that_are_rotated_by_their_slots_are_named() {
    let found = detect(
        &model(turned_behind, true, [true, false]),
        &Options::default(),
    );
    let why: Vec<&str> = found.not_rotary.iter().map(|r| r.why.as_str()).collect();
    assert!(
        found.rotary.is_empty() && why.iter().any(|w| w.contains("by the slots")),
        "{why:?}"
    );
}

#[test]
fn a_cache_that_an_operator_reads_and_writes_with_the_same_slots_is_a_limit() {
    let limits = |past: &str, present: &str, attribute: &str| {
        let cache = |size: &str, name: &str| format!("float[batch, 3, {size}, 8] {name}");
        let ([pk, pv], [k, v]) = (
            ["past_key", "past_value"].map(|name| cache(past, name)),
            ["key", "value"].map(|name| cache(present, name)),
        );
        let text = format!(
            "<ir_version: 10, opset_import: [\"\" : 17, \"com.microsoft\" : 1]> \
             g (float[batch, sequence, 24] x, {pk}, {pv}, int32[batch] n, int32 total) \
             => (float[batch, sequence, 24] y, {k}, {v}) {{ \
             y, key, value = com.microsoft.GroupQueryAttention <num_heads = 3, kv_num_heads = 3{attribute}> \
             (x, x, x, past_key, past_value, n, total) }}"
        );
        let found = detect(&Model::parse(&text).unwrap(), &Options::default());
        assert_eq!(found.attention.len(), 1);
        let limits = found.limits.iter().map(|l| (l.length, l.cause));
        limits.collect::<Vec<_>>()
    };
    assert_eq!(limits("64", "64", ""), [(64, LimitCause::StaticShape)]);
    assert_eq!(limits("64", "65", ""), []);
    assert_eq!(limits("past", "all", ""), []);
    let window = ", local_window_size = 64, sliding_window_cache = 1";
    assert_eq!(limits("64", "64", window), []);
}
