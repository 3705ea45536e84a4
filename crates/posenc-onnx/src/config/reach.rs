//! The lengths of a model whose rotations change.

use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::Scaling;
use posenc_encodings::laws::shared::ORIGINAL_LENGTH;

use super::lengths::{Lengths, Span, shortest};
use crate::plan::rescale::Plan;
use crate::report::Limits;
use crate::request::Request;
use crate::request::hf_config::RopeRequest;

/// The lengths that a rewrite of rotations knows of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// The length that the request or the config that it follows names.
    named: Option<usize>,
    /// The length that the model was trained for, as the request says.
    given: Option<usize>,
    /// The same, as the record of an earlier rewrite says.
    recorded: Option<usize>,
    /// The same, as it was inferred for a graph that is not scaled: what a config or a table says of one
    /// that is scaled may be the longer length.
    inferred: Option<usize>,
}

/// What a config says of its lengths and of a layer that changes, before it is edited.
#[derive(Debug)]
pub(super) struct Said<'a> {
    /// The layer.
    pub(super) now: &'a RopeRequest,
    /// The length of the model.
    pub(super) max: Option<usize>,
    /// Whether that layer is what the rewrite makes of it.
    pub(super) is_done: bool,
}

impl Reach {
    /// What the plans of all branches, the request and the record say.
    pub(super) fn of(
        plans: &[Option<Plan>],
        request: &Request,
        recorded: Option<usize>,
        is_scaled: bool,
    ) -> Self {
        let plans = || plans.iter().flatten();
        let planned = plans().filter_map(|plan| plan.max_length).max();
        let is_original = |value: &&Inferred| value.name == ORIGINAL_LENGTH.name;
        let mut inferred = plans().flat_map(|plan| &plan.inferred).filter(is_original);
        let inferred = inferred.find_map(|value| usize::try_from(value.value.as_u64()?).ok());
        let p = &request.parameters;
        Self {
            named: p
                .max_length
                .or(planned.filter(|_| request.hf_config.is_some())),
            given: p.original_length,
            recorded,
            inferred: inferred.filter(|_| !is_scaled),
        }
    }

    /// The lengths before and after a law. A law that stretches RoPE says how far; nothing in the graph
    /// may end before.
    pub(super) fn lengths(
        &self,
        law: &Scaling,
        said: &Said<'_>,
        limits: &Limits,
    ) -> (Lengths, Vec<String>) {
        let [before, after] = [&limits.before, &limits.after].map(|limits| shortest(limits));
        let original = self.original(law, said);
        let new = original.and_then(|length| law.extended(length));
        let Some(mut new) = self.named.or(new) else {
            let is_unknown = original.is_none() && !said.is_done;
            let warning = said.max.filter(|_| is_unknown).map(unknown);
            return (Lengths::of_limits(limits), warning.into_iter().collect());
        };
        let mut warnings = vec![];
        if let Some(after) = after.filter(|after| *after < new) {
            if self.named.is_none() {
                warnings.push(format!(
                    "the graph still ends at {after}, below the {new} positions that the law is \
                     for, and so do the lengths of the config"
                ));
            }
            new = after;
        }
        let mut old = self.old(law, said);
        old.extend(before);
        if old.is_empty() {
            old.extend(said.max);
        }
        old.sort_unstable();
        old.dedup();
        old.retain(|old| *old != new);
        let spans = old.into_iter().map(|old| Span::of_model(old, new));
        let lengths = Lengths {
            spans: spans.collect(),
            ..Lengths::default()
        };
        (lengths, warnings)
    }

    /// The length that the model was trained for. That of the config is the longer one where the config
    /// says a scaling, or what the rewrite makes of the model.
    fn original(&self, law: &Scaling, said: &Said<'_>) -> Option<usize> {
        let explicit = said.now.scaling.original_length();
        let stated = law.original_length().or(self.given).or(self.recorded);
        let known = stated.or(explicit).or(self.inferred);
        known.or(said.max.filter(|_| !said.is_done && !is_scaled(said.now)))
    }

    /// Lengths that the model had before.
    fn old(&self, law: &Scaling, said: &Said<'_>) -> Vec<usize> {
        let stated = [
            self.given,
            self.recorded,
            law.original_length(),
            self.inferred,
        ];
        let mut old: Vec<usize> = stated.into_iter().flatten().collect();
        if is_scaled(said.now) || self.recorded.is_some() {
            old.extend(said.max);
        }
        if let Some(original) = said.now.scaling.original_length() {
            old.push(original);
            old.extend(said.now.scaling.extended(original));
        }
        old
    }
}

fn is_scaled(now: &RopeRequest) -> bool {
    now.scaling != Scaling::None
}

/// What a user should know where the length of a config may be the original one or a longer one.
fn unknown(max: usize) -> String {
    format!(
        "the config says a scaling, and nothing says which length the model was trained for, so that its \
         lengths stay as they are ({max})"
    )
}
