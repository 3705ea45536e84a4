//! Blocks that are written into a tensor in place.

use super::*;

/// The parts of axes that are written: the first index and the one after the last, `None` for the size.
type Spans = [(i64, Option<i64>)];

/// Indices of the parts of the first axes of a tensor.
fn indices(s: &mut Sketch, of: &str, spans: &Spans) -> String {
    let shape = s.op("Shape", &[of]);
    let one = s.int(1);
    let mut counts = vec![];
    for (axis, (begin, end)) in spans.iter().enumerate() {
        let axis = axis as i64;
        let at = s.int(axis);
        let size = s.gather(&shape, &at, 0);
        let [begin, end] = [*begin, end.unwrap_or(0)].map(|n| s.int(n));
        let end = if spans[axis as usize].1.is_some() {
            end
        } else {
            size
        };
        let count = s.op("Range", &[&begin, &end, &one]);
        let others: Vec<i64> = (0..spans.len() as i64).filter(|a| *a != axis).collect();
        counts.push(match others[..] {
            [] => count,
            _ => s.unsqueeze(&count, &others),
        });
    }
    let all = counts
        .iter()
        .skip(1)
        .fold(counts[0].clone(), |all, count| s.op("Add", &[&all, count]));
    let grid = s.op("Shape", &[&all]);
    let numbers: Vec<String> = counts
        .iter()
        .map(|count| {
            let all = s.op("Expand", &[count, &grid]);
            s.unsqueeze(&all, &[-1])
        })
        .collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    s.concat(&numbers, -1)
}

/// A tensor with a block written into it.
fn write(s: &mut Sketch, into: &str, spans: &Spans, block: &str) -> String {
    let indices = indices(s, into, spans);
    s.op("ScatterND", &[into, &indices, block])
}

/// Zeros like a value.
fn zeros(s: &mut Sketch, like: &str) -> String {
    let shape = s.op("Shape", &[like]);
    s.op("ConstantOfShape", &[&shape])
}

const ALL: (i64, Option<i64>) = (0, None);

fn half(s: &mut Sketch, x: &str, begin: i64) -> String {
    let half = SIZE as i64 / 2;
    let part = s.slice(x, 3, [begin, begin + half, 1]);
    s.op("Neg", &[&part])
}

#[test]
fn blocks_that_are_written_are_put_beside_what_stays() {
    assert_eq!(SIZE, 8, "spans below");
    let spellings: [Spelling; 5] = [
        // All of zeros, in two parts.
        |s, q, k| {
            let (x, a, b) = (zeros(s, q), half(s, q, 0), half(s, k, 4));
            let x = write(s, &x, &[ALL, ALL, ALL, (0, Some(4))], &a);
            write(s, &x, &[ALL, ALL, ALL, (4, None)], &b)
        },
        // The second part first.
        |s, q, k| {
            let (x, a, b) = (zeros(s, q), half(s, q, 0), half(s, k, 4));
            let x = write(s, &x, &[ALL, ALL, ALL, (4, None)], &b);
            write(s, &x, &[ALL, ALL, ALL, (0, Some(4))], &a)
        },
        // A part of content.
        |s, q, k| {
            let b = half(s, k, 0);
            write(s, q, &[ALL, ALL, ALL, (2, Some(6))], &b)
        },
        // The axis first, by transposes that undo each other.
        |s, q, k| {
            let (x, a, b) = (zeros(s, q), half(s, q, 0), half(s, k, 4));
            let [x, a, b] = [x, a, b].map(|x| s.transpose(&x, &[3, 1, 2, 0]));
            let x = write(s, &x, &[(0, Some(4))], &a);
            let x = s.transpose(&x, &[3, 1, 2, 0]);
            let x = s.transpose(&x, &[3, 1, 2, 0]);
            let x = write(s, &x, &[(4, None)], &b);
            s.transpose(&x, &[3, 1, 2, 0])
        },
        // Some heads.
        |s, q, k| {
            let one = s.slice(k, 1, [0, 1, 1]);
            write(s, q, &[ALL, (1, Some(2))], &one)
        },
    ];
    for (at, spelling) in spellings.into_iter().enumerate() {
        let model = model(spelling);
        let plain = plain(&model, &BTreeMap::new()).expect("another spelling");
        let has_scatter = operators(&plain).iter().any(|op| op == "ScatterND");
        assert!(!has_scatter, "{at}");
        assert_eq!(difference(&model, &plain), 0.0, "{at}");
    }
}

