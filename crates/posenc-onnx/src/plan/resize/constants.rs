//! Constants that follow from the grid of patches or from the length: sizes, rows that are the same for every
//! token, and numbers for each token that follow a rule.

use std::collections::{BTreeMap, BTreeSet};

use ndarray::{ArrayD, Axis, Slice};
use posenc_ir::{Tensor, Use, ValueId};

use super::elements;
use super::numbers::{Number, shorten};
use super::rules::Rule;
use super::sizes::{Plan, Wanted};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::extent::Extent;

/// What a constant is for any grid or length.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    /// The constant that it replaces.
    pub(crate) value: ValueId,
    /// Its numbers, or its dimensions: each is fixed or follows from the grid.
    pub(crate) each: Vec<Number>,
    /// What `each` holds.
    pub(crate) whole: Whole,
}

/// What the numbers of [`Following::each`] are.
#[derive(Clone, Debug)]
pub(crate) enum Whole {
    /// The numbers of the constant, a list.
    List,
    /// The one number of the constant, which has no axis.
    Number,
    /// The dimensions of the constant, which is this tensor repeated.
    Dims(Tensor),
    /// The dimensions of the constant, whose numbers follow this rule.
    Rule(Rule),
    /// The dimensions of the first rows of the constant.
    Rows,
}

/// What the constants that follow are for any grid or length. `seen` are the grids: the old one, and that of
/// each plan; both sides of a sequence are its length.
///
/// # Errors
/// With the first that is no size, or follows in another way.
pub(super) fn constants(
    context: &Context<'_>,
    plans: &[Plan],
    seen: &[[usize; 2]],
) -> Result<BTreeMap<Use, Following>, RewriteError> {
    let uses = plans
        .iter()
        .flat_map(|plan| plan.constants.keys().chain(plan.cuts.keys()));
    let uses: BTreeSet<Use> = uses.copied().collect();
    let graph = context.graph();
    let read = |at: Use| Some((at, graph.node(at.node).input(at.slot())?));
    let all = uses.into_iter().filter_map(read);
    all.map(|(at, value)| {
        let own = Read {
            context,
            plans,
            seen,
            at,
            value,
        };
        Ok((at, own.following()?))
    })
    .collect()
}

/// A constant where it is read.
struct Read<'a> {
    context: &'a Context<'a>,
    plans: &'a [Plan],
    seen: &'a [[usize; 2]],
    at: Use,
    value: ValueId,
}

