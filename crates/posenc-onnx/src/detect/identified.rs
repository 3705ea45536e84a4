//! The law of a rotation that was found.

use posenc_ir::DType;

use crate::detect::{Found, RotarySite, Switch};
use posenc_encodings::families::rope::Rope;
use posenc_encodings::laws::{Identified, identify, identify_growth, identify_lists};

/// The laws that were identified already. Sites that rotate alike have one law.
pub(crate) struct KnownLaws<'a> {
    found: &'a Found,
    known: Vec<(&'a RotarySite, Identified)>,
}

impl<'a> KnownLaws<'a> {
    /// Of the sites of a model.
    pub(crate) fn of(found: &'a Found) -> Self {
        let known = vec![];
        Self { found, known }
    }

    /// The law of a site.
    pub(crate) fn law(&mut self, site: &'a RotarySite) -> &Identified {
        let alike = |other: &RotarySite| {
            other.query.rotation.rope == site.query.rotation.rope
                && other.switch == site.switch
                && tolerance(self.found, other) == tolerance(self.found, site)
        };
        let at = self.known.iter().position(|(other, _)| alike(other));
        let at = at.unwrap_or_else(|| {
            self.known.push((site, identified(self.found, site)));
            self.known.len() - 1
        });
        &self.known[at].1
    }
}

/// The scaling of a site, identified from its numbers.
fn identified(found: &Found, site: &RotarySite) -> Identified {
    let rope = &site.query.rotation.rope;
    let tolerance = tolerance(found, site);
    let near = identify(
        &rope.inv_freq,
        rope.attention_factor,
        rope.rotary_dim,
        rope.head_dim,
        tolerance,
    );
    match &site.switch {
        None => near,
        Some(switch) => switched(rope, switch, near, tolerance.max(1e-5)),
    }
}

/// The scaling of a rotation that changes with the length: a base that grows, or two lists.
fn switched(rope: &Rope, switch: &Switch, near: Identified, tolerance: f64) -> Identified {
    let original = switch.original_length;
    let mut samples = vec![
        (original.div_ceil(2), rope.inv_freq.clone()),
        (original, rope.inv_freq.clone()),
    ];
    let beyond = switch.beyond.iter();
    samples.extend(beyond.map(|(length, rope)| (*length, rope.inv_freq.clone())));
    if let Some(growth) = identify_growth(&samples, rope.rotary_dim, tolerance) {
        return growth;
    }
    let theta = near.theta.filter(|_| near.scaling.is_none());
    match switch.beyond.last() {
        Some((_, long)) => {
            identify_lists(&rope.inv_freq, &long.inv_freq, original, theta, tolerance)
        }
        None => near,
    }
}

/// How exactly the graph stores its frequencies, as a share of each.
fn tolerance(found: &Found, site: &RotarySite) -> f64 {
    match found.trace.get(site.query.region.output).dtype {
        Some(DType::F16) => 2e-3,
        Some(DType::BF16) => 1e-2,
        _ => 2e-6,
    }
}
