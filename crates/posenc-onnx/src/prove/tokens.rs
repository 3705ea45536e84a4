//! That what was taken out of the scores is position, by numbers.
//!
//! With queries and keys of zero, the scores are what masks and positions add, and what else
//! follows which tokens there are: a number for pairs of equal tokens, or for some ids. Tokens are
//! exchanged for others, before the removal and after it. What was taken out has to be the same
//! whatever the tokens are, or nothing; what is left has to move with them. What a mask hides does
//! not count, nor do the queries of hidden tokens, which positions may skip.

use std::sync::Arc;

use posenc_ir::Use;
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::attention::plane::{MASKED, Plane};
use crate::attention::scores::{entries, plane_with};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::exchanged::{Exchanged, Seeds, exchanged};
use crate::plan::swap::SwapPlan;
use posenc_encodings::samples::most;

/// By which share of the largest number equal scores may differ.
const NEAR: f64 = 1e-6;

/// Compares the scores of the selected sites before and after the removal. Sites whose scores cannot
/// be computed without content are not compared.
///
/// # Errors
/// When what follows the tokens was taken out too, or acts together with position, with the node.
pub(crate) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    let found = before.found;
    let runs = exchanged(before.graph(), &found.ports, &found.trace);
    let mut seen = FxHashSet::default();
    for at in &plan.sites {
        let (old, new) = (before.site(*at), after.site(*at));
        let entering = entering(before, old);
        let Some(first) = entering.first() else {
            continue;
        };
        let address = |site: &Site| site.bias.as_ref().map(|p| Arc::as_ptr(p) as usize);
        let graph = before.graph();
        let read = |at: &Use| {
            let node = graph.node(at.node);
            (node.op(), at.slot(), node.input(at.slot()))
        };
        let reads: Vec<_> = entering.iter().map(read).collect();
        if !seen.insert((address(old), address(new), reads)) {
            continue;
        }
        let compared = Compared {
            contexts: [before, after],
            sites: [old, new],
        };
        if let Some(why) = compared.differs(&runs) {
            return Err(before.refuse(first.node, why));
        }
    }
    Ok(())
}

/// Where values enter the scores that may follow the tokens.
fn entering(context: &Context<'_>, site: &Site) -> Vec<Use> {
    let (graph, found) = (context.graph(), context.found);
    let mut all = entries(graph, &found.classes, &found.trace, site);
    all.retain(|at| {
        let value = graph.node(at.node).input(at.slot());
        value.is_some_and(|v| found.classes.of_value(v).has(Class::PADDING))
    });
    all
}

/// A site before and after the removal.
struct Compared<'a> {
    contexts: [&'a Context<'a>; 2],
    sites: [&'a Site; 2],
}

