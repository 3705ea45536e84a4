//! Buffers and lengths of models whose encoding is replaced.

use posenc_encodings::kind::Kind;
use posenc_ir::DType;
use posenc_ir::Model;
use safetensors::tensor::{Dtype, TensorView};

use crate::error::RefusalKind;
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::report::Rewrite;
use crate::request::{Request, Tensors};
use crate::rewrite::rewrite;

/// A model of two layers that cut one causal buffer of 16 tokens.
fn model() -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let rows = s.weights(&[16, HIDDEN]);
    let lower = (0..256).map(|i| f64::from(u8::from(i % 16 <= i / 16)));
    let buffer = s.typed(DType::Bool, &[1, 1, 16, 16], lower);
    let shape = s.op("Shape", &[&x]);
    let one = s.ints(&[1]);
    let length = s.gather(&shape, &one, 0);
    let zero = s.ints(&[0]);
    let rows = s.op("Slice", &[&rows, &zero, &length, &zero]);
    x = s.op("Add", &[&x, &rows]);
    let axes = [s.ints(&[2]), s.ints(&[3])];
    let seen = s.op("Slice", &[&buffer, &zero, &length, &axes[0]]);
    let seen = s.op("Slice", &[&seen, &zero, &length, &axes[1]]);
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&seen, &scores, &low]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

#[test]
fn buffers_that_were_made_longer_are_counted_once() {
    for (wanted, count) in [(None, 0), (Some(10), 0), (Some(40), 1)] {
        let mut request = Request {
            to: Some(Kind::Rope),
            ..Request::default()
        };
        request.parameters.max_length = wanted;
        let done = rewrite(&mut model(), &request).unwrap();
        let changed = done.report.edits.iter().map(|e| e.initializers_changed);
        let changed: Vec<usize> = changed.collect();
        assert_eq!(changed, [count, 0], "{wanted:?}");
    }
}

#[test]
fn a_length_beyond_any_buffer_is_refused() {
    for kind in [Kind::Rope, Kind::Alibi, Kind::Learned, Kind::Sinusoidal] {
        for wanted in [1_000_000_000_000, usize::MAX] {
            let mut request = Request {
                to: Some(kind),
                ..Request::default()
            };
            request.parameters.max_length = Some(wanted);
            let why = rewrite(&mut model(), &request).unwrap_err();
            let why = why.to_string();
            assert!(why.starts_with("`max-length` is"), "{kind}: {why}");
        }
    }
    let mut request = Request {
        to: Some(Kind::Learned),
        ..Request::default()
    };
    request.parameters.seed = Some(1);
    request.parameters.max_length = Some(100_000_000);
    let why = rewrite(&mut model(), &request).unwrap_err().to_string();
    assert!(why.contains("a table of [100000000, 24]"), "{why}");
}

