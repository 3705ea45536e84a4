//! Rotations of queries and keys: pairs of features rotate by an angle that grows with the position.
//!
//! A family of rotations implements [`Rotation`].

use posenc_ir::{DType, Emitter, Tensor, ValueId};

use crate::encoding::{Common, Encoding, PlanError, Planned, SiteShape, objects};
use crate::layout::Layout;
use crate::opset::Opset;

/// A rotation of queries and keys.
pub trait Rotation: Encoding + Object {
    /// The rotation of a site, from what is given and what the site is.
    ///
    /// # Errors
    /// Where given values do not fit the site or each other.
    fn plan(site: &SiteShape, common: &Common) -> Result<Self, PlanError>
    where
        Self: Sized;

    /// The features of a head.
    fn head_dim(&self) -> usize;

    /// What distinguishes it, where a graph has it.
    fn angles(&self) -> Angles;

    /// cos and sin of each pair at a position, in f64.
    fn reference(&self, position: f64) -> Vec<[f64; 2]> {
        let Angles {
            inv_freq, factor, ..
        } = self.angles();
        let wave = |f: &f64| {
            let (sin, cos) = (position * f).sin_cos();
            [factor * cos, factor * sin]
        };
        inv_freq.iter().map(wave).collect()
    }

    /// cos and sin `[token, column]` of the first positions, as [`Self::rotate`] reads them.
    fn tables(&self, count: usize, dtype: DType) -> [Tensor; 2];

    /// cos and sin `[.., token, column]` of positions `[.., token]` in floats of this type, f32 or
    /// f64; `lead` is the number of axes before the tokens.
    fn waves(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        positions: ValueId,
        lead: usize,
        dtype: DType,
    ) -> [ValueId; 2];

    /// Rotates `x`; cos and sin are aligned with its axes.
    fn rotate(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        x: ValueId,
        shape: Shape,
        waves: [ValueId; 2],
    ) -> ValueId;

    /// The same rotation for a context that is longer by this factor; `None` where the family does
    /// not support it.
    fn stretch(&self, _factor: f64) -> Option<Box<dyn Rotation>> {
        None
    }
}

objects!(Rotation);

/// The frequencies of a rotation and the pairs that they rotate.
#[derive(Clone, Debug, PartialEq)]
pub struct Angles {
    /// Radians per position, one for each pair.
    pub inv_freq: Vec<f64>,
    /// The factor on cos and sin.
    pub factor: f64,
    /// Which features are a pair; `None` where they follow no layout.
    pub layout: Option<Layout>,
}

impl Angles {
    /// Whether `found` is the same; frequencies and the factor may differ by a share of
    /// `tolerance`. A single pair fits either layout.
    pub fn matches(&self, found: &Self, tolerance: f64) -> bool {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * b;
        let count = self.inv_freq.len();
        found.inv_freq.len() == count
            && found.inv_freq.iter().zip(&self.inv_freq).all(near)
            && near((&found.factor, &self.factor))
            && (found.layout == self.layout || count == 1)
    }
}

/// The axes of what is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many there are.
    pub rank: usize,
    /// The axis of the features of a head.
    pub feature: usize,
}

/// The functions of a family of rotations that need no instance.
#[derive(Clone, Copy, Debug)]
pub struct RotationFamily {
    /// [`Rotation::plan`].
    pub plan: fn(&SiteShape, &Common) -> Planned<dyn Rotation>,
}

impl RotationFamily {
    /// The functions of this type.
    pub const fn of<T: Rotation>() -> Self {
        Self { plan: plan::<T> }
    }
}

fn plan<T: Rotation>(site: &SiteShape, common: &Common) -> Planned<dyn Rotation> {
    Ok(Box::new(T::plan(site, common)?))
}