impl Compared<'_> {
    /// What is wrong, if anything.
    fn differs(&self, runs: &[Exchanged]) -> Option<&'static str> {
        let base = self.planes(&Seeds::default())?;
        for run in runs {
            let Some(ends) = self.planes(&run.ends) else {
                continue;
            };
            if !self.is_position(&base, &ends) {
                return Some(
                    "the scores depend here on which tokens there are, and not as a mask does; \
                     that cannot be separated from the position",
                );
            }
            let moved = run.moved.as_ref().and_then(|seeds| self.plane(1, seeds));
            let Some(moved) = moved.filter(|_| ends[1].bias != base[1].bias) else {
                continue;
            };
            if !moves(&ends[1], &moved, run) {
                return Some(
                    "position acts here on some tokens only; that cannot be separated from what \
                     these tokens are",
                );
            }
        }
        None
    }

    /// The scores of one of both with other inputs.
    fn plane(&self, which: usize, seeds: &Seeds) -> Option<Plane> {
        let (context, site) = (self.contexts[which], self.sites[which]);
        let found = context.found;
        plane_with(context.model, &found.classes, &found.trace, site, seeds)
    }

    fn planes(&self, seeds: &Seeds) -> Option<[Plane; 2]> {
        Some([self.plane(0, seeds)?, self.plane(1, seeds)?])
    }

    /// Whether what was taken out is the same with other tokens, or nothing, at all pairs that no
    /// mask hides.
    fn is_position(&self, base: &[Plane; 2], other: &[Plane; 2]) -> bool {
        let (groups, heads, queries, keys) = other[0].bias.dim();
        if other.iter().chain(base).any(|p| {
            let (_, _, rows, columns) = p.bias.dim();
            (rows, columns) != (queries, keys)
        }) {
            return true;
        }
        let all = base.iter().chain(other).flat_map(|p| p.bias.iter());
        let near = NEAR * most(all).max(1.0);
        (0..groups).all(|g| {
            (0..heads).all(|h| {
                let skipped = |i: usize| {
                    !self.sites[0].cross && is_hidden_key(&other[0], [g, h], i + other[0].past)
                };
                let taken = |planes: &[Plane; 2], i: usize, j: usize| {
                    cell(&planes[0], [g, h, i, j]) - cell(&planes[1], [g, h, i, j])
                };
                (0..queries).filter(|i| !skipped(*i)).all(|i| {
                    let pairs = (0..keys).map(|j| (taken(base, i, j), taken(other, i, j)));
                    let seen = pairs.filter(|(a, b)| a.is_finite() && b.is_finite());
                    let seen: Vec<(f64, f64)> = seen.collect();
                    let zero = |v: f64| v.abs() <= near;
                    let first = seen.first().map_or(0.0, |(a, b)| b - a);
                    seen.iter().all(|(a, b)| zero(b - a - first))
                        || seen.iter().all(|(a, b)| zero(b - a) || zero(*b))
                })
            })
        })
    }
}

/// A score of a plane that may have one group or head for all.
fn cell(plane: &Plane, [g, h, i, j]: [usize; 4]) -> f64 {
    let (groups, heads, ..) = plane.bias.dim();
    plane.bias[[g.min(groups - 1), h.min(heads - 1), i, j]]
}

/// Whether no query sees a key, but for those that see nothing.
fn is_hidden_key(plane: &Plane, [g, h]: [usize; 2], key: usize) -> bool {
    let (.., queries, keys) = plane.bias.dim();
    let sees = |i: usize, j: usize| !plane.is_hidden([g, h, i, j]);
    key < keys && (0..queries).all(|i| !sees(i, key) || !(0..keys).any(|j| sees(i, j)))
}

/// Whether scores move with the tokens, at all pairs that no mask hides.
fn moves(ends: &Plane, moved: &Plane, run: &Exchanged) -> bool {
    let (groups, heads, queries, keys) = ends.bias.dim();
    if queries != run.tokens || keys < queries || moved.bias.dim() != ends.bias.dim() {
        return true;
    }
    let near = NEAR * most(ends.bias.iter().chain(&moved.bias)).max(1.0);
    let best = |plane: &Plane, g: usize, h: usize, i: usize| {
        let row = (0..keys).map(|j| plane.bias[[g, h, i, j]]);
        row.fold(f64::NEG_INFINITY, f64::max)
    };
    (0..groups).all(|g| {
        (0..heads).all(|h| {
            (0..queries).all(|i| {
                let there = run.place(i);
                let tops = [best(ends, g, h, i), best(moved, g, h, there)];
                let pairs = (0..queries).map(|j| {
                    let past = keys - queries;
                    let a = ends.bias[[g, h, i, past + j]];
                    let b = moved.bias[[g, h, there, past + run.place(j)]];
                    (a, b)
                });
                let seen = pairs.filter(|(a, b)| tops[0] - a < MASKED && tops[1] - b < MASKED);
                let seen: Vec<f64> = seen.map(|(a, b)| b - a).collect();
                seen.iter().all(|d| (d - seen[0]).abs() <= near)
            })
        })
    })
}

#[cfg(test)]
mod tests;
