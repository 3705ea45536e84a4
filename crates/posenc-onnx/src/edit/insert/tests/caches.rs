//! Keys and values of earlier tokens.

use posenc_ir::Tensor;
use posenc_runtime::{Backend, ModelSource, Options};

use super::*;
use crate::prove::testing::Evaluator;

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
    fn twice(s: &mut Sketch, x: &str, side: Side) -> String {
        let joined = cached(s, x, side);
        if side == Side::Key {
            let new = s.slice(&joined, 2, [0, i64::MAX, 1]);
            let elsewhere = s.concat(&["past_key_values.0.key", &new], 2);
            s.output(&elsewhere);
        }
        joined
    }
    fn scaled(s: &mut Sketch, x: &str, side: Side) -> String {
        let joined = twice(s, x, side);
        let factor = s.weights(&[1]);
        s.op("Mul", &[&joined, &factor])
    }
    for head in [twice as fn(&mut Sketch, &str, Side) -> String, scaled] {
        let form = Form {
            head,
            value: cached_values,
            ..Form::default()
        };
        let why = swapped(&form.model(), &to(Kind::Rope)).unwrap_err();
        assert!(why.contains("where attention does not read them"), "{why}");
    }
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

/// Two layers whose caches have these names for their numbers of tokens.
fn layers(pasts: [&str; 2]) -> Model {
    kept(pasts, [Cut::Never; 2])
}

/// Where a cache is cut to its last tokens.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Never,
    /// Before the new ones join them.
    Before,
    /// For the next step.
    After,
}

/// The same, of which some are cut.
fn kept(pasts: [&str; 2], cuts: [Cut; 2]) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for (layer, past) in pasts.into_iter().enumerate() {
        let (heads, size) = (HEADS.to_string(), SIZE.to_string());
        let dims = ["batch", &*heads, past, &*size];
        let q = s.headed(&x);
        let [k, v] = ["key", "value"].map(|kind| {
            let cache = s.input(
                &format!("past_key_values.{layer}.{kind}"),
                DType::F32,
                &dims,
            );
            let new = s.headed(&x);
            let last = |s: &mut Sketch, all: &str| s.slice(all, 2, [-100, i64::MAX, 1]);
            let earlier = match cuts[layer] {
                Cut::Before => last(&mut s, &cache),
                _ => cache,
            };
            let all = s.concat(&[&earlier, &new], 2);
            let next = match cuts[layer] {
                Cut::After => last(&mut s, &all),
                _ => s.op("Identity", &[&all]),
            };
            s.output(&next);
            all
        });
        let y = s.weighted(&q, &k, &v);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

/// Runs two new tokens after so many in the cache of each layer.
fn run_after(model: &Model, pasts: [usize; 2]) -> bool {
    let bytes = model.to_bytes().unwrap();
    let source = ModelSource::Bytes {
        model: &bytes,
        folder: None,
    };
    let mut session = Evaluator::default()
        .load(source, &Options::default())
        .unwrap();
    let mut feeds = vec![("input_ids".to_owned(), Tensor::from_i64(&[1, 2], &[3, 4]))];
    for (layer, past) in pasts.into_iter().enumerate() {
        for kind in ["key", "value"] {
            let dims = [1, HEADS, past, SIZE];
            let numbers: Vec<f64> = (0..HEADS * past * SIZE).map(|i| (i as f64).sin()).collect();
            let cache = Tensor::from_f64(DType::F32, &dims, &numbers);
            feeds.push((format!("past_key_values.{layer}.{kind}"), cache));
        }
    }
    let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    session.run(&feeds, &[]).is_ok()
}

#[test]
fn caches_of_lengths_of_their_own_get_biases_of_their_own() {
    let ranges = |model: &Model| added(model).iter().filter(|op| **op == "Range").count();
    let [same, own] = [["past", "past"], ["short", "long"]].map(layers);
    for kind in [Kind::Alibi, Kind::T5Bias] {
        let [same, own] = [&same, &own].map(|model| swapped(model, &to(kind)).unwrap());
        assert_eq!(ranges(&own), 2 * ranges(&same), "{kind}");
        assert!(run_after(&own, [3, 5]) && run_after(&own, [5, 5]), "{kind}");
        assert!(
            !run_after(&same, [3, 5]) && run_after(&same, [5, 5]),
            "{kind}"
        );
    }
}

#[test]
fn a_cache_that_keeps_all_tokens_counts_them_for_layers_whose_caches_do_not() {
    let counted = |cuts: [Cut; 2]| {
        let model = swapped(&kept(["a", "b"], cuts), &to(Kind::Rope))?;
        let graph = model.graph();
        let new = graph
            .nodes()
            .filter(|(_, node)| node.name().starts_with("posenc"));
        let shapes = new.filter(|(_, node)| node.is("Shape"));
        let read = shapes.filter_map(|(_, node)| Some(graph.name(node.input(0)?)));
        let caches = read.filter(|name| name.starts_with("past_key_values"));
        Ok::<_, String>(caches.map(str::to_owned).collect::<Vec<_>>())
    };
    let [first, second] = [0, 1].map(|layer| vec![format!("past_key_values.{layer}.key")]);
    for cut in [Cut::Before, Cut::After] {
        assert_eq!(counted([cut, Cut::Never]), Ok(second.clone()));
        assert_eq!(counted([Cut::Never, cut]), Ok(first.clone()));
        let why = counted([cut; 2]).expect_err("no cache counts");
        assert!(why.contains("keeps the last tokens alone"), "{why}");
    }
}
