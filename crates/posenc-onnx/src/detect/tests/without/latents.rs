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
