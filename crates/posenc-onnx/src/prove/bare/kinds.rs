//! Which tokens of a stack have the same content when the inputs have the same content everywhere.

use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayViewD, Axis};
use posenc_encodings::kind::Stack;
use posenc_ir::ValueId;

use super::runs::Numbers;

/// Rows that do not depend on content are the same for two contents, to roundings.
const ROUNDING: f64 = 1e-6;

/// The tokens of a stack; `true` stands for the keys of cross-attention.
type Sequence = (Option<Stack>, bool);

/// The kind of each token, as the first site of each sequence shows it.
#[derive(Debug)]
pub(super) struct Kinds<'a> {
    /// A run of equal tokens, and others with another content in one input each.
    first: &'a Numbers,
    inputs: &'a [Numbers],
    /// The share of the movement of the others by which rows without content may move: scales of integers
    /// follow all tokens.
    share: f64,
    /// By sequence and number of tokens; `None` for a token without content.
    known: BTreeMap<(Sequence, usize), Vec<Option<usize>>>,
    /// Sequences whose tokens of one kind may differ.
    split: Vec<Sequence>,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(first: &'a Numbers, inputs: &'a [Numbers], share: f64) -> Self {
        Self {
            first,
            inputs,
            share,
            known: BTreeMap::new(),
            split: vec![],
        }
    }

    /// The kinds of the tokens along an axis of a value that was computed for two contents; `None`
    /// where tokens of one kind may differ.
    pub(super) fn of(
        &mut self,
        sequence: Sequence,
        value: ValueId,
        runs: [&ArrayD<f64>; 2],
        axis: usize,
    ) -> Option<Vec<Option<usize>>> {
        let size = *runs[0].shape().get(axis)?;
        if self.split.contains(&sequence) || runs[0].shape() != runs[1].shape() {
            return None;
        }
        if let Some(known) = self.known.get(&(sequence, size)) {
            return Some(known.clone());
        }
        let kinds = self.along(value, runs, axis);
        self.known.insert((sequence, size), kinds.clone());
        Some(kinds)
    }

    /// The kinds of the tokens of a sequence; `None` where none are known or tokens of one kind may
    /// differ.
    pub(super) fn known(&self, sequence: Sequence, size: usize) -> Option<&[Option<usize>]> {
        let known = self.known.get(&(sequence, size));
        known
            .map(Vec::as_slice)
            .filter(|_| !self.split.contains(&sequence))
    }

    /// Whether some token of a sequence has content.
    pub(super) fn has_content(&self, sequence: Sequence) -> bool {
        let mut all = self.known.iter().filter(|((of, _), _)| *of == sequence);
        all.any(|(_, kinds)| kinds.iter().any(Option::is_some))
    }

    /// The kinds of rows of no sequence: those of the sequences of their number, or their own where there
    /// is none; `None` where sequences of that length disagree.
    pub(super) fn of_rows(
        &self,
        value: ValueId,
        runs: [&ArrayD<f64>; 2],
        axis: usize,
    ) -> Option<Vec<Option<usize>>> {
        let size = *runs[0].shape().get(axis)?;
        let mut sizes = self.known.keys().map(|(_, n)| *n);
        if sizes.any(|n| n == size) || runs[0].shape() != runs[1].shape() {
            return self.of_size(size);
        }
        Some(self.along(value, runs, axis))
    }

    /// The kinds of so many tokens; `None` where sequences of that length disagree.
    pub(super) fn of_size(&self, size: usize) -> Option<Vec<Option<usize>>> {
        let mut known = self.known.iter().filter(|((_, n), _)| *n == size);
        let (_, first) = known.next()?;
        known
            .all(|(_, other)| other == first)
            .then(|| first.clone())
    }

    /// From here on, tokens of one kind may differ: always where there is a sink, else where the
    /// sequence has several kinds.
    pub(super) fn split(&mut self, sequence: Sequence, has_sink: bool) {
        let mut all = self.known.iter().filter(|((of, _), _)| *of == sequence);
        if has_sink || all.any(|(_, kinds)| is_mixed(kinds)) {
            self.split.push(sequence);
        }
    }

    /// Whether some sequence has several kinds of tokens.
    pub(super) fn are_several(&self) -> bool {
        self.known.values().any(|kinds| is_mixed(kinds))
    }

    /// The kinds of rows: those that follow the same inputs are of one kind.
    fn along(&self, value: ValueId, runs: [&ArrayD<f64>; 2], axis: usize) -> Vec<Option<usize>> {
        let first = self.first.get(&value);
        let others = self.inputs.iter().map(|run| first.zip(run.get(&value)));
        let moved = |runs| moved(runs, axis, self.share);
        let by_input: Vec<Vec<bool>> = others.flatten().map(|(a, b)| moved([a, b])).collect();
        let mut seen: Vec<Vec<bool>> = vec![];
        let rows = moved(runs).into_iter().enumerate();
        rows.map(|(row, is_moved)| {
            let by = by_input.iter().map(|each| each.get(row) == Some(&true));
            let by: Vec<bool> = by.collect();
            let kind = seen.iter().position(|other| *other == by);
            is_moved.then(|| {
                kind.unwrap_or_else(|| {
                    seen.push(by);
                    seen.len() - 1
                })
            })
        })
        .collect()
    }
}

