//! One branch of a model, with what is planned there.

use crate::detect::context::Context;
use crate::plan::stretch::Plan;

/// What is planned in one branch.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) plan: &'a Plan,
}
