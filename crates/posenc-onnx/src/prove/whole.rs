//! That a runtime runs a whole model.

use posenc_ir::Model;
use posenc_runtime::Optimization;

use super::VerifyError;
use super::feeds::{Padding, feeds};
use super::run::{RuntimeTarget, Source, run};
use crate::detect::context::Context;
use crate::graph::ports::Lengths;

/// Runs a model without earlier tokens, and for one token behind some, optimized. `read` is the model in which everything was found.
/// Where it takes one sequence only, the reason is given.
///
/// # Errors
/// When the runtime does not load or run it, or no inputs can be made for it.
pub(crate) fn check(
    model: &Model,
    read: &Context<'_>,
    target: &RuntimeTarget<'_>,
) -> Result<Option<VerifyError>, VerifyError> {
    let setting = target.setting(Optimization::On);
    let Some(mut session) = target.open(&Source::of(model)?, Optimization::On)? else {
        return Err(VerifyError::unsupported(
            setting,
            "it does not optimize models",
        ));
    };
    let found = read.found;
    let ports = found.ports_with_width();
    let own = found.lengths;
    let mut at = |past: usize, sequence: usize, batch: usize| {
        let wanted = Lengths {
            past,
            batch,
            sequence,
        };
        let feeds = feeds(read.graph(), &ports, ports.fit(wanted), Padding::None)?;
        run(&mut *session, &feeds, &setting).map(drop)
    };
    let mut refused = at(0, own.sequence, own.batch).err();
    if refused.is_some() {
        at(0, own.sequence, 1)?;
    }
    if own.past > 0
        && let Err(why) = at(own.past, 1, own.batch)
    {
        at(own.past, 1, 1)?;
        refused = refused.or(Some(why));
    }
    Ok(refused)
}
