//! Rotary position embedding: pair `(a, b)` of a head's features at position p rotates by `p · f`,
//! `(x_a, x_b) → m · (x_a cos(pf) − x_b sin(pf), x_b cos(pf) + x_a sin(pf))`.
//!
//! Queries and keys rotate alike, so their product depends on the distance alone. Half layout pairs
//! `(i, i + d/2)` (GPT-NeoX, Llama), interleaved layout pairs `(2i, 2i + 1)` (RoFormer, GPT-J).
//! Source: Su et al., arXiv:2104.09864, section 3.2.

pub mod emit;
mod identify;

use ndarray::{Array2, Array3};
use posenc_ir::{DType, Emitter, Tensor, ValueId};
use serde_json::{Value, json};

pub use identify::{Fit, LOOSE, PairRotations, Unread, identify, is_rotating};

use crate::describe::{Description, between, entries, number, plain, sides};
use crate::encoding::{Common, Encoding, PlanError, SiteShape};
use crate::family::{Entry, Family};
use crate::laws;
use crate::layout::Layout;
use crate::opset::Opset;
use crate::params::Params;
use crate::rotation::{Angles, Rotation, Shape};

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "rope",
    about: "Rotation of q and k",
    adds: "queries and new keys are rotated",
    params: &[],
    common: &[
        ("theta", "10,000"),
        ("rotary-dim", "the whole head"),
        ("layout", "`half`"),
        ("scale", "and its flags"),
        ("max-length", "for tables"),
    ],
    tensors: &[],
    starts: ["", ""],
    learned: &[],
    describe,
    entry: Entry::rotation::<Rotary>(),
};

/// `θ 10000, 8 of 16 elements, halves, yarn × 4 from 64`.
fn describe(to: &mut Description<'_>) {
    if let Some(theta) = to.get("theta") {
        to.say(format!("θ {}", number(theta)));
    }
    match (to.get("rotary_dim"), to.get("head_dim")) {
        (Some(rotary), Some(head)) if rotary == head => to.say(format!("all {head} elements")),
        (Some(rotary), Some(head)) => to.say(format!("{rotary} of {head} elements")),
        (Some(rotary), None) => to.say(format!("{rotary} elements")),
        _ => {}
    }
    if let Some(first) = to.get("first_feature") {
        to.say(format!("from element {first} on"));
    }
    let layouts = [to.get("layout"), to.get("rotated_layout")];
    match layouts.map(|layout| layout.map(layout_word)) {
        [Some(layout), Some(rotated)] => to.say(format!("{layout} (rotated as {rotated})")),
        [Some(layout), None] => to.say(layout),
        [None, _] => {}
    }
    describe_coordinates(to);
    if let Some(Value::Object(law)) = to.get("scaling") {
        to.say(describe_law(law));
    }
    let factor = to.get("attention_factor").map(number);
    // Half precision has 1 as 0.99999.
    if let Some(factor) = factor.filter(|f| f != "1") {
        to.say(format!("cos and sin × {factor}"));
    }
}

fn layout_word(layout: &Value) -> String {
    match layout.as_str() {
        Some("half") => "halves".to_owned(),
        Some(other) => other.to_owned(),
        None => layout.to_string(),
    }
}

fn describe_coordinates(to: &mut Description<'_>) {
    if let Some(grid) = to.get("grid") {
        let grid = sides(grid);
        match to.count("prefix") {
            Some(prefix) if prefix > 0 => {
                to.say(format!(
                    "by rows and columns of {prefix} prefix + {grid} grid"
                ));
            }
            _ => to.say(format!("by rows and columns of {grid} grid")),
        }
    }
    if let Some(Value::Array(sections)) = to.get("mrope_section") {
        let pairs: Vec<String> = sections.iter().map(plain).collect();
        let order = match to.bool("mrope_interleaved") {
            Some(true) => ", interleaved",
            _ => "",
        };
        let (streams, pairs) = (sections.len(), pairs.join(" + "));
        to.say(format!("{pairs} pairs of {streams} positions{order}"));
    }
}

