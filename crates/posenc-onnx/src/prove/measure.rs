//! Content for a rotation, and how far its result is from the formula.

use ndarray::{Array2, Array3, ArrayD, IxDyn};
use posenc_ir::{DType, Tensor};
use posenc_runtime::feeds::Random;

use super::bound::{Against, Precision, Worst};
use super::expected::{Expected, ExpectedFrequencies};
use crate::graph::lane::Lane;
use crate::graph::region::Region;
use posenc_encodings::families::rope::Rope;

/// The worst element against the formula, and against the stored frequencies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deviation {
    pub(crate) formula: Worst,
    pub(crate) stored: Worst,
}

impl Deviation {
    /// The worse of the two, for each comparison.
    pub(crate) fn worse(&self, other: &Self) -> Self {
        Self {
            formula: self.formula.worse(&other.formula),
            stored: self.stored.worse(&other.stored),
        }
    }

    fn add(&mut self, against: Against, got: f64, want: f64, bound: f64) {
        match against {
            Against::Formula => self.formula.add(got, want, bound),
            Against::Stored => self.stored.add(got, want, bound),
        }
    }
}

/// How far one rotation is from the formula.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) cos: Deviation,
    pub(crate) sin: Deviation,
    pub(crate) content: Deviation,
    /// The first position at which rounding leaves nothing to compare in some pair.
    pub(crate) blind: Option<i64>,
}

/// Two cosines differ by no more than this times their factor.
const RANGE: f64 = 2.0;

impl Measured {
    /// Whether a bound on cos and sin of the factor `m` allows every value, where the result is a
    /// number.
    fn is_blind(&mut self, position: f64, (bound, m): (f64, f64), got: f64) -> bool {
        let blind = bound > RANGE * m.abs() && got.is_finite();
        if blind {
            let position = position as i64;
            self.blind = Some(self.blind.map_or(position, |first| first.min(position)));
        }
        blind
    }

    /// The worse of two runs of the rotation.
    pub(crate) fn worse(&self, other: &Self) -> Self {
        Self {
            cos: self.cos.worse(&other.cos),
            sin: self.sin.worse(&other.sin),
            content: self.content.worse(&other.content),
            blind: self.first_blind(other),
        }
    }

    /// The first position at which nothing is compared in one of the two.
    pub(crate) fn first_blind(&self, other: &Self) -> Option<i64> {
        self.blind.into_iter().chain(other.blind).min()
    }

    /// Fails every comparison, for a result whose elements cannot be compared.
    fn fail(&mut self) {
        for deviation in [&mut self.cos, &mut self.sin, &mut self.content] {
            for against in [Against::Formula, Against::Stored] {
                deviation.add(against, f64::NAN, 0.0, 0.0);
            }
        }
    }
}

/// The two kinds of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// 1 in the first feature of every pair: the result is cos and sin.
    Units,
    /// Different numbers for every head, token and feature.
    Random,
}

/// One run of a rotation: its input, the positions of its tokens, and what is expected.
#[derive(Debug)]
pub(crate) struct RotationRun<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) precision: &'a Precision,
    pub(crate) region: &'a Region,
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [usize],
    pub(crate) positions: &'a [i64],
    /// The largest position plus one, as the model sees it.
    pub(crate) length: usize,
}

