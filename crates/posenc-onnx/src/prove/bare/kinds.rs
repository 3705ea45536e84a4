//! Which tokens of a stack have the same content when the inputs have the same content everywhere.

use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayViewD, Axis};
use posenc_encodings::kind::Stack;

/// Rows of one kind differ by less than this share of the largest number.
const SHARE: f64 = 1e-3;

/// Rows that do not depend on content are the same for two contents, to roundings.
const ROUNDING: f64 = 1e-6;

/// The tokens of a stack; `true` stands for the keys of cross-attention.
type Sequence = (Option<Stack>, bool);

/// The kind of each token, as the first site of each sequence shows it.
#[derive(Debug)]
pub(super) struct Kinds {
    /// The most kinds: one for each input that carries content.
    most: usize,
    /// By sequence and number of tokens; `None` for a token without content.
    known: BTreeMap<(Sequence, usize), Vec<Option<usize>>>,
    /// Sequences whose tokens of one kind may differ.
    split: Vec<Sequence>,
}

impl Kinds {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            known: BTreeMap::new(),
            split: vec![],
        }
    }

    /// The kinds of the tokens along an axis of a value that was computed for two contents; `None`
    /// where tokens of one kind may differ.
    pub(super) fn of(
        &mut self,
        sequence: Sequence,
        runs: [&ArrayD<f64>; 2],
        axis: usize,
    ) -> Option<Vec<Option<usize>>> {
        let size = *runs[0].shape().get(axis)?;
        if self.split.contains(&sequence) || runs[0].shape() != runs[1].shape() {
            return None;
        }
        let most = self.most.min(size / 2).max(1);
        let known = self.known.entry((sequence, size));
        Some(known.or_insert_with(|| kinds(runs, axis, most)).clone())
    }

    /// The kinds of the tokens of a sequence; `None` where none are known or tokens of one kind may
    /// differ.
    pub(super) fn known(&self, sequence: Sequence, size: usize) -> Option<&[Option<usize>]> {
        let known = self.known.get(&(sequence, size));
        known
            .map(Vec::as_slice)
            .filter(|_| !self.split.contains(&sequence))
    }

    /// The kinds of rows of no sequence: those of the sequences of their number, or their own where there
    /// is none; `None` where sequences of that length disagree.
    pub(super) fn of_rows(
        &self,
        runs: [&ArrayD<f64>; 2],
        axis: usize,
    ) -> Option<Vec<Option<usize>>> {
        let size = *runs[0].shape().get(axis)?;
        let mut sizes = self.known.keys().map(|(_, n)| *n);
        if sizes.any(|n| n == size) || runs[0].shape() != runs[1].shape() {
            return self.of_size(size);
        }
        let most = self.most.min(size / 2).max(1);
        Some(kinds(runs, axis, most))
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
}

/// Whether there are several kinds of tokens.
pub(super) fn is_mixed(kinds: &[Option<usize>]) -> bool {
    kinds.iter().any(|kind| *kind != Some(0))
}

/// The kinds of rows. With more than `most`, all are taken for one, so that a comparison fails.
fn kinds(runs: [&ArrayD<f64>; 2], axis: usize, most: usize) -> Vec<Option<usize>> {
    let largest = runs[0].iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    let near = |a: &ArrayViewD<'_, f64>, b: &ArrayViewD<'_, f64>, share: f64| {
        let mut pairs = a.iter().zip(b.iter());
        pairs.all(|(a, b)| (a - b).abs() <= share * largest)
    };
    let mut first: Vec<ArrayViewD<'_, f64>> = vec![];
    let mut kinds = vec![];
    for (row, other) in runs[0]
        .axis_iter(Axis(axis))
        .zip(runs[1].axis_iter(Axis(axis)))
    {
        if near(&row, &other, ROUNDING) {
            kinds.push(None);
            continue;
        }
        let known = first.iter().position(|kind| near(kind, &row, SHARE));
        kinds.push(Some(known.unwrap_or(first.len())));
        if known.is_none() {
            first.push(row);
        }
    }
    if first.len() > most {
        for kind in kinds.iter_mut().flatten() {
            *kind = 0;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    const SEQUENCE: Sequence = (None, false);

    fn of(rows: &[f64], others: &[f64], most: usize) -> Vec<Option<usize>> {
        let runs = [rows, others].map(|r| ndarray::Array1::from(r.to_vec()).into_dyn());
        Kinds::new(most)
            .of(SEQUENCE, [&runs[0], &runs[1]], 0)
            .unwrap()
    }

    #[test]
    fn rows_without_content_have_no_kind() {
        assert_eq!(
            of(&[9., 1., 1., 1.], &[9., 2., 2., 2.], 1),
            [None, Some(0), Some(0), Some(0)]
        );
    }

    #[test]
    fn there_are_as_many_kinds_as_inputs_and_no_more() {
        let (rows, others) = ([1., 2., 1., 2.], [3., 4., 3., 4.]);
        assert_eq!(of(&rows, &others, 2), [0, 1, 0, 1].map(Some));
        assert_eq!(of(&rows, &others, 1), [0, 0, 0, 0].map(Some));
        // Every token of its own kind is a position, however many inputs there are.
        let (rows, others) = ([1., 2., 3., 4.], [5., 6., 7., 8.]);
        assert_eq!(of(&rows, &others, 9), [0, 0, 0, 0].map(Some));
    }

    #[test]
    fn positions_far_larger_than_content_are_seen() {
        let (rows, others) = ([1000.1, 2000.1, 3000.1], [1000.2, 2000.2, 3000.2]);
        assert_eq!(of(&rows, &others, 1), [Some(0); 3]);
    }

    #[test]
    fn only_sequences_of_several_kinds_are_split() {
        let same = [array![1., 1.].into_dyn(), array![2., 2.].into_dyn()];
        let mixed = [array![1., 7., 1.].into_dyn(), array![2., 7., 2.].into_dyn()];
        let mut kinds = Kinds::new(1);
        for (runs, is_split) in [(&same, false), (&mixed, true)] {
            assert!(kinds.of(SEQUENCE, [&runs[0], &runs[1]], 0).is_some());
            kinds.split(SEQUENCE, false);
            assert_eq!(
                kinds.of(SEQUENCE, [&runs[0], &runs[1]], 0).is_none(),
                is_split
            );
        }
    }
}
