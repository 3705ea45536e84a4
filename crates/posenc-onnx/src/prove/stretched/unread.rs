//! Why nothing is found of what was stretched.

use crate::detect::context::Context;
use crate::plan::stretch::Plan;

/// Why a stretched encoding cannot be read back.
pub(super) fn why(before: &Context<'_>, plan: &Plan) -> String {
    let run = before.found.lengths.sequence;
    let shortest = plan.tables.iter().map(|table| table.new).min();
    match shortest.filter(|new| *new < run) {
        Some(new) => format!(
            "the result is read in runs of {run} tokens, for which a length of {new} is too short; give a \
             length of {run} or more"
        ),
        None => "the stretched encoding cannot be read back".to_owned(),
    }
}