impl RotationRun<'_> {
    /// The content to feed; `None` where the features of a head cannot be followed.
    pub(crate) fn content(&self, kind: Content) -> Option<Tensor> {
        let lane = self.region.input_lane;
        let width = lane.width(self.dims)?;
        let tokens = *self.dims.get(lane.sequence)?;
        let slots = self
            .dims
            .iter()
            .product::<usize>()
            .checked_div(tokens * width)?;
        let mut random = Random::new(0x0051_7e5c_4ec5);
        let mut first = vec![false; width];
        for (a, _) in self.pairs().unwrap_or_default() {
            first[a] = true;
        }
        let values = Array3::from_shape_fn((slots, tokens, width), |(.., i)| match kind {
            Content::Random => random.uniform(-1.0, 1.0),
            Content::Units => f64::from(u8::from(first[i])),
        });
        let values = lane.join(values, self.dims)?;
        Some(Tensor::from_f64(self.dtype, self.dims, values.as_slice()?))
    }

    /// The expected pairs as feature indices of the input; `None` where it does not have them.
    fn pairs(&self) -> Option<Vec<(usize, usize)>> {
        let offset = usize::try_from(self.region.output_lane.offset).ok()?;
        let width = self.region.input_lane.width(self.dims)?;
        let index = |i: usize| i.checked_sub(offset).filter(|i| *i < width);
        let pairs = self.expected.pairs.iter();
        pairs.map(|(a, b)| Some((index(*a)?, index(*b)?))).collect()
    }

    /// Adds the distance of `output` from the expected rotation of `content` to `measured`.
    pub(crate) fn compare(
        &self,
        kind: Content,
        content: &Tensor,
        output: &Tensor,
        measured: &mut Measured,
    ) {
        let region = self.region;
        let x = by_token(content, &region.input_lane);
        let y = by_token(output, &region.output_lane);
        let (Some(x), Some(y), Some(pairs)) = (x, y, self.pairs()) else {
            return measured.fail();
        };
        if x.shape() != y.shape() {
            return measured.fail();
        }
        let laws = [
            (Against::Formula, Some(&self.expected.law)),
            (Against::Stored, self.expected.stored.as_ref()),
        ];
        for (against, law) in laws {
            let Some(law) = law else { continue };
            let rope = self.rope(law, &pairs, x.shape()[2]);
            if rope.inv_freq.len() != pairs.len() {
                return measured.fail();
            }
            match kind {
                Content::Units => self.waves(against, &rope, &y, measured),
                Content::Random => self.rotated(against, &rope, &x, &y, measured),
            }
        }
    }

    fn rope(&self, law: &ExpectedFrequencies, pairs: &[(usize, usize)], width: usize) -> Rope {
        let frequencies = law.frequencies(self.length);
        Rope {
            inv_freq: frequencies.inv_freq,
            attention_factor: frequencies.attention_factor,
            pairs: pairs.to_vec(),
            layout: None,
            rotary_dim: 2 * pairs.len(),
            head_dim: width,
        }
    }

    fn positions(&self) -> Vec<f64> {
        self.positions.iter().map(|p| *p as f64).collect()
    }

    /// Compares rotated units with cos and sin.
    fn waves(&self, against: Against, rope: &Rope, y: &Array3<f64>, measured: &mut Measured) {
        let positions = self.positions();
        let (cos, sin) = rope.reference(&positions);
        let m = rope.attention_factor;
        for (p, position) in positions.iter().enumerate() {
            for (i, (a, b)) in rope.pairs.iter().copied().enumerate() {
                let f = rope.inv_freq[i];
                let bound = self.precision.wave(*position, f, m, against);
                for slot in 0..y.shape()[0] {
                    let (c, s) = (y[[slot, p, a]], y[[slot, p, b]]);
                    if measured.is_blind(*position, (bound, m), c + s) {
                        continue;
                    }
                    measured.cos.add(against, c, cos[[p, i]], bound);
                    measured.sin.add(against, s, sin[[p, i]], bound);
                }
            }
        }
    }

    /// Compares rotated random content, including features that are not rotated.
    fn rotated(
        &self,
        against: Against,
        rope: &Rope,
        x: &Array3<f64>,
        y: &Array3<f64>,
        measured: &mut Measured,
    ) {
        let positions = self.positions();
        let want = rope.rotate(x, &positions);
        let m = rope.attention_factor;
        let width = x.shape()[2];
        let mut pair_of = vec![None; width];
        for (i, (a, b)) in rope.pairs.iter().copied().enumerate() {
            pair_of[a] = Some((i, b));
            pair_of[b] = Some((i, a));
        }
        let waves = Array2::from_shape_fn((positions.len(), rope.pairs.len()), |(p, i)| {
            let f = rope.inv_freq[i];
            self.precision.wave(positions[p], f, m, against)
        });
        for ((slot, p, j), want) in want.indexed_iter() {
            let own = x[[slot, p, j]];
            let bound = match pair_of[j] {
                None => self.precision.passed(own),
                Some((i, other)) => {
                    let wave = waves[[p, i]];
                    if measured.is_blind(positions[p], (wave, m), y[[slot, p, j]]) {
                        continue;
                    }
                    self.precision.rotated(wave, m, own, x[[slot, p, other]])
                }
            };
            measured.content.add(against, y[[slot, p, j]], *want, bound);
        }
    }
}

/// A value as `[slot, pos, dim]`: batches and heads in row-major order are the slots.
fn by_token(tensor: &Tensor, lane: &Lane) -> Option<Array3<f64>> {
    let dims = tensor.dims();
    let feature = lane.feature?;
    if lane.sequence.max(feature) >= dims.len() || tensor.is_empty() {
        return None;
    }
    let values = ArrayD::from_shape_vec(IxDyn(dims), tensor.to_f64s()?).ok()?;
    lane.split(values)
}
