//! FIRE: a bias that a small network makes of the distance as a share of the query's position.
//!
//! `b(h, i, j) = f(ψ(|i − j|) ÷ ψ(max(L, i)))_h` with `ψ(x) = ln(c · x + 1)` and
//! `f(x) = W₂ · relu(w₁ · x + b₁) + b₂`, a network of one input, some hidden units and a number for
//! each head. `c` and `L` are learned and count by their size, whatever their sign. The query's
//! position i is its index among the keys, so that a decoder with a cache continues where it was.
//! The paper is about causal attention; keys after the query, which it does not have, count by
//! their distance here. It needs no table, and so sets no limit to the length. The hidden units of
//! all pairs take `32 · queries · keys` numbers while a graph runs.
//!
//! Of a model, `c` is read off the numbers, and `L` where queries beyond it are seen. The weights
//! are not unique and not read: only the places where f bends are shared by the heads.
//! Source: Li et al., arXiv:2310.04418, section 3.

mod identify;

use ndarray::ArrayD;
use posenc_ir::{Emitter, Tensor};
use serde_json::json;

use crate::bias::{
    At, BiasPorts, Emitted, Fit, Order, ReadFrom, Sample, Samples, ScoreBias, exact,
};
use crate::describe::{Description, plain};
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, Start};
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::Given;
use crate::params::Params;
use crate::round::to_digits;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "fire",
    about: "A bias on the scores by a small network of the distance relative to the position",
    adds: "a bias by a network of the distance as a share of the query's position",
    params: &[],
    common: &[],
    tensors: &[
        tensor("hidden_weight", "[width, 1]", 13),
        tensor("hidden_bias", "[width]", 14),
        tensor("out_weight", "[heads, width]", 15),
        tensor("out_bias", "[heads]", 16),
        tensor("c", "[1]", 17),
        tensor("threshold", "[1]", 18),
    ],
    starts: [
        "zeros, width 32, c = 0.1, threshold 512",
        "weights of deviation 1/√3 and 1/√(3·width), as linear layers start",
    ],
    learned: &["c", "threshold"],
    describe,
    entry: Entry::score_bias::<Fire>(ReadFrom::ManyTokens),
};

const fn tensor(name: &'static str, shape: &'static str, slot: u64) -> Learned {
    Learned {
        name,
        shape,
        about: "",
        slot,
        shared: true,
    }
}

/// Hidden units where no file gives any.
const WIDTH: usize = 32;

/// The c that the paper starts from.
const C: f64 = 0.1;

/// The threshold that the paper starts from.
const THRESHOLD: f64 = 512.0;

/// A network of relative distances.
#[derive(Clone, Debug, PartialEq)]
pub struct Fire {
    /// Heads of queries.
    pub heads: usize,
    /// Hidden units; `None` for what was found, which may have more than its numbers show.
    pub width: Option<usize>,
    /// The scale of distances; `None` where the learned tensor has it.
    pub c: Option<f64>,
    /// L; `None` where the learned tensor has it, or no query beyond it was seen.
    pub threshold: Option<f64>,
}

/// `4 heads, c 0.1, threshold 512`.
fn describe(to: &mut Description<'_>) {
    to.heads();
    if let Some(c) = to.get("c") {
        to.say(format!("c {}", plain(c)));
    }
    match to.get("threshold") {
        Some(threshold) => to.say(format!("threshold {}", plain(threshold))),
        None => to.say("threshold unknown"),
    }
}

impl Encoding for Fire {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("c".into(), json!(self.c));
        params.insert("threshold".into(), json!(self.threshold));
        params
    }
}

