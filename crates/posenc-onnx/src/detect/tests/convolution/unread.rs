//! Convolutions that are no encodings, and may encode position all the same.

use super::*;

/// How many convolutions of queries or keys are named.
fn mixing(form: &Form) -> usize {
    let found = found(&model(form));
    assert_eq!(found.not_evaluated, [""; 0]);
    let why = found.no_encodings.iter().map(|refused| &refused.why);
    why.filter(|why| why.contains("projects queries or keys from neighboring tokens"))
        .count()
}

fn rotated(rotated: fn(&mut Sketch, &str, Side) -> String) -> usize {
    mixing(&Form {
        rotated,
        ..Form::default()
    })
}

/// A convolution over tokens `[batch, sequence, channels]`.
fn over_tokens(s: &mut Sketch, x: &str, groups: usize, taps: usize) -> String {
    let t = transposed(s, x);
    let y = convolved(s, &t, groups, taps);
    transposed(s, &y)
}

#[test]
fn convolutions_of_queries_and_keys_are_named() {
    let before_projection = rotated(|s, x, _| {
        let y = over_tokens(s, x, HIDDEN, 3);
        s.headed(&y)
    });
    assert_eq!(before_projection, 2);
    let ungrouped = rotated(|s, x, _| {
        let y = over_tokens(s, x, 1, 3);
        s.headed(&y)
    });
    assert_eq!(ungrouped, 2);
    let of_keys = rotated(|s, x, side| match side {
        Side::Query => s.headed(x),
        Side::Key => {
            let y = over_tokens(s, x, 4, 5);
            let y = normed(s, &y);
            s.headed(&y)
        }
    });
    assert_eq!(of_keys, 1);
    let then_rotated = rotated(|s, x, _| {
        let y = over_tokens(s, x, HIDDEN, 3);
        let y = s.headed(&y);
        halves(s, &y)
    });
    assert_eq!(then_rotated, 2);
    // Each head is a sequence of a batch.
    let by_head = rotated(|s, x, _| {
        let y = s.headed(x);
        let shape = s.op("Shape", &[&y]);
        let y = s.reshape(&y, &[-1, 0, SIZE as i64]);
        let rows = s.slice(&shape, 0, [2, 3, 1]);
        let (all, size) = (s.ints(&[-1]), s.ints(&[SIZE as i64]));
        let folded = s.concat(&[&all, &rows, &size], 0);
        let y = s.op("Reshape", &[&y, &folded]);
        let t = transposed(s, &y);
        let w = s.weights(&[SIZE, 1, 3]);
        let how = [("group", A::Int(SIZE as i64)), ("pads", A::Ints(&[2, 0]))];
        let y = s.with("Conv", &[&t, &w], &how);
        let y = transposed(s, &y);
        s.op("Reshape", &[&y, &shape])
    });
    assert_eq!(by_head, 2);
}

#[test]
fn other_convolutions_before_attention_are_not_named() {
    let one_token = rotated(|s, x, _| {
        let y = over_tokens(s, x, HIDDEN, 1);
        s.headed(&y)
    });
    assert_eq!(one_token, 0);
    let plain = rotated(|s, x, _| s.headed(x));
    assert_eq!(plain, 0);
    // Patches of two tokens share none.
    let patches = rotated(|s, x, side| match side {
        Side::Query => s.headed(x),
        Side::Key => {
            let t = transposed(s, x);
            let w = s.weights(&[HIDDEN, HIDDEN, 2]);
            let how = [
                ("strides", A::Ints(&[2])),
                ("auto_pad", A::Text("SAME_UPPER")),
            ];
            let y = s.with("Conv", &[&t, &w], &how);
            let y = transposed(s, &y);
            s.headed(&y)
        }
    });
    assert_eq!(patches, 0);
    let in_the_stream = mixing(&Form {
        embed: |s, x| neighbours(s, &x, HIDDEN),
        ..Form::default()
    });
    assert_eq!(in_the_stream, 0);
    let before_the_stream = mixing(&Form {
        embed: |s, x| {
            let y = over_tokens(s, &x, 1, 3);
            s.attends(&y, &y)
        },
        ..Form::default()
    });
    assert_eq!(before_the_stream, 0, "the residual stream has it");
}

#[test]
fn a_convolution_that_is_added_to_what_is_not_read_as_its_input_is_named() {
    let named = |embed: fn(&mut Sketch, String) -> String| {
        let model = model(&Form {
            rotated: |s, x, _| s.headed(x),
            embed,
            ..Form::default()
        });
        let all = found(&model).not_evaluated;
        all.iter()
            .filter(|why| why.contains("what it is added to was not read"))
            .count()
    };
    let one = named(|s, x| {
        let other = s.input("other", DType::F32, &["batch", "sequence", "24"]);
        let t = transposed(s, &x);
        let y = convolved(s, &t, 4, 5);
        let y = transposed(s, &y);
        s.op("Add", &[&other, &y])
    });
    assert_eq!(one, 1);
    for case in cases() {
        // Each is read, or is no convolution of groups that a sum follows.
        let is_other = case.name == "its input taken from zero";
        assert_eq!(named(case.embed), usize::from(is_other), "{}", case.name);
    }
}
