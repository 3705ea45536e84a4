//! How many samples or frames of the inputs make so many tokens, where convolutions join several into one.

use posenc_ir::ValueId;
use posenc_ir::eval::{Budget, Trace};

use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::run_at;
use crate::graph::ports::Lengths;

/// Sizes alone are read of the runs.
const SIZES: Budget = Budget { elements: 1 << 16 };

/// Runs in which a number of frames is looked for.
const TRIES: usize = 4;

/// Where tokens and frames are counted.
pub(in crate::prove) struct Frames {
    /// What rows are added to.
    content: ValueId,
    /// Its axis of tokens.
    axis: usize,
    /// Class tokens before those that are counted.
    lead: usize,
    /// The frames and all tokens of two runs.
    seen: [[usize; 2]; 2],
}

impl Frames {
    /// The count of the tokens to which rows are added, without class tokens; `None` where each further token
    /// is one element of the inputs, and where nothing else is added there.
    pub(in crate::prove) fn of(context: &Context<'_>, finding: &Finding) -> Option<Self> {
        let (entry, lead) = (finding.entries.first()?, finding.lead);
        let (found, node) = (context.found, context.graph().node(entry.node));
        let elements = found.lengths.past + found.lengths.sequence + lead;
        let mut sites = finding.sites.iter().map(|site| context.site(*site));
        if sites.any(|site| site.keys(&found.trace) == Some(elements)) {
            return None;
        }
        let mut others = (0..node.inputs().len()).filter(|slot| *slot != entry.slot());
        let content = others.find_map(|slot| {
            let value = node.input(slot)?;
            context.is_content(value).then_some(value)
        })?;
        let frames = found.lengths.sequence;
        let longer = frames.checked_mul(2)?;
        let sizes = |sequence| {
            let run = run(context, sequence)?;
            run.get(content).dims.clone()
        };
        let (first, second) = (sizes(frames)?, sizes(longer)?);
        let mut grows = (0..first.len()).filter(|axis| second.get(*axis) > first.get(*axis));
        let (axis, None) = (grows.next()?, grows.next()) else {
            return None;
        };
        let seen = [[frames, first[axis]], [longer, second[axis]]];
        let is_joined = second[axis] - first[axis] != longer - frames;
        is_joined.then_some(Self {
            content,
            axis,
            lead,
            seen,
        })
    }

    /// Frames that make so many tokens; `None` where none were found.
    pub(in crate::prove) fn for_tokens(
        &self,
        context: &Context<'_>,
        tokens: usize,
    ) -> Option<usize> {
        let [[frames, few], [longer, many]] = self.seen;
        let tokens = tokens.checked_add(self.lead)?;
        let (step, more) = (longer.checked_sub(frames)?, many.checked_sub(few)?);
        let mut at = frames;
        let mut made = few;
        for _ in 0..TRIES {
            if made == tokens {
                return Some(at);
            }
            let moved = tokens.abs_diff(made).checked_mul(step)?.div_ceil(more);
            at = match made < tokens {
                true => at.checked_add(moved)?,
                false => at.checked_sub(moved)?,
            };
            let run = run(context, at)?;
            made = *run.get(self.content).dims.as_ref()?.get(self.axis)?;
        }
        (made == tokens).then_some(at)
    }
}

/// One sequence of so many elements of the inputs, without a cache.
fn run(context: &Context<'_>, sequence: usize) -> Option<Trace> {
    let wanted = Lengths {
        batch: 1,
        sequence,
        past: 0,
    };
    run_at(context.model, context.found, wanted, &SIZES)
}
