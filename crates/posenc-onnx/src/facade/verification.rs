//! What a runtime computes, compared with formulas.

use crate::report::{Check, SiteCheck};

/// A comparison of what a runtime computes with formulas in f64, site by site.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Rescale, Tract};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Rescale::linear(2.0))?.apply()?;
/// let verification = done.verify(&Tract::default())?;
/// assert_eq!(verification.checks()[0].site, model.inspect().attention[0].name);
/// assert_eq!(verification.summary().map(|check| check.sites), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    pub(super) checks: Vec<SiteCheck>,
    /// Whether the model has something to compare.
    pub(super) is_expected: bool,
    /// The bytes of weights in whose place small ones ran.
    pub(super) stood_in: usize,
    /// Why something was left out that another runtime may compare.
    pub(super) left_out: Option<String>,
}

impl Verification {
    /// The comparisons; none where the model has no encoding.
    pub fn checks(&self) -> &[SiteCheck] {
        &self.checks
    }

    /// The bytes of weights that were too large to run, so that small ones ran in their place; 0 where
    /// the model ran with its own.
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Swap, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert_eq!(done.positions_left(&Tract::default())?.stood_in(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stood_in(&self) -> usize {
        self.stood_in
    }

    /// Why the runtime left something out that another one may compare, if it did: it does not take
    /// the model without causal attention, so that tokens behind that were compared with equal content
    /// alone and not in two orders.
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Swap, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert_eq!(done.positions_left(&Tract::default())?.left_out(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// The comparisons as one; `None` where there was none.
    pub fn summary(&self) -> Option<Check> {
        (!self.checks.is_empty()).then(|| Check::of(&self.checks))
    }

    /// Fails unless every comparison is within its bound.
    ///
    /// # Errors
    /// With the first comparison that is not. Where an encoding was inserted and nothing of it
    /// could be compared, with that.
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Rescale, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(2.0))?.apply()?;
    /// let verification = done.verify(&Tract::default())?;
    /// verification.ensure_ok()?;
    /// assert!(verification.summary().is_some_and(|check| check.ok));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ensure_ok(&self) -> Result<(), Unverified> {
        match self.checks.iter().find(|check| !check.ok) {
            Some(check) => Err(Unverified::Difference(check.clone())),
            None if self.is_expected && self.checks.is_empty() => Err(Unverified::NotCompared),
            None => Ok(()),
        }
    }
}

/// Why a result is not verified.
///
/// ```
/// use posenc_onnx::{Unverified, report::SiteCheck};
///
/// let (site, quantity) = ("layers.0".into(), "q".into());
/// let check = SiteCheck { site, quantity, max_error: Some(0.5), bound: 1e-3, ok: false };
/// let why = "layers.0: q differs from its formula by 5.0e-1, more than 1.0e-3";
/// assert_eq!(Unverified::Difference(check).to_string(), why);
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unverified {
    /// A comparison is out of its bound.
    #[error("{}: {} differs from its formula by {}, more than {:.1e}", .0.site, .0.quantity, number(.0.max_error), .0.bound)]
    Difference(SiteCheck),
    /// The inserted encoding was read back, and could not be run against its formula.
    #[error("what was inserted shows in no scores of its own, and was not run against its formula")]
    NotCompared,
}

fn number(error: Option<f64>) -> String {
    error.map_or_else(|| "NaN".to_owned(), |error| format!("{error:.1e}"))
}