/// A model with buffers of 16 positions and 16 types: positions pick the types, of which there are as many
/// copies as positions, so that their end shows only where positions go on.
fn with_types(positions: [i64; 16]) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let shape = s.op("Shape", &[&x]);
    let (zero, one) = (s.ints(&[0]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let positions = positions.map(|at| at as f64);
    let positions = s.typed(DType::I64, &[1, 16], positions);
    let at = s.op("Slice", &[&positions, &zero, &length, &one]);
    let types = s.typed(DType::I64, &[1, 16], [0.0; 16]);
    let rows = s.op("Shape", &[&at]);
    let rows = s.gather(&rows, &zero, 0);
    let rows = s.concat(&[&rows, &one], 0);
    let types = s.op("Expand", &[&types, &rows]);
    let types = s.with("GatherElements", &[&types, &at], &[("axis", A::Int(1))]);
    let mut y = x;
    for (count, index) in [(2, &types), (16, &at)] {
        let table = s.weights(&[count, HIDDEN]);
        let rows = s.gather(&table, index, 0);
        y = s.op("Add", &[&y, &rows]);
    }
    let y = s.attends(&y, &y);
    s.model(17, &[&y])
}

/// What a swap to ALiBi reports of positions 0 to 14 and a last one, or why it is refused.
fn to_alibi(last: i64, max_length: Option<usize>) -> Result<Rewrite, String> {
    let mut positions: [i64; 16] = std::array::from_fn(|at| at as i64);
    positions[15] = last;
    let mut request = Request {
        to: Some(Kind::Alibi),
        ..Request::default()
    };
    request.parameters.max_length = max_length;
    let done = rewrite(&mut with_types(positions), &request);
    done.map(|done| done.report).map_err(|why| why.to_string())
}

#[test]
fn buffers_behind_others_are_made_longer_too() {
    for (wanted, changed, end) in [
        (None, 0, 16),
        (Some(12), 0, 16),
        (Some(40), 2, 40),
        // The formula is compared at more tokens than the old buffers hold.
        (Some(512), 2, 512),
    ] {
        let report = to_alibi(15, wanted).unwrap();
        assert_eq!(report.edits[0].initializers_changed, changed, "{wanted:?}");
        assert_eq!(report.limits.after[0].length, end, "{wanted:?}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{wanted:?}");
    }
}

#[test]
fn a_buffer_that_goes_on_in_no_known_way_is_refused_by_name() {
    let why = to_alibi(14, Some(40)).unwrap_err();
    let end = "(position-buffer) would still end at 16, below the new length 40";
    assert!(why.contains(end), "{why}");
    assert!(why.contains("leave out `max-length`"), "{why}");
    for short in [None, Some(16)] {
        assert_eq!(to_alibi(14, short).map(drop), Ok(()), "{short:?}");
    }
}

#[test]
fn zeros_do_not_replace_trained_rows() {
    let of = |change: &dyn Fn(&mut Request)| {
        let mut request = Request {
            to: Some(Kind::Learned),
            ..Request::default()
        };
        request.parameters.max_length = Some(40);
        change(&mut request);
        let done = rewrite(&mut model(), &request);
        done.map(|done| done.report.edits.len())
    };
    let why = of(&|_| {}).unwrap_err();
    let refusal = why.refusal().expect("it is a refusal");
    assert_eq!(refusal.kind(), &RefusalKind::InvalidParameter);
    let advice = "give `scale` linear, cubic, tile or hierarchical with `max-length` 40";
    assert!(refusal.reason().contains(advice), "{why}");
    // No more rows than there are, numbers of one's own, and another encoding.
    let same = of(&|request| request.parameters.max_length = Some(16));
    assert_eq!(same.unwrap(), 0);
    let rows: Vec<u8> = (0..40 * HIDDEN)
        .flat_map(|i| (i as f32).sin().to_le_bytes())
        .collect();
    let view = TensorView::new(Dtype::F32, vec![40, HIDDEN], &rows).unwrap();
    let file = safetensors::serialize([("position_embedding", view)], None).unwrap();
    let given = of(&|request| request.params = Some(Tensors::from_bytes("p", file.clone())));
    assert_eq!(given.unwrap(), 2);
    assert_eq!(of(&|request| request.parameters.seed = Some(1)).unwrap(), 2);
    assert_eq!(of(&|request| request.to = Some(Kind::Alibi)).unwrap(), 2);
}

/// Sinusoids in place of the table of a model that has another output, of its ids or of its embeddings.
fn with_output(is_of_ids: bool) -> Result<usize, String> {
    let mut s = Sketch::default();
    let embedded = s.embedded();
    let at = s.range();
    let table = s.weights(&[32, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&embedded, &rows]);
    let y = s.attends(&x, &x);
    let read = if is_of_ids { "input_ids" } else { &embedded };
    let other = s.op("Identity", &[read]);
    let request = Request {
        to: Some(Kind::Sinusoidal),
        ..Request::default()
    };
    let done = rewrite(&mut s.model(17, &[&y, &other]), &request);
    done.map(|done| done.report.edits.len())
        .map_err(|why| why.to_string())
}

#[test]
fn an_output_of_ids_reads_no_content_before_the_table() {
    assert_eq!(with_output(true), Ok(1));
    let why = with_output(false).unwrap_err();
    assert!(why.contains("reads the content from before"), "{why}");
}

#[test]
fn embeddings_whose_shape_alone_is_read_elsewhere_take_a_swap() {
    let swapped = |is_shape: bool| {
        let mut s = Sketch::default();
        let embedded = s.embedded();
        // Positions are counted from one column of the embeddings.
        let (first, zero, one) = (s.int(0), s.int(0), s.int(1));
        let column = s.gather(&embedded, &first, 2);
        let shape = s.op("Shape", &[&column]);
        let length = s.gather(&shape, &one, 0);
        let at = s.op("Range", &[&zero, &length, &one]);
        let table = s.weights(&[32, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        let x = s.op("Add", &[&embedded, &rows]);
        let mut y = s.attends(&x, &x);
        if !is_shape {
            let column = s.unsqueeze(&column, &[2]);
            y = s.op("Add", &[&y, &column]);
        }
        let request = Request {
            to: Some(Kind::Sinusoidal),
            ..Request::default()
        };
        rewrite(&mut s.model(17, &[&y]), &request).is_ok()
    };
    assert!(swapped(true));
    assert!(!swapped(false), "the column is read");
}
