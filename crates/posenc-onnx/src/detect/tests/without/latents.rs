//! Learned queries that read a sequence: what they gather stands for no tokens, and rows of their own
//! are no positions.

use super::*;

/// What so many learned queries read of tokens.
fn gathered(s: &mut Sketch, x: &str, count: usize) -> String {
    let points = expanded(s, x, count);
    let y = attending(s, &points, x, |_, scores| scores);
    forward(s, &y)
}

/// Removes every encoding.
fn removed(mut model: Model) -> Result<Model, String> {
    let none = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    match rewrite(&mut model, &none) {
        Ok(_) => Ok(model),
        Err(why) => Err(why.to_string()),
    }
}

#[test]
fn the_table_of_the_tokens_is_read_and_that_of_the_latents_is_none() {
    let model = drawn(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        let y = gathered(s, &x, 5);
        s.attends(&y, &y)
    });
    let read = found(&model);
    let crosses: Vec<bool> = read.attention.iter().map(|s| s.cross).collect();
    assert_eq!(crosses, [true, false]);
    assert_eq!(read.latent, [0, 1]);
    let [finding] = &read.findings[..] else {
        panic!("{:?}", read.findings)
    };
    assert_eq!(
        (finding.max_length, &finding.sites[..]),
        (Some(40), &[0][..])
    );
    let why = removed(model).unwrap_err();
    assert!(why.contains("learned queries alone"), "{why}");
}

#[test]
fn what_tokens_have_is_removed_and_the_latents_stay() {
    let model = drawn(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        let x = s.attends(&x, &x);
        let y = gathered(s, &x, 5);
        s.attends(&y, &y)
    });
    let bare = removed(model.clone()).unwrap();
    assert_eq!(kinds(&found(&bare)), []);
    let sums = |model: &Model| {
        let nodes = model.graph().nodes();
        nodes.filter(|(_, node)| node.is("Add")).count()
    };
    assert_eq!(sums(&model), sums(&bare) + 1);
}

#[test]
fn one_query_and_a_matrix_without_heads_are_no_attention() {
    without(0, |s| {
        let x = sequence(s);
        gathered(s, &x, 1)
    });
    // Features that are weighted over the tokens.
    without(0, |s| {
        let x = sequence(s);
        let w = s.weights(&[HIDDEN, 6]);
        let scores = s.op("MatMul", &[&x, &w]);
        let scores = s.transpose(&scores, &[0, 2, 1]);
        let weights = softmax(s, &scores, -1);
        s.op("MatMul", &[&weights, &x])
    });
    without(1, |s| {
        let x = sequence(s);
        gathered(s, &x, 6)
    });
}

/// A learned query for each token of `x`.
fn of_each_token(s: &mut Sketch, x: &str) -> String {
    let shape = s.op("Shape", &[x]);
    let (zero, one) = (s.int(0), s.int(1));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let table = s.weights(&[40, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    s.unsqueeze(&rows, &[0])
}

#[test]
fn as_many_learned_queries_as_tokens_stand_for_places() {
    let why = removed(drawn(|s| {
        let x = s.embedded();
        let x = s.attends(&x, &x);
        let queries = of_each_token(s, &x);
        attending(s, &queries, &x, |_, scores| scores)
    }));
    let why = why.unwrap_err();
    assert!(why.contains("as many learned queries as tokens"), "{why}");
}

/// Seven tokens with what so many queries gathered of them.
fn met(count: usize, meet: fn(&mut Sketch, [&str; 2]) -> String) -> Result<Model, String> {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &["batch", "7", "24"]);
    let x = s.attends(&x, &x);
    let y = gathered(&mut s, &x, count);
    let y = meet(&mut s, [&x, &y]);
    let y = s.attends(&y, &y);
    removed(s.model(18, &[&y]))
}

#[test]
fn rows_of_learned_queries_that_meet_tokens_one_by_one_stand_for_places() {
    let side_by_side = |s: &mut Sketch, [x, y]: [&str; 2]| {
        let both = s.concat(&[x, y], -1);
        linear(s, &both, 2 * HIDDEN, HIDDEN)
    };
    for (name, met) in [
        ("sum", met(7, |s, [x, y]| s.op("Add", &[x, y]))),
        ("product", met(7, |s, [x, y]| s.op("Mul", &[x, y]))),
        ("features", met(7, side_by_side)),
    ] {
        let why = met.map(|_| ()).unwrap_err();
        assert!(why.contains("meet tokens one by one"), "{name}: {why}");
    }
    // One row for all tokens, tokens behind the others, and tokens that attend to what was gathered.
    let pooled = |s: &mut Sketch, [x, y]: [&str; 2]| {
        let axis = s.ints(&[1]);
        let y = s.op("ReduceMean", &[y, &axis]);
        s.op("Add", &[x, &y])
    };
    for (name, met) in [
        ("pooled", met(7, pooled)),
        ("behind", met(7, |s, [x, y]| s.concat(&[x, y], 1))),
        ("attended", met(5, |s, [x, y]| s.attends(x, y))),
    ] {
        let met = met.map(|_| ());
        assert_eq!(met, Ok(()), "{name}");
    }
}
