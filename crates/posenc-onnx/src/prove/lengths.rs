//! The lengths at which whole models run.

use posenc_ir::Model;

use super::VerifyError;
use super::options::VerifyOptions;
use crate::detect::{Found, limits};
use crate::graph::ports::Lengths;

/// Lengths to run at by default.
const LENGTHS: [usize; 5] = [1, 2, 64, 65, 128];

/// The most scores of one attention in one run: 4 GiB in f32.
const SCORES: usize = 1 << 30;

/// The most multiplications for the scores of all attention in one run: minutes.
const WORK: usize = 1 << 38;

/// The lengths to run at, each once: those of the options, or the usual ones that fit the tables and
/// buffers of all models; adjusted to static shapes.
///
/// # Errors
/// Where a length of the options is more than a model supports, or more than can be run.
pub(crate) fn lengths(
    models: &[(&Model, &Found)],
    options: &VerifyOptions,
) -> Result<Vec<Lengths>, VerifyError> {
    let limits = models
        .iter()
        .flat_map(|(model, found)| limits::all(model.graph(), found));
    let limit = limits.min_by_key(|l| l.length);
    let limit = limit.as_ref();
    let ports = models.first().map(|(_, found)| &found.ports);
    let wanted: Vec<usize> = if options.lengths.is_empty() {
        let within = |l: &usize| limit.is_none_or(|limit| *l <= limit.length);
        LENGTHS.into_iter().filter(within).collect()
    } else {
        options.lengths.clone()
    };
    let mut all: Vec<Lengths> = vec![];
    for sequence in wanted {
        let wanted = Lengths {
            batch: 2,
            sequence,
            past: 0,
        };
        let at = ports.map_or(wanted, |ports| ports.fit(wanted));
        if let Some(limit) = limit.filter(|l| at.sequence > l.length) {
            let why = format!(
                "length {} is more than the {} that the model supports; give shorter `lengths`",
                at.sequence, limit.length
            );
            return Err(VerifyError::unsupported("verify", why));
        }
        for (_, found) in models {
            affordable(found, at)?;
        }
        if !all.contains(&at) {
            all.push(at);
        }
    }
    Ok(all)
}

/// Refuses a run that would take more memory or time than a comparison is worth.
fn affordable(found: &Found, at: Lengths) -> Result<(), VerifyError> {
    let scores = |heads: usize| {
        let numbers = at.batch.saturating_mul(heads).saturating_mul(at.sequence);
        numbers.saturating_mul(at.sequence)
    };
    let (mut most, mut work) = (0, 0usize);
    for site in &found.attention {
        let scores = scores(site.heads.unwrap_or(1));
        most = scores.max(most);
        work = work.saturating_add(scores.saturating_mul(site.head_dim.unwrap_or(1)));
    }
    if most <= SCORES && work <= WORK {
        return Ok(());
    }
    let why = format!(
        "length {} needs {most} scores in one attention and {work} multiplications, more than the \
         {SCORES} and {WORK} that are run; give shorter `lengths`",
        at.sequence
    );
    Err(VerifyError::unsupported("verify", why))
}