/// `yarn × 4 from 64 (63 to 198)`, and the law's other parameters.
fn describe_law(law: &Params) -> String {
    let get = |name| law.get(name).filter(|v| !v.is_null());
    let mut words = get("type")
        .and_then(Value::as_str)
        .unwrap_or("scaled")
        .to_owned();
    if let Some(factor) = get("factor") {
        words += &format!(" × {}", number(factor));
    }
    let range = between(get("original_length_range"));
    match (get("original_length"), range) {
        (Some(length), None) => words += &format!(" from {length}"),
        (Some(length), Some(range)) => words += &format!(" from {length} ({range})"),
        (None, Some(range)) => words += &format!(" from {range}"),
        (None, None) => {}
    }
    let read = [
        "type",
        "factor",
        "original_length",
        "original_length_range",
        "exact",
        // A parameter next to the law, as the factor on cos and sin.
        "attention_factor",
    ];
    let more = entries(law, &read);
    if !more.is_empty() {
        words += &format!(" ({})", more.join(", "));
    }
    words
}

/// Rotary position embedding without scaling, as a rewrite inserts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// θ and the widths of a head and of its rotated part, the first of its features.
    pub rope: laws::Rope,
    /// The pairs.
    pub layout: Layout,
}

impl Encoding for Rotary {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("theta".into(), json!(self.rope.theta));
        params.insert("head_dim".into(), json!(self.rope.head_dim));
        params.insert("rotary_dim".into(), json!(self.rope.rotary_dim));
        params.insert("layout".into(), json!(self.layout));
        params
    }
}

impl Rotation for Rotary {
    fn plan(site: &SiteShape, common: &Common) -> Result<Self, PlanError> {
        let head_dim = site.head_dim()?;
        let rotary_dim = common.rotary_dim.unwrap_or(head_dim);
        let rope = laws::Rope::new(common.theta(), rotary_dim, head_dim);
        Ok(Self {
            rope: rope.map_err(|e| PlanError::Site(e.to_string()))?,
            layout: common.layout.unwrap_or(Layout::Half),
        })
    }

    fn head_dim(&self) -> usize {
        self.rope.head_dim
    }

    fn angles(&self) -> Angles {
        let d = self.rope.rotary_dim as f64;
        let frequency = |i: usize| self.rope.theta.powf(-2.0 * i as f64 / d);
        Angles {
            inv_freq: (0..self.rope.pairs()).map(frequency).collect(),
            factor: 1.0,
            layout: Some(self.layout),
        }
    }

    fn tables(&self, count: usize, dtype: DType) -> [Tensor; 2] {
        self.wave_tables(count, dtype)
    }

    fn waves(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        positions: ValueId,
        lead: usize,
        dtype: DType,
    ) -> [ValueId; 2] {
        self.emit_waves(out, opset, positions, lead, dtype)
    }

    fn rotate(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        x: ValueId,
        shape: Shape,
        waves: [ValueId; 2],
    ) -> ValueId {
        self.emit_rotated(out, opset, x, shape, waves)
    }
}

/// Rotary position embedding as a graph computes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position, one for each pair.
    pub inv_freq: Vec<f64>,
    /// The factor m on cos and sin.
    pub attention_factor: f64,
    /// Pairs of features, as places in the head, in the order of `inv_freq`.
    pub pairs: Vec<(usize, usize)>,
    /// The layout, where the pairs follow one.
    pub layout: Option<Layout>,
    /// Number of features that rotate: twice the pairs.
    pub rotary_dim: usize,
    /// The head's features.
    pub head_dim: usize,
}

impl Rope {
    /// Its frequencies and layout.
    pub fn angles(&self) -> Angles {
        Angles {
            inv_freq: self.inv_freq.clone(),
            factor: self.attention_factor,
            layout: self.layout,
        }
    }

    /// cos and sin of every pair, times m, in f64: two tables `[pos, pair]`.
    pub fn reference(&self, positions: &[f64]) -> (Array2<f64>, Array2<f64>) {
        let shape = (positions.len(), self.inv_freq.len());
        let table = |f: fn(f64) -> f64| {
            Array2::from_shape_fn(shape, |(p, i)| {
                self.attention_factor * f(positions[p] * self.inv_freq[i])
            })
        };
        (table(f64::cos), table(f64::sin))
    }

    /// Rotates `x`, `[row, pos, dim]`, in f64.
    pub fn rotate(&self, x: &Array3<f64>, positions: &[f64]) -> Array3<f64> {
        let (cos, sin) = self.reference(positions);
        let mut y = x.clone();
        for row in 0..x.shape()[0] {
            for p in 0..positions.len() {
                for (i, (a, b)) in self.pairs.iter().copied().enumerate() {
                    let (c, s) = (cos[[p, i]], sin[[p, i]]);
                    y[[row, p, a]] = x[[row, p, a]] * c - x[[row, p, b]] * s;
                    y[[row, p, b]] = x[[row, p, b]] * c + x[[row, p, a]] * s;
                }
            }
        }
        y
    }
}

