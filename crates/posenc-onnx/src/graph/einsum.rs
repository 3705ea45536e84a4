//! The axes of an `Einsum`, by letter.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId};

/// One letter for each axis of the operands and of the result.
pub(crate) struct Equation {
    pub(crate) operands: Vec<Vec<char>>,
    pub(crate) result: Vec<char>,
}

impl Equation {
    /// Of an `Einsum` whose operands have known ranks.
    pub(crate) fn of(graph: &Graph, trace: &Trace, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let rank = |slot| Some(trace.get(node.input(slot)?).dims.as_ref()?.len());
        let ranks: Option<Vec<usize>> = (0..node.inputs().len()).map(rank).collect();
        Self::read(node.string("equation").ok()??, &ranks?)
    }

    /// Spells out an ellipsis, and the result where it is left out.
    pub(crate) fn read(text: &str, ranks: &[usize]) -> Option<Self> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, result) = match text.split_once("->") {
            Some((inputs, result)) => (inputs, Some(result)),
            None => (&*text, None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        let named = |term: &str| term.chars().filter(|c| *c != '.').count();
        let hidden = |term: &str, rank: usize| rank.checked_sub(named(term));
        let operands: Option<Vec<Vec<char>>> = (terms.len() == ranks.len()).then(|| {
            let pairs = terms.iter().zip(ranks);
            pairs
                .map(|(term, rank)| spelled(term, hidden(term, *rank)?))
                .collect()
        })?;
        let operands = operands?;
        let most = terms.iter().zip(ranks).map(|(t, r)| hidden(t, *r));
        let most = most.max().flatten().unwrap_or(0);
        let result = match result {
            Some(term) if term.contains('.') => spelled(term, most)?,
            Some(term) => term.chars().collect(),
            None => {
                let all = || operands.iter().flatten();
                let mut once: Vec<char> = all()
                    .filter(|c| !is_hidden(**c) && all().filter(|o| o == c).count() == 1)
                    .copied()
                    .collect();
                once.sort_unstable();
                (0..most).rev().map(hidden_axis).chain(once).collect()
            }
        };
        Some(Self { operands, result })
    }
}

/// The letters of a term whose ellipsis is so many axes.
fn spelled(term: &str, hidden: usize) -> Option<Vec<char>> {
    let axes = (0..hidden).rev().map(hidden_axis);
    match term.split_once("...") {
        Some((before, after)) => Some(before.chars().chain(axes).chain(after.chars()).collect()),
        None => (hidden == 0).then(|| term.chars().collect()),
    }
}

/// The letter of an axis of an ellipsis, counted from the last.
fn hidden_axis(back: usize) -> char {
    const PRIVATE: u32 = 0xE000;
    char::from_u32(PRIVATE + (back % 64) as u32).unwrap_or('.')
}

fn is_hidden(letter: char) -> bool {
    !letter.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The axes of the result that the axes of each operand become.
    fn places(text: &str, ranks: &[usize]) -> Option<(usize, Vec<Vec<Option<usize>>>)> {
        let equation = Equation::read(text, ranks)?;
        let at = |c: &char| equation.result.iter().position(|r| r == c);
        let all = equation.operands.iter();
        let all = all.map(|o| o.iter().map(at).collect()).collect();
        Some((equation.result.len(), all))
    }

    #[test]
    fn an_ellipsis_and_a_result_left_out_are_spelled_out() {
        let scores = Some((
            5,
            vec![
                vec![Some(0), Some(1), Some(3), Some(2), None],
                vec![Some(0), Some(1), Some(4), Some(2), None],
            ],
        ));
        assert_eq!(places("b n q h d, b n k h d -> b n h q k", &[5, 5]), scores);
        assert_eq!(places("...qhd,...khd->...hqk", &[5, 5]), scores);
        let broadcast = places("...id,jd->...ij", &[4, 2]).unwrap();
        assert_eq!(broadcast.1[1], [Some(3), None]);
        let open = places("ij,jk", &[2, 2]).unwrap();
        assert_eq!(open.1, [[Some(0), None], [None, Some(1)]]);
    }

    #[test]
    fn letters_that_do_not_fit_the_ranks_are_refused() {
        for (text, ranks) in [
            ("ij,jk->ik", &[2, 3][..]),
            ("ij->i", &[2, 2]),
            ("...ijk->i", &[2]),
        ] {
            assert!(places(text, ranks).is_none(), "{text} {ranks:?}");
        }
    }
}
