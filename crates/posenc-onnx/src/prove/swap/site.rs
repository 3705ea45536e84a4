//! A site in both graphs of a proof.

use posenc_ir::ValueId;
use posenc_ir::eval::{Trace, Value};
use rustc_hash::FxHashMap;

use super::proof::Proof;
use crate::attention::Site;
use crate::plan::swap::Group;
use crate::prove::VerifyError;
use crate::prove::compute::Compute;

/// A trial run and what was fed.
pub(crate) type Traced = (Trace, FxHashMap<ValueId, Value>);

/// A site in the graph without encodings and in the one with the inserted encoding.
pub(crate) struct SwappedSite<'a> {
    pub(crate) by: &'a dyn Compute,
    pub(crate) proof: &'a Proof,
    pub(crate) bare: &'a Traced,
    pub(crate) swapped: &'a Traced,
    pub(crate) group: &'a Group,
    /// Its index in both detections.
    pub(crate) site: usize,
}

impl SwappedSite<'_> {
    /// The site before and after.
    pub(crate) fn sites(&self) -> Result<(&Site, &Site), VerifyError> {
        let (bare, swapped) = (&self.proof.bare.1, &self.proof.swapped.1);
        let both = bare
            .attention
            .get(self.site)
            .zip(swapped.attention.get(self.site));
        both.ok_or_else(|| {
            let site = format!("attention {}", self.site);
            VerifyError::unsupported(site, "no longer found as attention")
        })
    }
}

pub(crate) fn unsupported(site: &Site, why: &str) -> VerifyError {
    VerifyError::unsupported(&site.name, why)
}
