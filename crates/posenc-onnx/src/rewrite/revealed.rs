//! Buffers whose end shows only where others reach further.

use posenc_ir::{Applied, Model};

use crate::detect::context::Context;
use crate::detect::{Found, Options, detect, limits};
use crate::edit::extend_buffers::extend_buffers;
use crate::error::RewriteError;

/// Buffers behind each other are few.
const ROUNDS: usize = 4;

/// A model whose buffers reach as far as they can.
pub(super) struct Revealed {
    pub(super) model: Model,
    pub(super) found: Found,
    /// How many constants were extended.
    pub(super) extended: usize,
}

impl Revealed {
    /// A model in which nothing was extended.
    pub(super) fn of(model: Model, found: Found) -> Self {
        Self {
            model,
            found,
            extended: 0,
        }
    }
}

/// Extends the buffers whose end shows only now that others reach further; what is done joins `applied`.
pub(super) fn with_revealed(
    model: Model,
    found: Found,
    options: &Options,
    wanted: usize,
    applied: &mut Applied,
) -> Result<Revealed, RewriteError> {
    let mut done = Revealed::of(model, found);
    for _ in 0..ROUNDS {
        let limits = limits::all(done.model.graph(), &done.found);
        if limits.iter().all(|limit| limit.length >= wanted) {
            break;
        }
        let context = Context {
            model: &done.model,
            found: &done.found,
        };
        let graph = done.model.graph();
        let mut out = graph.emitter(graph.main(), "posenc");
        let extended = extend_buffers(&mut out, &[context], wanted, &[])?;
        if extended == 0 {
            break;
        }
        let patch = out.finish();
        let (model, more) = done.model.with_patch(patch)?;
        applied.added.extend(more.added);
        applied.removed.extend(more.removed);
        applied.revalued.extend(more.revalued);
        applied.constants.extend(more.constants);
        done = Revealed {
            found: detect(&model, options),
            model,
            extended: done.extended + extended,
        };
    }
    Ok(done)
}