impl ScoreBias for Fire {
    fn plan(site: &SiteShape, _: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let hidden = tensors
            .dims("hidden_weight")
            .or(tensors.dims("hidden_bias"));
        let width = hidden.and_then(|(_, dims)| dims.first().copied());
        for name in ["c", "threshold"] {
            let is_zero = |values: &Vec<f64>| values.contains(&0.0);
            if tensors.values(name, &[1])?.as_ref().is_some_and(is_zero) {
                let why = "is 0 but must be positive".to_owned();
                let name = name.to_owned();
                return Err(PlanError::Tensor { name, why });
            }
        }
        Ok(Self {
            heads: site.heads()?,
            width: Some(width.unwrap_or(WIDTH)),
            c: None,
            threshold: None,
        })
    }

    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let found = identify::read(&samples.run.scores)?;
        let fire = Self {
            heads: samples.all_heads(),
            width: None,
            c: Some(to_digits(found.c, 6)),
            threshold: found.threshold.map(|l| to_digits(l, 6)),
        };
        // A slope for each piece of f, where it bends, and c.
        Ok(Fit::formula(fire, found.residual, 2 * found.pieces + 2))
    }

    fn heads(&self) -> usize {
        self.heads
    }

    fn tensors(&self) -> Vec<Vec<usize>> {
        let width = self.width.unwrap_or(WIDTH);
        vec![
            vec![width, 1],
            vec![width],
            vec![self.heads, width],
            vec![self.heads],
            vec![1],
            vec![1],
        ]
    }

    fn start(&self, tensor: usize, _: &SiteShape) -> Start {
        let width = self.width.unwrap_or(WIDTH) as f64;
        match tensor {
            0 | 1 => Start::normal(3f64.powf(-0.5)),
            2 | 3 => Start::normal((3.0 * width).powf(-0.5)),
            4 => Start::constant(C),
            _ => Start::constant(THRESHOLD),
        }
    }

    fn reference(&self, tensors: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        let [weight, bias, out_weight, out_bias, c, threshold] = tensors else {
            return Sample::stored(f64::NAN);
        };
        let (c, threshold) = (c[[0]].abs(), threshold[[0]].abs());
        let psi = |x: f64| (c * x).ln_1p();
        let distance = psi(at.distance().unsigned_abs() as f64);
        let all = psi(threshold.max(at.query as f64));
        let x = distance / all;
        let bias_of_head = out_bias[[head]];
        let (mut value, mut rounded, mut slopes) = (bias_of_head, bias_of_head.abs(), 0.0);
        for unit in 0..bias.len() {
            let (w, b, out) = (weight[[unit, 0]], bias[[unit]], out_weight[[head, unit]]);
            value += out * (w * x + b).max(0.0);
            rounded += out.abs() * ((w * x).abs() + b.abs());
            slopes += (out * w).abs();
        }
        // The sums c · x + 1 are rounded before their logarithms.
        let of_x = (1.0 + distance + x * (1.0 + all)) / all;
        Sample {
            value,
            rounded: rounded + slopes * of_x,
        }
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let [weight, bias, out_weight, out_bias, c, threshold] = tensors else {
            return None;
        };
        let (exact, opset) = (exact(ports.dtype()), ports.opset());
        let width = bias.len();
        let mut constant = |out: &mut Emitter<'_>, name: &str, dims: &[usize], of: Vec<f64>| {
            ports.constant(out, name, Tensor::from_f64(exact, dims, &of))
        };
        let numbers = |of: &ArrayD<f64>| of.iter().copied().collect::<Vec<f64>>();
        let c = constant(out, "c", &[], vec![c[[0]].abs()]);
        let threshold = constant(out, "threshold", &[], vec![threshold[[0]].abs()]);
        let weight = constant(out, "hidden_weight", &[width], numbers(weight));
        let bias = constant(out, "hidden_bias", &[width], numbers(bias));
        // `[width, heads]`.
        let by_unit = out_weight.t().iter().copied().collect();
        let out_weight = constant(out, "out_weight", &[width, self.heads], by_unit);
        let out_bias = constant(out, "out_bias", &[self.heads], numbers(out_bias));
        let one = out.scalar("one", exact, 1.0);
        let psi = |out: &mut Emitter<'_>, x| {
            let scaled = out.op("Mul", &[x, c]);
            let above = out.op("Add", &[scaled, one]);
            out.op("Log", &[above])
        };
        let distances = ports.distances(out);
        let distances = out.op("Abs", &[distances]);
        let distances = out.cast(distances, exact);
        let distances = psi(out, distances);
        let queries = ports.queries(out);
        let queries = out.cast(queries, exact);
        let queries = out.op("Max", &[queries, threshold]);
        let all = psi(out, queries);
        let x = out.op("Div", &[distances, all]);
        let lead = if ports.is_by_sequence() { 3 } else { 2 };
        let x = opset.unsqueeze(out, x, &[lead]);
        let hidden = out.op("Mul", &[x, weight]);
        let hidden = out.op("Add", &[hidden, bias]);
        let hidden = out.op("Relu", &[hidden]);
        let made = out.op("MatMul", &[hidden, out_weight]);
        let mut made = out.op("Add", &[made, out_bias]);
        if *ports.heads() != [self.heads] {
            // 0 keeps an axis.
            let mut shape = vec![0; lead as usize];
            shape.extend(ports.heads().iter().map(|n| *n as i64));
            let shape = out.ints("heads", &shape);
            made = out.op("Reshape", &[made, shape]);
        }
        Some(Emitted::rounded(out, ports, made, Order::HeadsLast))
    }
}

#[cfg(test)]
mod tests;
