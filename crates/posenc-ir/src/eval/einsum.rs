//! Sums of products named by an equation.

use super::array::{Array, flat, from_vec};
use super::call::{Call, Outputs, typed};
use super::data::Shared;
use super::shape::{elements, offsets, strides};
use super::{EvalError, Value, Why};
use crate::node::Node;

/// An axis of an operand or of the result: a letter, or an axis of the ellipsis (from its end).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An equation for operands of known rank.
struct Equation {
    operands: Vec<Vec<Label>>,
    output: Vec<Label>,
    /// Every label with its length, in the order of the labels.
    lengths: Vec<(Label, usize)>,
}

impl Equation {
    fn read(text: &str, dims: &[&[usize]]) -> Result<Self, EvalError> {
        let bad = EvalError::from(Why::Attribute("equation"));
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&*text, None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != dims.len() {
            return Err(bad);
        }
        let mut lengths: Vec<(Label, usize)> = Vec::new();
        let mut operands = Vec::with_capacity(terms.len());
        let mut hidden = 0;
        for (term, dims) in terms.iter().zip(dims) {
            let named = term.chars().filter(|c| *c != '.').count();
            let spare = dims.len().checked_sub(named).ok_or(Why::Rank)?;
            let labels = labels(term, spare).ok_or(bad)?;
            if labels.len() != dims.len() {
                return Err(Why::Rank.into());
            }
            if term.contains('.') {
                hidden = hidden.max(spare);
            }
            for (&label, &length) in labels.iter().zip(*dims) {
                match lengths.iter_mut().find(|l| l.0 == label) {
                    None => lengths.push((label, length)),
                    Some((_, known)) if *known == 1 => *known = length,
                    Some((_, known)) if length != 1 && length != *known => {
                        return Err(Why::Shapes.into());
                    }
                    Some(_) => {}
                }
            }
            operands.push(labels);
        }
        let output = match right {
            Some(right) => labels_of(right, hidden).ok_or(bad)?,
            None => implied(&operands),
        };
        let known = |l: &Label| lengths.iter().any(|(k, _)| k == l);
        let unique = (1..output.len()).all(|i| !output[..i].contains(&output[i]));
        if !output.iter().all(known) || !unique {
            return Err(bad);
        }
        Ok(Self {
            operands,
            output,
            lengths,
        })
    }

    fn length(&self, label: Label) -> usize {
        let found = self.lengths.iter().find(|l| l.0 == label);
        found.map_or(1, |l| l.1)
    }

    fn dims(&self, labels: &[Label]) -> Vec<usize> {
        labels.iter().map(|l| self.length(*l)).collect()
    }

    /// The labels that are summed over.
    fn summed(&self) -> Vec<Label> {
        let all = self.lengths.iter().map(|l| l.0);
        all.filter(|l| !self.output.contains(l)).collect()
    }

    fn floats(&self, operands: &[Shared<f64>]) -> Option<Shared<f64>> {
        let total = |terms: &mut dyn Iterator<Item = f64>| terms.sum();
        self.compute(operands, 1.0, |a, b| a * b, total)
    }

    fn ints(&self, operands: &[Shared<i64>]) -> Option<Shared<i64>> {
        let total = |terms: &mut dyn Iterator<Item = i64>| terms.fold(0, i64::wrapping_add);
        self.compute(operands, 1, i64::wrapping_mul, total)
    }