/// The layout that a list of pairs follows, from its first feature on.
pub fn layout(pairs: &[(usize, usize)], head_dim: usize) -> Option<Layout> {
    let start = pairs.iter().map(|p| p.0.min(p.1)).min()?;
    let n = pairs.len();
    let half = |distance: usize| {
        let pair = |(i, p): (usize, &(usize, usize))| *p == (start + i, start + i + distance);
        pairs.iter().enumerate().all(pair)
    };
    // With pairs that never rotate, halves of the head may stand farther apart than the pairs.
    if half(n) || (start == 0 && half(head_dim / 2)) {
        return Some(Layout::Half);
    }
    let adjacent = |(i, p): (usize, &(usize, usize))| *p == (start + 2 * i, start + 2 * i + 1);
    pairs
        .iter()
        .enumerate()
        .all(adjacent)
        .then_some(Layout::Interleaved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(pairs: &[(usize, usize)], inv_freq: &[f64]) -> Rope {
        Rope {
            inv_freq: inv_freq.to_vec(),
            attention_factor: 1.0,
            pairs: pairs.to_vec(),
            layout: layout(pairs, 4),
            rotary_dim: pairs.len() * 2,
            head_dim: 4,
        }
    }

    #[test]
    fn a_quarter_turn_takes_the_first_axis_to_the_second() {
        let half_pi = std::f64::consts::FRAC_PI_2;
        let r = rope(&[(0, 2), (1, 3)], &[half_pi, 0.0]);
        let x = Array3::from_shape_vec((1, 2, 4), vec![1., 2., 3., 4., 1., 2., 3., 4.]).unwrap();
        let y = r.rotate(&x, &[0.0, 1.0]);
        let want = [1., 2., 3., 4., -3., 2., 1., 4.];
        for (got, want) in y.iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{y}");
        }
    }

    #[test]
    fn a_rotation_of_a_rewrite_has_the_waves_of_the_reference() {
        let site = SiteShape {
            head_dim: Some(4),
            ..SiteShape::default()
        };
        let rotary = Rotary::plan(&site, &Common::default()).unwrap();
        let found = rope(&[(0, 2), (1, 3)], &[1.0, 0.01]);
        assert!(rotary.angles().matches(&found.angles(), 1e-12));
        let (cos, sin) = found.reference(&[7.0]);
        for (i, [c, s]) in rotary.reference(7.0).into_iter().enumerate() {
            assert!((c - cos[[0, i]]).abs() < 1e-12 && (s - sin[[0, i]]).abs() < 1e-12);
        }
        let other = rope(&[(0, 1), (2, 3)], &[1.0, 0.01]);
        assert!(!rotary.angles().matches(&other.angles(), 1e-12), "layout");
        let site = SiteShape::default();
        assert!(Rotary::plan(&site, &Common::default()).is_err());
    }

    #[test]
    fn products_depend_on_the_distance_alone() {
        let r = rope(&[(0, 1), (2, 3)], &[0.7, 0.01]);
        let q = Array3::from_shape_vec((1, 1, 4), vec![0.3, -1.0, 2.0, 0.5]).unwrap();
        let k = Array3::from_shape_vec((1, 1, 4), vec![1.3, 0.2, -0.4, 0.9]).unwrap();
        let score = |i: f64, j: f64| (r.rotate(&q, &[i]) * r.rotate(&k, &[j])).sum();
        assert!((score(5.0, 2.0) - score(105.0, 102.0)).abs() < 1e-12);
        assert!((score(5.0, 2.0) - score(5.0, 3.0)).abs() > 1e-3, "control");
    }

    #[test]
    fn layouts_are_told_apart_and_others_refused() {
        type Case = (&'static [(usize, usize)], usize, Option<Layout>);
        let cases: [Case; 7] = [
            (&[(0, 2), (1, 3)], 4, Some(Layout::Half)),
            (&[(4, 6), (5, 7)], 8, Some(Layout::Half)),
            (&[(0, 1), (2, 3)], 4, Some(Layout::Interleaved)),
            (&[(0, 3), (1, 2)], 4, None),
            (&[(0, 2), (3, 1)], 4, None),
            (&[(0, 1), (3, 2)], 4, None),
            (&[(1, 4), (2, 6)], 8, None),
        ];
        for (pairs, head_dim, want) in cases {
            assert_eq!(layout(pairs, head_dim), want, "{pairs:?}");
        }
    }
}
