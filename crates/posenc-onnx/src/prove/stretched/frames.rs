//! How many samples or frames of the inputs make so many tokens, where convolutions join several into one.

use posenc_ir::ValueId;
use std::cmp::Ordering;

use posenc_ir::eval::{Budget, Trace};

use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::run_at;
use crate::graph::ports::Lengths;

/// Sizes alone are read of the runs.
const SIZES: Budget = Budget { elements: 1 << 16 };

/// Runs in which a number of frames is looked for.
const TRIES: usize = 24;

/// Tokens by which the first guess may be off.
const NEAR: usize = 4;

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
        let found = context.found;
        if found.are_elements(finding) {
            return None;
        }
        let entry = finding.entries.first()?;
        let node = context.graph().node(entry.node);
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
            lead: finding.lead,
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
        let count = |frames: usize| {
            let run = run(context, frames)?;
            run.get(self.content).dims.as_ref()?.get(self.axis).copied()
        };
        let moved = tokens.abs_diff(few).checked_mul(step)? / more;
        let mut at = match few < tokens {
            true => frames.checked_add(moved)?,
            false => frames.saturating_sub(moved).max(1),
        };
        // More frames make no fewer tokens: first both sides of the goal are looked for, then the middle is tried.
        let (mut too_few, mut too_many) = (None, None);
        let mut reach = step.div_ceil(more).checked_mul(NEAR)?;
        for _ in 0..TRIES {
            match count(at)?.cmp(&tokens) {
                Ordering::Equal => return Some(at),
                Ordering::Less => too_few = Some(at),
                Ordering::Greater => too_many = Some(at),
            }
            at = match (too_few, too_many) {
                (Some(few), Some(many)) if many > few + 1 => few + (many - few) / 2,
                (Some(few), None) => few.checked_add(reach)?,
                (None, Some(many)) if many > 1 => many.saturating_sub(reach).max(1),
                _ => return None,
            };
            reach = reach.checked_mul(2)?;
        }
        None
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