#[test]
fn what_stays_behind_the_last_block_goes_to_the_end_of_any_length() {
    let model = model(|s, q, k| {
        let a = half(s, k, 0);
        write(s, q, &[ALL, ALL, ALL, (2, Some(6))], &a)
    });
    let open_ends = |model: &Model| {
        let graph = model.graph();
        let slices = graph.nodes().filter(|(_, node)| node.is("Slice"));
        let ends = slices.filter_map(|(_, node)| graph.constant(node.input(2)?)?.to_i64s());
        ends.flatten().filter(|end| *end > 1 << 30).count()
    };
    let plain = plain(&model, &BTreeMap::new()).expect("another spelling");
    assert_eq!([open_ends(&model), open_ends(&plain)], [0, 1]);
}

#[test]
fn a_later_block_hides_an_earlier_one() {
    let model = model(|s, q, k| {
        let (a, b) = (half(s, q, 0), half(s, k, 4));
        let x = write(s, q, &[ALL, ALL, ALL, (0, Some(4))], &a);
        write(s, &x, &[ALL, ALL, ALL, (2, Some(6))], &b)
    });
    let plain = plain(&model, &BTreeMap::new()).expect("another spelling");
    assert!(!operators(&plain).iter().any(|op| op == "ScatterND"));
    assert_eq!(difference(&model, &plain), 0.0);
}

#[test]
fn other_places_that_are_written_stay() {
    let spellings: [Spelling; 7] = [
        // Added, not written.
        |s, q, k| {
            let b = half(s, k, 0);
            let indices = indices(s, q, &[ALL, ALL, ALL, (2, Some(6))]);
            let how = [("reduction", A::Text("add"))];
            s.with("ScatterND", &[q, &indices, &b], &how)
        },
        // A part of two axes.
        |s, q, k| {
            let b = half(s, k, 0);
            let b = s.slice(&b, 1, [0, 1, 1]);
            write(s, q, &[ALL, (0, Some(1)), ALL, (2, Some(6))], &b)
        },
        // Backwards.
        |s, q, k| {
            let b = half(s, k, 0);
            let indices = indices(s, q, &[ALL, ALL, ALL, (0, Some(4))]);
            let (all, last) = (s.ints(&[0, 0, 0, 3]), s.ints(&[1, 1, 1, -1]));
            let turned = s.op("Mul", &[&indices, &last]);
            let turned = s.op("Add", &[&turned, &all]);
            s.op("ScatterND", &[q, &turned, &b])
        },
        // As long as the sequence.
        |s, q, k| {
            let later = s.slice(k, 2, [1, i64::MAX, 1]);
            write(s, q, &[ALL, ALL, (1, None)], &later)
        },
        // Up to a number of tokens.
        |s, q, k| {
            let [old, new] = [q, k].map(|x| s.slice(x, 3, [0, 4, 1]));
            let first = s.slice(&new, 2, [0, 1000, 1]);
            let first_old = s.slice(&old, 2, [0, 1000, 1]);
            let indices = indices(s, &first_old, &[ALL, ALL, ALL, (0, Some(4))]);
            s.op("ScatterND", &[q, &indices, &first])
        },
        // Where ids say.
        |s, q, k| {
            let b = half(s, k, 0);
            let indices = indices(s, q, &[ALL, ALL, ALL, (2, Some(6))]);
            let none = s.op("Sub", &["input_ids", "input_ids"]);
            let axes = s.ints(&[0, 1]);
            let none = s.op("ReduceSum", &[&none, &axes]);
            let axes = s.ints(&[0]);
            let none = s.op("Reshape", &[&none, &axes]);
            let moved = s.op("Add", &[&indices, &none]);
            s.op("ScatterND", &[q, &moved, &b])
        },
        // Where content is not 0.
        |s, q, _| {
            let places = s.op("NonZero", &[q]);
            let places = s.transpose(&places, &[1, 0]);
            let some = s.op("GatherND", &[q, &places]);
            let some = s.op("Neg", &[&some]);
            s.op("ScatterND", &[q, &places, &some])
        },
    ];
    for (at, spelling) in spellings.into_iter().enumerate() {
        let model = model(spelling);
        let plain = plain(&model, &BTreeMap::new()).unwrap_or_else(|| model.clone());
        let scatters = |model: &Model| {
            operators(model)
                .iter()
                .filter(|op| *op == "ScatterND")
                .count()
        };
        assert!(scatters(&plain) > 0, "{at}");
    }
}
