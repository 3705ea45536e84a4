//! What of a model was not read, which stops a rewrite.

pub(crate) mod beside;
mod length;

use posenc_ir::Model;

use crate::detect::Found;
use crate::detect::branches::Branch;
use crate::error::{Refusal, RefusalKind};
use crate::graph::mixing::{Mixer, Mixing};
use crate::graph::operators::is_product;
use length::is_length;

/// What of a branch was not read, one sentence each, with its place: inputs without a role, attention that
/// was left out, operators that mix tokens and belong to no attention that was
/// recognized, and encodings that could not be evaluated.
pub(crate) fn of_branch(model: &Model, found: &Found) -> Vec<String> {
    let known = found.no_attention.iter().chain(&found.not_evaluated);
    // Softmaxes that were not recognized say more than the products around them.
    let mixers = mixers(model, found).filter(|_| found.no_attention.is_empty());
    // Where positions are encoded that were read, no other input has to contain them.
    let is_read = !found.findings.is_empty() || !found.rotary.is_empty() || !found.axial.is_empty();
    let unclear = found.ports.unclear().iter().filter(|_| !is_read).cloned();
    let oversized = found.ports.oversized().iter().cloned();
    let misplaced = oversized
        .chain(unclear)
        .chain(found.misplaced.iter().cloned());
    misplaced.chain(mixers).chain(known.cloned()).collect()
}

/// Operators that mix tokens and were not recognized, in one sentence.
fn mixers(model: &Model, found: &Found) -> Option<String> {
    let node = |mixer: &&Mixer| model.graph().node(mixer.node);
    // Without any attention, only what may be a product of queries and keys is worth a word.
    let counts = |m: &&Mixer| {
        let may_be_scores = is_product(node(m)) || node(m).is("Mul");
        !found.attention.is_empty() || may_be_scores && found.classes.content(node(m)).count() > 1
    };
    let others = found.mixers.iter().filter(|m| m.mixing == Mixing::Other);
    let others = others.filter(|m| !is_length(model.graph(), found, m.node));
    let mut others = others.filter(counts);
    let first = others.next()?.node;
    let op = model.graph().node(first).op();
    let more = match others.count() {
        0 => String::new(),
        1 => " (and one more node)".to_owned(),
        n => format!(" (and {n} more nodes)"),
    };
    Some(format!(
        "{}: this {op} mixes tokens and was not recognized as part of attention{more}",
        model.graph().place(first)
    ))
}

/// What of a model was not read, one sentence each.
pub(crate) fn unread(model: &Model, branches: &[Branch]) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for branch in branches {
        for why in of_branch(model, &branch.found) {
            if !all.contains(&why) {
                all.push(why);
            }
        }
    }
    all
}

/// Refuses to rewrite a model of which something was not read.
///
/// # Errors
/// With the first of it.
pub(crate) fn refuse(unread: &[String]) -> Result<(), Refusal> {
    let Some(first) = unread.first() else {
        return Ok(());
    };
    let more = match unread.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    let why = format!("{first}{more}; give `allow-unread` to rewrite the rest of the model");
    Err(Refusal::new(RefusalKind::Unread, why))
}