/// Which rows differ between two runs, by more than roundings and this share of how the rows differ most.
fn moved([first, second]: [&ArrayD<f64>; 2], axis: usize, share: f64) -> Vec<bool> {
    let largest = first.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    let distance = |(a, b): (ArrayViewD<'_, f64>, ArrayViewD<'_, f64>)| {
        let distances = a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs());
        // Numbers that are none count as different.
        distances.fold(
            0.0,
            |most: f64, d| if most.is_nan() || d <= most { most } else { d },
        )
    };
    let rows = first
        .axis_iter(Axis(axis))
        .zip(second.axis_iter(Axis(axis)));
    let distances: Vec<f64> = rows.map(distance).collect();
    let most = distances.iter().copied().filter(|d| d.is_finite());
    let bound = (share * most.fold(0.0, f64::max)).max(ROUNDING * largest);
    let is_moved = |distance: f64| distance.is_nan() || distance > bound;
    distances.into_iter().map(is_moved).collect()
}

/// Whether there are several kinds of tokens.
pub(super) fn is_mixed(kinds: &[Option<usize>]) -> bool {
    kinds.iter().any(|kind| *kind != Some(0))
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::graph::sketch::Sketch;

    const SEQUENCE: Sequence = (None, false);

    /// Some value.
    fn value() -> ValueId {
        let mut s = Sketch::default();
        let x = s.embedded();
        let model = s.model(17, &[&x]);
        model.graph().values().next().unwrap()
    }

    /// The kinds of rows in two runs, and in runs with one other input each.
    fn of(rows: &[f64], others: &[f64], inputs: &[&[f64]]) -> Vec<Option<usize>> {
        of_coarse(rows, others, inputs, 0.0)
    }

    fn of_coarse(
        rows: &[f64],
        others: &[f64],
        inputs: &[&[f64]],
        share: f64,
    ) -> Vec<Option<usize>> {
        let value = value();
        let run = |rows: &[f64]| ndarray::Array1::from(rows.to_vec()).into_dyn();
        let numbers = |rows: &[f64]| Numbers::from_iter([(value, run(rows))]);
        let (first, inputs) = (numbers(rows), inputs.iter().map(|rows| numbers(rows)));
        let inputs: Vec<Numbers> = inputs.collect();
        let mut kinds = Kinds::new(&first, &inputs, share);
        kinds
            .of(SEQUENCE, value, [&run(rows), &run(others)], 0)
            .unwrap()
    }

    #[test]
    fn rows_without_content_have_no_kind() {
        assert_eq!(
            of(&[9., 1., 1., 1.], &[9., 2., 2., 2.], &[]),
            [None, Some(0), Some(0), Some(0)]
        );
    }

    #[test]
    fn rows_that_follow_the_same_inputs_are_of_one_kind() {
        let (rows, others) = ([1., 2., 1., 2.], [3., 4., 3., 4.]);
        let (first, second) = ([3., 2., 3., 2.], [1., 4., 1., 4.]);
        let kinds = of(&rows, &others, &[&first, &second]);
        assert_eq!(kinds, [0, 1, 0, 1].map(Some));
        // Whatever their numbers are: a position may tell rows of one input apart.
        assert_eq!(of(&rows, &others, &[]), [0; 4].map(Some));
        let sum = [2., 3., 2., 3.];
        assert_eq!(of(&rows, &others, &[&sum, &sum]), [0; 4].map(Some));
    }

    #[test]
    fn positions_far_larger_than_content_are_seen() {
        let (rows, others) = ([1000.1, 2000.1, 3000.1], [1000.2, 2000.2, 3000.2]);
        assert_eq!(of(&rows, &others, &[]), [Some(0); 3]);
    }

    #[test]
    fn integers_move_rows_without_content_a_little() {
        let (rows, others) = ([9., 1., 1., 1.], [9.02, 2., 2.1, 2.]);
        let [class, tokens] = [None, Some(0)];
        let of = |share| of_coarse(&rows, &others, &[], share);
        assert_eq!(of(0.1), [class, tokens, tokens, tokens]);
        assert_eq!(of(0.0), [Some(0); 4], "control");
        // However large positions are: all tokens move alike.
        let (rows, others) = ([1000.1, 2000.1, 3000.1], [1000.2, 2000.21, 3000.2]);
        assert_eq!(of_coarse(&rows, &others, &[], 0.1), [Some(0); 3]);
        let lost = [f64::NAN, 1., 1.];
        assert_eq!(of_coarse(&lost, &[2., 2., 2.], &[], 0.1), [Some(0); 3]);
    }

    #[test]
    fn only_sequences_of_several_kinds_are_split() {
        let value = value();
        let same = [array![1., 1.].into_dyn(), array![2., 2.].into_dyn()];
        let mixed = [array![1., 7., 1.].into_dyn(), array![2., 7., 2.].into_dyn()];
        let first = Numbers::default();
        let mut kinds = Kinds::new(&first, &[], 0.0);
        for (runs, is_split) in [(&same, false), (&mixed, true)] {
            let of = |kinds: &mut Kinds<'_>| kinds.of(SEQUENCE, value, [&runs[0], &runs[1]], 0);
            assert!(of(&mut kinds).is_some());
            kinds.split(SEQUENCE, false);
            assert_eq!(of(&mut kinds).is_none(), is_split);
            assert_eq!(kinds.are_several(), is_split);
        }
    }
}