impl Read<'_> {
    fn following(&self) -> Result<Following, RewriteError> {
        let dims = self.context.dims(self.value).unwrap_or_default();
        if self
            .plans
            .iter()
            .any(|plan| plan.cuts.contains_key(&self.at))
        {
            return self.first_rows(dims);
        }
        let is_same = |plan: &Plan| {
            let new = plan.constants.get(&self.at);
            new.is_none_or(|(_, tensor)| tensor.dims() == dims)
        };
        let is_int = self.context.dtype(self.value).is_int();
        if is_int && dims.len() < 2 && self.plans.iter().all(is_same) {
            self.sizes(dims)
        } else {
            self.repeated(dims)
        }
    }

    /// Sizes.
    fn sizes(&self, dims: &[usize]) -> Result<Following, RewriteError> {
        let node = self.context.graph().node(self.at.node);
        let old = self.context.found.trace.get(self.value).to_i64();
        let old = old.ok_or_else(|| self.refuse("sizes that are not at hand"))?;
        let mut lists: Vec<Vec<i64>> = vec![old.iter().copied().collect()];
        for plan in self.plans {
            let new = plan.constants.get(&self.at);
            let new = new.and_then(|(_, tensor)| tensor.to_i64s());
            lists.push(new.unwrap_or_else(|| lists[0].clone()));
        }
        let mut each = self.fitted(&lists)?;
        let allows_zero = matches!(node.int("allowzero"), Ok(Some(n)) if n != 0);
        if node.is("Reshape") && self.at.slot() == 1 && !allows_zero {
            let (from, to) = (node.input(0), node.output(0));
            let kept = |axis: usize| {
                self.plans.iter().all(|plan| {
                    let own = |value: Option<ValueId>| plan.axes.get(&value?)?.get(axis);
                    own(from).is_some_and(|own_axis| Some(own_axis) == own(to))
                })
            };
            shorten(&mut each, kept);
        }
        Ok(Following {
            value: self.value,
            each,
            whole: if dims.is_empty() {
                Whole::Number
            } else {
                Whole::List
            },
        })
    }

    /// The first rows.
    fn first_rows(&self, dims: &[usize]) -> Result<Following, RewriteError> {
        let list = |dims: &[usize]| dims.iter().map(|n| *n as i64).collect();
        let mut lists = vec![list(dims)];
        for plan in self.plans {
            let cut = plan.cuts.get(&self.at);
            let (_, axes) = cut.ok_or_else(|| self.refuse("rows that some lengths cut alone"))?;
            let cut: Vec<usize> = axes.iter().map(Extent::after).collect();
            lists.push(list(&cut));
        }
        Ok(Following {
            value: self.value,
            each: self.fitted(&lists)?,
            whole: Whole::Rows,
        })
    }

    /// What is the same for every token, as a mask that hides nothing, or follows a rule.
    fn repeated(&self, dims: &[usize]) -> Result<Following, RewriteError> {
        let why = match self.is_length() {
            true => "numbers for each token, of which sequences of any length would need others",
            false => "numbers for each token, of which images of any size would need others",
        };
        let mut lists = vec![dims.to_vec()];
        for plan in self.plans {
            let new = plan.constants.get(&self.at);
            let new = new.map_or(dims, |(_, tensor)| tensor.dims());
            lists.push(new.to_vec());
        }
        if lists.iter().any(|list| list.len() != dims.len()) {
            return Err(self.refuse(why));
        }
        let sides: Vec<Vec<i64>> = lists
            .iter()
            .map(|list| list.iter().map(|n| *n as i64).collect())
            .collect();
        let each = self.fitted(&sides)?;
        if !each.iter().any(|number| number.follows()) {
            return Err(self.refuse(match self.is_length() {
                true => "numbers that follow from the length, and are no list of sizes",
                false => "numbers that follow from the grid of patches, and are no list of sizes",
            }));
        }
        let old = elements::read(self.context.found.trace.get(self.value));
        let mut numbers = old.ok_or_else(|| self.refuse(why))?;
        let follow = each.iter().enumerate().filter(|(_, n)| n.follows());
        let follow: Vec<usize> = follow.map(|(axis, _)| axis).collect();
        if let Some(rule) = self.rule(&numbers, &follow) {
            return Ok(Following {
                value: self.value,
                each,
                whole: Whole::Rule(rule),
            });
        }
        for axis in follow {
            let first = numbers.slice_axis(Axis(axis), Slice::from(..1)).to_owned();
            let is_same = numbers
                .axis_iter(Axis(axis))
                .all(|row| row == first.index_axis(Axis(axis), 0));
            if !is_same {
                return Err(self.refuse(why));
            }
            numbers = first;
        }
        let one = elements::tensor(self.context.dtype(self.value), &numbers);
        Ok(Following {
            value: self.value,
            each,
            whole: Whole::Dims(one),
        })
    }

    /// The rule of a sequence that numbers follow along all of these axes.
    fn rule(&self, numbers: &ArrayD<f64>, axes: &[usize]) -> Option<Rule> {
        let first = axes.first().filter(|_| self.is_length())?;
        let rule = Rule::along(numbers, *first)?;
        let is_constant = |axis: &usize| {
            let mut rows = numbers.axis_iter(Axis(*axis));
            let first = rows.next();
            rows.all(|row| Some(row) == first)
        };
        let follows = rule.axes() == *axes && !axes.iter().all(is_constant);
        follows.then_some(rule)
    }

    /// Whether the length of sequences is left open, and not the size of images.
    fn is_length(&self) -> bool {
        let first = self.plans.first();
        first.is_some_and(|plan| matches!(plan.wanted, Wanted::OpenLength { .. }))
    }

    /// The numbers at each place of lists: that of the old grid, and that of each plan.
    fn fitted(&self, lists: &[Vec<i64>]) -> Result<Vec<Number>, RewriteError> {
        let places = 0..lists.first().map_or(0, Vec::len);
        let each = places.map(|place| {
            let own: Option<Vec<i64>> = lists.iter().map(|list| list.get(place).copied()).collect();
            let fitted = own.and_then(|own| Number::fitted(&own, self.seen));
            fitted.ok_or_else(|| {
                self.refuse(match self.is_length() {
                    true => "a size that does not follow from the number of tokens as a product",
                    false => {
                        "a size that does not follow from the rows and columns of patches as a product"
                    }
                })
            })
        });
        each.collect()
    }

    fn refuse(&self, what: &str) -> RewriteError {
        let op = self.context.graph().node(self.at.node).op();
        self.context
            .refuse(self.at.node, format!("this {op} reads {what}"))
    }
}
