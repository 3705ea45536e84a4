//! Keys and values of earlier tokens.

use super::*;

/// Keys, joined to those of a cache.
fn cached(s: &mut Sketch, x: &str, side: Side) -> String {
    let x = heads(s, x);
    if side == Side::Query {
        return x;
    }
    let (heads, size) = (HEADS.to_string(), SIZE.to_string());
    let dims = ["batch", &*heads, "past", &*size];
    let past = s.input("past_key_values.0.key", DType::F32, &dims);
    s.concat(&[&past, &x], 2)
}

/// Values, joined to those of a cache.
fn cached_values(s: &mut Sketch, x: &str, _: &str) -> String {
    let v = projected(s, x);
    let v = heads(s, &v);
    let (heads, size) = (HEADS.to_string(), SIZE.to_string());
    let dims = ["batch", &*heads, "past", &*size];
    let past = s.input("past_key_values.0.value", DType::F32, &dims);
    s.concat(&[&past, &v], 2)
}

#[test]
fn positions_of_new_tokens_follow_those_of_the_cache() {
    let form = Form {
        head: cached,
        value: cached_values,
        ..Form::default()
    };
    let model = form.model();
    let graph = model.graph();
    let join = |m: &Model| {
        let graph = m.graph();
        let join = graph.nodes().find(|(_, n)| n.is("Concat"));
        let value = join.unwrap().1.input(1).unwrap();
        graph.name(value).to_owned()
    };
    let before = join(&model);
    let rope = swapped(&model, &to(Kind::Rope)).unwrap();
    assert!(has(&rope, "Range"));
    // Keys are rotated before they join the cache.
    assert_ne!(join(&rope), before);
    let learned = swapped(&model, &to(Kind::Learned)).unwrap();
    assert!(has(&learned, "Gather") && has(&learned, "Range"));
    assert_eq!(join(&learned), before);
    let why = swapped(&model, &to(Kind::Conv)).unwrap_err();
    assert!(why.contains("a cache contains only"), "{why}");
    assert!(graph.nodes().count() < rope.graph().nodes().count());
}

#[test]
fn keys_that_join_a_cache_where_attention_does_not_read_them_are_refused() {
    let twice: fn(&mut Sketch, &str, Side) -> String = |s, x, side| {
        let joined = cached(s, x, side);
        if side == Side::Key {
            let new = s.slice(&joined, 2, [0, i64::MAX, 1]);
            let elsewhere = s.concat(&["past_key_values.0.key", &new], 2);
            s.output(&elsewhere);
        }
        joined
    };
    let form = Form {
        head: twice,
        value: cached_values,
        ..Form::default()
    };
    let why = swapped(&form.model(), &to(Kind::Rope)).unwrap_err();
    assert!(why.contains("where attention does not read them"), "{why}");
}

#[test]
fn unknown_forms_of_a_cache_are_refused() {
    let form = Form {
        head: |s, x, side| {
            let x = heads(s, x);
            if side == Side::Query {
                return x;
            }
            let (heads, size) = (HEADS.to_string(), SIZE.to_string());
            let dims = ["batch", &*heads, "14", &*size];
            let past = s.input("past_key_values.0.key", DType::F32, &dims);
            s.op("Add", &[&past, &x])
        },
        ..Form::default()
    };
    let why = swapped(&form.model(), &to(Kind::Rope)).unwrap_err();
    assert!(why.contains("earlier keys are joined"), "{why}");
}
