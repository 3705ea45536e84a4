//! Opening a graph of one length, before it is rewritten for another.

use posenc_ir::{Applied, Model};

use super::rewritten::Rewritten;
use super::summary::{Changed, edits, or_of_first};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{Found, detect, limits};
use crate::edit;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::resize::{open_length as plan, written_length};
use crate::plan::stretch;
use crate::prove::resized::open_length::{check, check_lengths};
use crate::prove::stretched::ends_from;
use crate::report::{Edit, Limit};
use crate::request::{Length, Request};
use crate::spelling;

/// A graph of one length, and the same for all lengths up to its limits.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The model that is rewritten.
    pub(crate) model: Model,
    /// The length that was written in the graph.
    pub(crate) old: usize,
    /// What was changed.
    applied: Applied,
    /// What was found in the model as it was.
    pub(crate) before: Found,
    /// What bounded its length.
    pub(crate) limits: Vec<Limit>,
}

/// Opens a model of one length where a request is for another; `None` where it is not, and where an encoding is
/// replaced in a graph that cannot be opened: a warning tells its length.
///
/// # Errors
/// Where something in the graph follows the length in no known way, and where the result is not what was
/// planned.
pub(crate) fn open(
    model: &Model,
    branches: &[Branch],
    request: &Request,
) -> Result<Option<Opened>, RewriteError> {
    let [branch] = branches else {
        return Ok(None);
    };
    let context = Context {
        model,
        found: &branch.found,
    };
    if !is_meant(&context, request) {
        return Ok(None);
    }
    match opened(model, branch) {
        Err(RewriteError::Refused(_)) if request.to.is_some() => Ok(None),
        Err(RewriteError::Refused(refusal)) => {
            let advice = "; export the model with an open sequence axis";
            Err(refusal.with(advice).into())
        }
        other => other,
    }
}

/// The same where another length is meant.
fn opened(model: &Model, branch: &Branch) -> Result<Option<Opened>, RewriteError> {
    let Branch { options, found } = branch;
    let limits = limits::all(model.graph(), found);
    // Indices for each token would follow the length too.
    let moved = spelling::without_places(model, &options.roles);
    let moved = moved.map(|model| (detect(&model, options), model));
    let (model, before) = match &moved {
        Some((found, model)) => (model, found),
        None => (model, found),
    };
    let context = Context {
        model,
        found: before,
    };
    let Some(plan) = plan(&context)? else {
        return Ok(None);
    };
    let (next, applied) = edit::resize::open_length(&context, &plan)?;
    let after = detect(&next, options);
    let result = Context {
        model: &next,
        found: &after,
    };
    check(&context, &result, &plan, options)?;
    Ok(Some(Opened {
        model: next,
        old: plan.old,
        applied,
        before: found.clone(),
        limits,
    }))
}

/// Whether a request is for other lengths than the one that is written in the graph.
fn is_meant(context: &Context<'_>, request: &Request) -> bool {
    let found = context.found;
    let Some(old) = written_length(context) else {
        return false;
    };
    let p = &request.parameters;
    if p.image_size.is_some() || p.length == Length::Dynamic {
        return false;
    }
    match p.max_length {
        Some(wanted) => wanted != old,
        // Rows of a table beyond the length would not be read.
        None => {
            let mut absolute = found.findings.iter().filter(|f| f.encoding.is_absolute());
            request.to.is_none()
                && request.scale.is_some()
                && stretch::is_meant(found, request)
                && absolute.any(|f| f.max_length == Some(old))
        }
    }
}

/// That a graph of one length stays one, where its encoding is rescaled; `None` where that is not so.
pub(crate) fn left(found: &Found, request: &Request) -> Option<String> {
    let p = &request.parameters;
    let is_rescale = request.to.is_none() && request.scale.is_some();
    let is_other = p.max_length.is_some() || p.image_size.is_some() || p.length == Length::Dynamic;
    let fixed = found
        .ports
        .fixed_sequence()
        .filter(|_| is_rescale && !is_other)?;
    Some(format!(
        "the graph takes {fixed} tokens, as before; give `max-length` for one that takes other numbers of tokens"
    ))
}

impl Opened {
    /// The edits of all sites, where nothing else changes.
    pub(crate) fn edits(&self, original: &Model, after: &Found) -> Vec<Edit> {
        let (from, to) = (entries(original, &self.before), entries(&self.model, after));
        let changed = Changed::of(0..self.before.attention.len(), &self.applied);
        let own = edits(
            &self.before,
            std::slice::from_ref(&changed),
            &from,
            &to,
            &|_| None,
        );
        or_of_first(own, &self.before, &changed)
    }

    /// Adds what was changed here to the counts of another edit.
    pub(crate) fn count(&self, edit: &mut Edit) {
        let changed = Changed::of([], &self.applied);
        edit.nodes_added += changed.nodes_added;
        edit.nodes_removed += changed.nodes_removed;
        edit.initializers_changed += changed.constants;
    }

    /// Compares the result with what was asked for: it takes every number of tokens up to the longest.
    ///
    /// # Errors
    /// With what does not.
    pub(crate) fn check(
        &self,
        done: &Rewritten,
        wanted: Option<usize>,
    ) -> Result<Option<String>, RewriteError> {
        let result = Context {
            model: &done.model,
            found: &done.found,
        };
        let limits = limits::all(done.model.graph(), &done.found);
        let ends = limits.first().map(|limit| limit.length);
        if let Some(wanted) = wanted {
            ends_from(&result, wanted, &|_| true)?;
        }
        check_lengths(&result, self.old, wanted.or(ends).unwrap_or(self.old + 1))
    }

    /// What a user should know.
    pub(crate) fn note(&self) -> String {
        format!(
            "the input takes {} tokens only; the output computes sizes, positions and masks of the tokens that it \
             gets, up to its limits",
            self.old
        )
    }
}
