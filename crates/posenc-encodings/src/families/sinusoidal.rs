//! Sines and cosines of the position, added to the embeddings: pair i of a row holds
//! `a · sin(f_i (p + offset) / factor)` and the cosine of the same angle, with `f_i = base^(−i/n)`.
//!
//! A row `[dim]` holds sine and cosine in turn, or all sines and then all cosines. Of dim/2 pairs
//! the denominator n is dim/2 (Vaswani et al., arXiv:1706.03762, section 3.5) or dim/2 − 1
//! (tensor2tensor, fairseq, Whisper), which ends at a wavelength of exactly 2π · base. A row of
//! odd width ends in zero where sines come first, in a lone sine where they alternate. Known
//! variants: positions from 1, 2 or padding + 1 on, a zero row for padding, a factor on the whole
//! table, cosines before sines, and codes of an image: half of a row for each coordinate (Carion
//! et al., arXiv:2005.12872, appendix A.4, where coordinates run to 2π; He et al.,
//! arXiv:2111.06377, where columns come first).

pub mod emit;
mod fit;
mod grid;

use std::any::Any;

use ndarray::{Array2, ArrayD};
use posenc_ir::{Emitter, ValueId};
use serde_json::json;

pub use fit::{Precision, identify};
pub use grid::{has_waves, identify_grid};

use crate::describe::{Description, number};
use crate::encoding::{Common, Encoding, GivenTensors, PlanError};
use crate::family::{Entry, Family};
use crate::input_term::{InputTerm, Positions, Source};
use crate::layout::Layout;
use crate::opset::Opset;
use crate::params::Params;
use crate::words;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "sinusoidal",
    about: "Sines and cosines added to the input",
    adds: "sines and cosines on the embeddings, computed for any length; a table of rows with \
           `--max-length`",
    params: &[],
    common: &[("layout", ""), ("theta", "base 10,000")],
    tensors: &[],
    starts: ["", ""],
    learned: &[],
    describe,
    entry: Entry::input_term::<SinusoidalTerm>(true),
};

/// `64 rows, width 64, sines then cosines, frequencies 10000^(-i/32), positions from 2`.
fn describe(to: &mut Description<'_>) {
    let image = to.get("grid").is_some();
    match to.count("max_positions") {
        Some(rows) => {
            let parts = to.parts_of_rows();
            to.say(format!("{rows} rows{parts}"));
        }
        None if to.has("max_positions") => to.say("computed"),
        None => {}
    }
    let width = to.width();
    let cosines_first = to.bool("cosines_first") == Some(true);
    match (to.word("layout"), cosines_first) {
        (Some("half"), false) => to.say("sines then cosines"),
        (Some("half"), true) => to.say("cosines then sines"),
        (Some(layout), false) => to.say(layout),
        (Some(layout), true) => to.say(format!("{layout}, cosines first")),
        (None, _) => {}
    }
    describe_frequencies(to, image, width);
    match to.word("order") {
        Some("yx") => to.say("rows before columns"),
        Some("xy") => to.say("columns before rows"),
        _ => {}
    }
    if to.bool("normalized") == Some(true) {
        to.say("coordinates up to 2π");
    }
    if to.bool("centered") == Some(true) {
        to.say("coordinates of centers");
    }
    if let Some(offset) = to.count("offset").filter(|n| *n > 0) {
        to.say(format!("positions from {offset}"));
    }
    if let Some(factor) = to.get("factor") {
        to.say(format!("positions ÷ {}", number(factor)));
    }
    if let Some(amplitude) = to.get("amplitude") {
        to.say(format!("rows × {}", number(amplitude)));
    }
}

fn describe_frequencies(to: &mut Description<'_>, image: bool, width: Option<u64>) {
    let base = to.get("base").map(number);
    let less = match to.word("freq_denominator") {
        Some("half_dim") => Some(0.0),
        Some("half_dim-1") => Some(1.0),
        _ => None,
    };
    match (base, less, width) {
        (Some(base), Some(less), Some(width)) => {
            // Each coordinate of an image has half of a row.
            let width = if image { width / 2 } else { width };
            let half = if less == 0.0 {
                width as f64 / 2.0
            } else {
                (width / 2) as f64
            };
            to.say(format!("frequencies {base}^(-i/{})", half - less));
        }
        (Some(base), ..) => to.say(format!("base {base}")),
        _ => {}
    }
}

words! {
    /// What the exponents of the frequencies are divided by.
    "denominator" Denominator {
        /// The number of pairs.
        Pairs = "half_dim",
        /// One less, so that the last frequency is exactly 1 / base.
        PairsLessOne = "half_dim-1",
    }
}

words! {
    /// Which coordinate of an image stands in the first half of a row.
    "order of coordinates" Order {
        /// Rows first.
        RowsFirst = "yx",
        /// Columns first.
        ColumnsFirst = "xy",
    }
}