    fn compute<T: Copy>(
        &self,
        operands: &[Shared<T>],
        one: T,
        mul: impl Fn(T, T) -> T,
        total: impl Fn(&mut dyn Iterator<Item = T>) -> T,
    ) -> Option<Shared<T>> {
        let summed = self.summed();
        let dims = self.dims(&self.output);
        let parts: Vec<_> = operands
            .iter()
            .zip(&self.operands)
            .map(|(a, labels)| {
                let steps = strides(a.shape());
                let along = |label: &Label| {
                    let own = labels.iter().zip(a.shape()).zip(&steps);
                    own.filter(|((l, d), _)| *l == label && **d != 1)
                        .map(|(_, step)| *step as isize)
                        .sum::<isize>()
                };
                let places = |labels: &[Label]| {
                    let steps: Vec<isize> = labels.iter().map(along).collect();
                    offsets(&self.dims(labels), &steps, 0)
                };
                (flat(a), places(&self.output), places(&summed))
            })
            .collect();
        let terms = elements(&self.dims(&summed))?;
        let out = (0..elements(&dims)?).map(|o| {
            total(&mut (0..terms).map(|s| {
                let factors = parts.iter().map(|(all, at, inner)| all[at[o] + inner[s]]);
                factors.fold(one, &mul)
            }))
        });
        from_vec(&dims, out.collect())
    }
}

/// The number of multiplications, where the operands fit the equation.
pub(super) fn multiplications(node: &Node, inputs: &[Option<&Value>]) -> Option<usize> {
    let dims: Option<Vec<&[usize]>> = inputs.iter().map(|v| (*v)?.dims.as_deref()).collect();
    let equation = Equation::read(node.string("equation").ok()??, &dims?).ok()?;
    let lengths = equation.lengths.iter().map(|l| l.1);
    Some(lengths.fold(1, usize::saturating_mul))
}

/// The labels of a term with an ellipsis of `hidden` axes; `None` where it is malformed.
fn labels(term: &str, hidden: usize) -> Option<Vec<Label>> {
    let hidden = if term.contains('.') { hidden } else { 0 };
    labels_of(term, hidden)
}

fn labels_of(term: &str, hidden: usize) -> Option<Vec<Label>> {
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (term, None),
    };
    let mut labels: Vec<Label> = before.chars().map(Label::Letter).collect();
    if let Some(after) = after {
        labels.extend((0..hidden).rev().map(Label::Ellipsis));
        labels.extend(after.chars().map(Label::Letter));
    }
    let letter = |l: &Label| !matches!(l, Label::Letter(c) if !c.is_ascii_alphabetic());
    labels.iter().all(letter).then_some(labels)
}

/// The output of an equation without a right side: the ellipsis, then the letters that occur once,
/// sorted.
fn implied(operands: &[Vec<Label>]) -> Vec<Label> {
    let all: Vec<Label> = operands.iter().flatten().copied().collect();
    let uses = |l: &Label| all.iter().filter(|k| *k == l).count();
    let mut output: Vec<Label> = all
        .iter()
        .copied()
        .filter(|l| matches!(l, Label::Ellipsis(_)) || uses(l) == 1)
        .collect();
    output.sort_by_key(|l| match l {
        Label::Ellipsis(i) => (0, usize::MAX - i),
        Label::Letter(c) => (1, *c as usize),
    });
    output.dedup();
    output
}

pub(super) fn einsum(c: &Call<'_>) -> Outputs {
    let text = c.string("equation")?.ok_or(Why::Attribute("equation"))?;
    let dtype = c.inputs.iter().flatten().find_map(|v| v.dtype);
    let mut dims = Vec::with_capacity(c.inputs.len());
    for i in 0..c.inputs.len() {
        match c.need(i)?.dims.as_deref() {
            Some(d) => dims.push(d),
            None => return typed(dtype),
        }
    }
    let equation = Equation::read(text, &dims)?;
    let result = equation.dims(&equation.output);
    Ok(vec![c.value(dtype, result, |result| {
        let summed = equation.dims(&equation.summed());
        let work = [result, &summed].concat();
        let known = c.inputs.iter().flatten().all(|v| v.data.is_some());
        if !known || !c.budget.allows(&summed) || !c.budget.allows_work(&work) {
            return None;
        }
        let arrays = c.arrays()?;
        if let Some(all) = collect(&arrays, Array::floats) {
            return Some(Array::Float(equation.floats(&all)?));
        }
        Some(Array::Int(equation.ints(&collect(&arrays, Array::ints)?)?))
    })])
}

fn collect<T>(arrays: &[Array], of: impl Fn(Array) -> Option<T>) -> Option<Vec<T>> {
    arrays.iter().cloned().map(of).collect()
}
