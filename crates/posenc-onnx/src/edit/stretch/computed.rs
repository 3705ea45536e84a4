//! Divides the positions of which the graph computes sines and cosines.

use posenc_ir::{Emitter, Use, ValueId};
use rustc_hash::FxHashSet;

use super::factors::Factors;
use crate::detect::context::Context;
use crate::edit::rescale::reached::{Elsewhere, Touched, elsewhere};
use crate::error::{Refusal, RewriteError};
use crate::graph::dataflow::Class;
use crate::graph::region::ancestors;
use crate::plan::stretch::{ComputedWaves, Plan};

impl Factors {
    /// Divides the positions of sines and cosines.
    ///
    /// # Errors
    /// Where these are not found, or where something that stays is computed of them too.
    pub(super) fn divide_positions(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        plan: &Plan,
        waves: &ComputedWaves,
    ) -> Result<(), RewriteError> {
        let (graph, found) = (context.graph(), context.found);
        let finding = &found.findings[waves.finding];
        let added = finding.entries.iter();
        let added = added.filter_map(|at| graph.node(at.node).input(at.slot()));
        let all = ancestors(graph, &found.classes, added.collect());
        let own: FxHashSet<ValueId> = all.iter().copied().collect();
        let places = places(context, &all);
        if places.is_empty() {
            let why = "the positions of which sines and cosines are computed were not found";
            return Err(context.refuse_finding(Some(finding), why));
        }
        for value in places {
            let leads = |at: &&Use| {
                let mut made = graph.node(at.node).outputs().iter().flatten();
                made.any(|made| own.contains(made))
            };
            let uses: Vec<Use> = graph.uses(value).iter().filter(leads).copied().collect();
            check_uses(context, plan, &uses)?;
            let key = (graph.value(value).scope(), value);
            let divided = self.quotient(out, context, key, waves.factor);
            for at in uses {
                if self.done.insert(at) {
                    out.redirect_use(value, at, divided)?;
                }
            }
        }
        Ok(())
    }
}

/// What is divided: the numbers that count up from token to token, behind whatever is added to them, or the angles
/// where there are none.
fn places(context: &Context<'_>, all: &[ValueId]) -> Vec<ValueId> {
    let graph = context.graph();
    let angles = all.iter().filter_map(|value| {
        let (id, _) = graph.producer(*value)?;
        let node = graph.node(id);
        let is_wave = node.is("Sin") || node.is("Cos");
        node.input(0).filter(|_| is_wave)
    });
    let angles: Vec<ValueId> = angles.collect();
    let behind = ancestors(graph, &context.found.classes, angles.clone());
    let counting = behind.into_iter().filter(|v| counts_up(context, *v));
    let counting: Vec<ValueId> = counting.collect();
    // What is added to positions comes before the last of these.
    let made = counting.iter().filter_map(|value| graph.producer(*value));
    let read = made.flat_map(|(id, _)| graph.node(id).inputs().iter().flatten().copied());
    let before = ancestors(graph, &context.found.classes, read.collect());
    let before: FxHashSet<ValueId> = before.into_iter().collect();
    let last = counting.iter().filter(|value| !before.contains(value));
    let last: Vec<ValueId> = last.copied().collect();
    if last.is_empty() { angles } else { last }
}

/// Whether a value has positions in the trial run, as numbers of a float type that grow by one.
fn counts_up(context: &Context<'_>, value: ValueId) -> bool {
    let found = context.found;
    let numbers = found.trace.get(value);
    let is_float = numbers.dtype.is_some_and(|dtype| dtype.is_float());
    if !is_float || !found.classes.of_value(value).has(Class::POSITION) {
        return false;
    }
    let Some(numbers) = numbers.to_f64() else {
        return false;
    };
    let mut all: Vec<f64> = numbers.iter().copied().collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all.len() > 1 && all.windows(2).all(|pair| pair[1] - pair[0] == 1.0)
}

/// Refuses positions of which anything else is computed than the sines and cosines that are planned.
fn check_uses(context: &Context<'_>, plan: &Plan, uses: &[Use]) -> Result<(), RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let meant = plan.waves.iter();
    let meant = meant.flat_map(|waves| found.findings[waves.finding].entries.iter().copied());
    let made = uses.iter().flat_map(|at| graph.node(at.node).outputs());
    let touched = Touched {
        values: made.flatten().copied().collect(),
        nodes: vec![],
    };
    let why = "the positions of sines and cosines act here too, which would change with them";
    match elsewhere(graph, &found.classes, &touched, &meant.collect()) {
        None => Ok(()),
        Some(Elsewhere::Node(id)) => Err(context.refuse(id, why)),
        Some(Elsewhere::Output(value)) => {
            let place = format!("the output {}", graph.name(value));
            Err(Refusal::unsupported(why).at(place).into())
        }
    }
}