/// A sinusoidal code.
#[derive(Clone, Debug, PartialEq)]
pub struct Sinusoidal {
    /// Width of a row.
    pub dim: usize,
    /// Sines and cosines in turn, or all sines first.
    pub layout: Layout,
    /// Cosines stand where sines do elsewhere.
    pub cosines_first: bool,
    /// What the exponents are divided by.
    pub denominator: Denominator,
    /// The longest wavelength is near 2π times this.
    pub base: f64,
    /// Positions are divided by this.
    pub factor: f64,
    /// The factor a on sines and cosines.
    pub amplitude: f64,
    /// Rows; `None` where they are computed.
    pub max_positions: Option<usize>,
    /// The position that the first token counts as.
    pub offset: usize,
    /// How the code of an image is made up.
    pub image: Option<Image>,
}

/// Coordinates of an image, each in half of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows and columns.
    pub grid: [usize; 2],
    /// Which coordinate comes first.
    pub order: Order,
    /// Whether each coordinate runs to 2π.
    pub normalized: bool,
    /// Whether coordinates are those of the centers of patches, half a patch on.
    pub centered: bool,
    /// Class and register rows before those of the grid.
    pub prefix: usize,
}

impl Encoding for Sinusoidal {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("dim".into(), json!(self.dim));
        params.insert("layout".into(), json!(self.layout));
        params.insert("base".into(), json!(self.base));
        params.insert("freq_denominator".into(), json!(self.denominator));
        params.insert("max_positions".into(), json!(self.max_positions));
        params.insert("offset".into(), json!(self.offset));
        if self.cosines_first {
            params.insert("cosines_first".into(), json!(true));
        }
        if self.factor != 1.0 {
            params.insert("factor".into(), json!(self.factor));
        }
        if self.amplitude != 1.0 {
            params.insert("amplitude".into(), json!(self.amplitude));
        }
        if let Some(image) = self.image {
            params.insert("grid".into(), json!(image.grid));
            params.insert("prefix".into(), json!(image.prefix));
            params.insert("order".into(), json!(image.order));
            params.insert("normalized".into(), json!(image.normalized));
            if image.centered {
                params.insert("centered".into(), json!(true));
            }
        }
        params
    }
}

/// A sinusoidal code as a rewrite inserts it: that of the paper for rows of any width, with the
/// layout and the base that are given.
#[derive(Clone, Debug, PartialEq)]
pub struct SinusoidalTerm {
    /// Sines and cosines in turn, or all sines first.
    pub layout: Layout,
    /// The base of the frequencies.
    pub base: f64,
    /// Rows of a table; `None` where they are computed.
    pub rows: Option<usize>,
}

impl SinusoidalTerm {
    /// The code in rows of this width.
    fn code(&self, dim: usize) -> Sinusoidal {
        Sinusoidal {
            dim,
            layout: self.layout,
            base: self.base,
            cosines_first: false,
            denominator: Denominator::Pairs,
            factor: 1.0,
            amplitude: 1.0,
            max_positions: None,
            offset: 0,
            image: None,
        }
    }

    /// Whether a base read from a graph is this one.
    fn has_base(&self, found: f64) -> bool {
        (found - self.base).abs() <= 1e-3 * self.base
    }
}

impl Encoding for SinusoidalTerm {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("layout".into(), json!(self.layout));
        params.insert("base".into(), json!(self.base));
        params.insert("max_positions".into(), json!(self.rows));
        params
    }
}

impl InputTerm for SinusoidalTerm {
    fn plan(common: &Common, _tensors: &GivenTensors) -> Result<Self, PlanError> {
        let base = common.theta();
        if base <= 1.0 {
            let why = format!("is {base}, and frequencies fall only where it is above 1");
            return Err(PlanError::param("theta", why));
        }
        Ok(Self {
            layout: common.layout.unwrap_or(Layout::Interleaved),
            base,
            rows: common.max_length,
        })
    }

    fn source(&self) -> Source {
        self.rows.map_or(Source::Computed, Source::Table)
    }

    fn reference(
        &self,
        _tensors: &[ArrayD<f64>],
        dim: usize,
        positions: &[usize],
    ) -> Option<Array2<f64>> {
        let positions: Vec<f64> = positions.iter().map(|p| *p as f64).collect();
        Some(self.code(dim).reference(&positions))
    }

    fn frequency(&self, dim: usize, column: usize) -> Option<f64> {
        Some(self.code(dim).frequency(column))
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        dim: usize,
        positions: Positions,
    ) -> Option<ValueId> {
        let Positions { value, lead, dtype } = positions;
        Some(self.code(dim).emit(out, opset, value, lead, dtype))
    }

    fn is_read_as(&self, found: &dyn Encoding) -> bool {
        let found = (found as &dyn Any).downcast_ref::<Sinusoidal>();
        found.is_some_and(|found| {
            let plain = Sinusoidal {
                layout: self.layout,
                denominator: Denominator::Pairs,
                cosines_first: false,
                factor: 1.0,
                amplitude: 1.0,
                ..found.clone()
            };
            let rows = self.rows.is_none_or(|n| found.max_positions == Some(n));
            plain == *found && rows && self.has_base(found.base)
        })
    }

