//! What the bias of a site was found to be.

use posenc_encodings::bias::AnyFit;
use posenc_encodings::kind::Kind;
use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, Use};

use crate::attention::Site;
use crate::attention::plane::Plane;
use crate::attention::scores::entries;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::runs::Runs;

/// What a site was found to be given.
pub(super) enum Verdict {
    /// No more than masks.
    Nothing,
    /// Something that could not be evaluated, for this reason.
    Unread(&'static str),
    Bias(Bias),
}

/// A bias without its place.
pub(super) struct Bias {
    pub(super) encoding: Encoding,
    pub(super) fit_error: Option<f64>,
    pub(super) max_length: Option<usize>,
    pub(super) evidence: Vec<String>,
    /// Why what it is made of cannot be told apart.
    pub(super) unread: Option<&'static str>,
}

impl Bias {
    pub(super) fn of(Best { kind, fit }: Best) -> Self {
        Self {
            encoding: Encoding::ScoreBias(kind, fit.bias),
            fit_error: fit.residual,
            max_length: fit.max_length,
            evidence: vec![],
            unread: None,
        }
    }

    pub(super) fn finding(&self, runs: &Runs<'_>, site: &Site) -> Finding {
        let found = runs.found;
        let entries = entries(runs.model.graph(), &found.classes, &found.trace, site);
        let biases: Vec<Use> = entries
            .iter()
            .copied()
            .filter(|u| may_bias(runs.model.graph(), &found.trace, *u))
            .collect();
        Finding {
            encoding: self.encoding.clone(),
            sites: vec![],
            entries: if biases.is_empty() { entries } else { biases },
            table: None,
            form: site.form,
            fit_error: self.fit_error,
            max_length: self.max_length,
            lead: 0,
            evidence: self.evidence.clone(),
        }
    }
}

/// A bias that no family fits.
pub(super) fn unknown(plane: &Plane, misses: Vec<String>) -> Bias {
    let [_, heads, queries, keys] = plane.bias.dim().into();
    let mut evidence = vec![format!(
        "a bias of {heads} heads is added to the scores whatever the content ({queries} queries, {keys} keys in the trial run)"
    )];
    evidence.extend(misses);
    Bias {
        evidence,
        encoding: Encoding::Unknown,
        fit_error: None,
        max_length: None,
        unread: None,
    }
}

/// The family that fits best.
pub(super) struct Best {
    pub(super) kind: Kind,
    pub(super) fit: AnyFit,
}

/// Whether a value that enters contains more than two numbers, as masks do not.
pub(crate) fn may_bias(graph: &Graph, trace: &Trace, at: Use) -> bool {
    let value = graph.node(at.node).input(at.slot()).map(|v| trace.get(v));
    let Some(value) = value.filter(|v| v.dtype != Some(DType::Bool)) else {
        return false;
    };
    let Some(data) = value.to_f64() else {
        return true;
    };
    let mut few: Vec<f64> = vec![];
    data.iter().any(|v| {
        if !few.contains(v) {
            few.push(*v);
        }
        few.len() > 2
    })
}