    fn is_found_as(
        &self,
        found: &dyn Encoding,
        max_length: Option<usize>,
        _common: &Common,
    ) -> bool {
        let found = (found as &dyn Any).downcast_ref::<Sinusoidal>();
        found.is_some_and(|found| {
            let plain = Sinusoidal {
                base: found.base,
                max_positions: found.max_positions,
                ..self.code(found.dim)
            };
            let rows = self.rows.is_none() || self.rows <= max_length;
            plain == *found && rows && self.has_base(found.base)
        })
    }
}

impl Sinusoidal {
    /// Radians by which the angle of a column grows with each position.
    pub fn frequency(&self, column: usize) -> f64 {
        let pair = match self.layout {
            Layout::Half => column % (self.dim / 2).max(1),
            Layout::Interleaved => column / 2,
        };
        self.base
            .powf(-(pair as f64) / self.denominator.of(self.dim))
            / self.factor
    }

    /// What is added to tokens at these positions, `[position, dim]`, in f64.
    pub fn reference(&self, positions: &[f64]) -> Array2<f64> {
        let angles: Vec<f64> = positions
            .iter()
            .map(|p| (p + self.offset as f64) / self.factor)
            .collect();
        code(self, self.dim, &angles)
    }

    /// What is added to the patches of an image, `[row · columns + column, dim]`, in f64; the
    /// first coordinate counts as `offset`. `None` for a code of no image.
    pub fn reference_grid(&self) -> Option<Array2<f64>> {
        let Image {
            grid: [rows, columns],
            order,
            normalized,
            centered,
            ..
        } = self.image?;
        let half = self.dim / 2;
        let coordinates = |count: usize| -> Vec<f64> {
            let whole = if normalized {
                count as f64 / std::f64::consts::TAU
            } else {
                self.factor
            };
            let first = self.offset as f64 + if centered { 0.5 } else { 0.0 };
            (0..count).map(|p| (p as f64 + first) / whole).collect()
        };
        let [y, x] = [rows, columns].map(|n| code(self, half, &coordinates(n)));
        Some(Array2::from_shape_fn(
            (rows * columns, self.dim),
            |(token, column)| {
                let [row, place] = [token / columns, token % columns];
                if (column < half) == (order == Order::RowsFirst) {
                    y[[row, column % half]]
                } else {
                    x[[place, column % half]]
                }
            },
        ))
    }
}

/// The code of these angles at frequency 1, `[angle, width]`.
fn code(of: &Sinusoidal, width: usize, angles: &[f64]) -> Array2<f64> {
    let columns = Columns::of(of.layout, width);
    let frequency = |i: usize| of.base.powf(-(i as f64) / of.denominator.of(width));
    let frequencies: Vec<f64> = (0..columns.pairs).map(frequency).collect();
    let lone = columns.lone().map(|at| (at, frequency(columns.pairs)));
    let mut rows = Array2::zeros((angles.len(), width));
    for (p, angle) in angles.iter().enumerate() {
        for ([first, second], frequency) in columns.pairs().zip(&frequencies) {
            let (sin, cos) = (angle * frequency).sin_cos();
            let (a, b) = if of.cosines_first {
                (cos, sin)
            } else {
                (sin, cos)
            };
            rows[[p, first]] = of.amplitude * a;
            rows[[p, second]] = of.amplitude * b;
        }
        if let Some((lone, frequency)) = lone {
            let (sin, cos) = (angle * frequency).sin_cos();
            rows[[p, lone]] = of.amplitude * if of.cosines_first { cos } else { sin };
        }
    }
    rows
}

impl Denominator {
    /// The divisor in a row of this width.
    pub fn of(self, width: usize) -> f64 {
        match self {
            Self::Pairs if width.is_multiple_of(2) => (width / 2) as f64,
            // 10000^(2i/d) of the paper, whatever d.
            Self::Pairs => width as f64 / 2.0,
            Self::PairsLessOne => (width / 2) as f64 - 1.0,
        }
    }
}

/// Where the two parts of each pair stand in a row.
#[derive(Clone, Copy)]
struct Columns {
    layout: Layout,
    width: usize,
    pairs: usize,
}

impl Columns {
    fn of(layout: Layout, width: usize) -> Self {
        Self {
            layout,
            width,
            pairs: width / 2,
        }
    }

    fn pairs(self) -> impl Iterator<Item = [usize; 2]> {
        (0..self.pairs).map(move |i| match self.layout {
            Layout::Half => [i, self.pairs + i],
            Layout::Interleaved => [2 * i, 2 * i + 1],
        })
    }

    /// The last column of an odd width where sines and cosines alternate.
    fn lone(self) -> Option<usize> {
        let odd = !self.width.is_multiple_of(2);
        (odd && self.layout == Layout::Interleaved).then(|| self.width - 1)
    }
}

#[cfg(test)]
mod tests;
