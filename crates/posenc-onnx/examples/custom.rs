//! An encoding of one's own: a bias that falls with the distance and levels off,
//! `b(h, i, j) = −8 · (1 − exp(−|i − j| ÷ (length · 2^h)))`.
//!
//! The same trait and the same declaration as in the families of `posenc-encodings`: the bias is
//! found in models, inserted, and compared with its formula.
//!
//! `cargo run --example custom -- model.onnx levelling.onnx`

use std::error::Error;

use ndarray::ArrayD;
use posenc_onnx::encodings::bias::{
    At, BiasPorts, Emitted, Fit, Order, ReadFrom, Sample, Samples, ScoreBias,
};
use posenc_onnx::encodings::encoding::{Encoding, GivenTensors, PlanError, SiteShape};
use posenc_onnx::encodings::family::{Entry, Family};
use posenc_onnx::encodings::miss::Miss;
use posenc_onnx::encodings::param::{Given, Param, Values};
use posenc_onnx::encodings::params::Params;
use posenc_onnx::encodings::round::to_digits;
use posenc_onnx::ir::{Emitter, Tensor};
use posenc_onnx::{Model, Swap, Value};
use serde_json::json;

/// What the family declares about itself.
pub static FAMILY: Family = Family {
    word: "levelling",
    about: "A bias on the scores that falls with the distance and levels off",
    adds: "a bias that falls with the distance and levels off",
    params: &[LENGTH],
    common: &[],
    tensors: &[],
    starts: ["", ""],
    learned: &["length"],
    describe: |to| {
        to.heads();
        if let Some(length) = to.get("length") {
            to.say(format!("length {length}"));
        }
    },
    entry: Entry::score_bias::<Levelling>(ReadFrom::FewTokens),
};

const LENGTH: Param = Param {
    name: "length",
    values: Values::Positive,
    help: "the distance at which the first head has fallen to 1/e of the rest",
    unit: "tokens",
    default: "16",
};

/// How far every head falls.
const DEPTH: f64 = 8.0;

/// The bias of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Levelling {
    heads: usize,
    length: f64,
}

impl Levelling {
    /// The length of a head.
    fn of_head(&self, head: usize) -> f64 {
        self.length * (head as f64).exp2()
    }
}

impl Encoding for Levelling {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("length".into(), json!(self.length));
        params
    }
}

impl ScoreBias for Levelling {
    fn plan(site: &SiteShape, given: &Given, _: &GivenTensors) -> Result<Self, PlanError> {
        Ok(Self {
            heads: site.heads()?,
            length: given.number("length").unwrap_or(16.0),
        })
    }

    /// The length follows from one step; every other number has to confirm it.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let profile = samples.run.profile()?;
        let (Some(here), Some(before)) = (profile.get(&0), profile.get(&-1)) else {
            return Err(Miss::new("too few distances are seen"));
        };
        let step = here[0] - before[0];
        let length = -1.0 / (-step / DEPTH).ln_1p();
        if !(length.is_finite() && length > 0.0) {
            return Err(Miss::new("the first head does not fall by less than 8"));
        }
        let bias = Self {
            heads: samples.all_heads(),
            length: to_digits(length, 6),
        };
        let mut residual = 0.0f64;
        for (distance, numbers) in profile {
            for (head, number) in numbers.iter().enumerate() {
                let at = At {
                    query: 0,
                    key: *distance,
                    keys: 0,
                };
                let formula = bias.reference(&[], head, at).value;
                residual = residual.max((number - here[head] - formula).abs());
            }
        }
        if residual > samples.run.tolerance() {
            return Err(Miss::new(format!("leaves residuals up to {residual:.1e}")));
        }
        Ok(Fit::formula(bias, residual, 1))
    }

    fn heads(&self) -> usize {
        self.heads
    }

    fn reference(&self, _: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        let distance = at.distance().unsigned_abs() as f64;
        Sample {
            value: DEPTH * (-distance / self.of_head(head)).exp_m1(),
            rounded: DEPTH,
        }
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        _: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let dtype = ports.dtype();
        let sequences = usize::from(ports.is_by_sequence());
        let dims = [ports.heads(), &vec![1; sequences + 2]].concat();
        let rates: Vec<f64> = (0..self.heads).map(|h| -1.0 / self.of_head(h)).collect();
        let distances = ports.distances(out);
        let distances = out.op("Abs", &[distances]);
        let distances = out.cast(distances, dtype);
        let rates = out.constant("rates", Tensor::from_f64(dtype, &dims, &rates));
        let [one, depth] = [1.0, DEPTH].map(|number| out.scalar("number", dtype, number));
        let exponents = out.op("Mul", &[distances, rates]);
        let rest = out.op("Exp", &[exponents]);
        let fallen = out.op("Sub", &[rest, one]);
        Some(Emitted {
            value: out.op("Mul", &[fallen, depth]),
            order: Order::HeadsFirst,
        })
    }
}

/// The model with the bias in place of its encoding, as bytes.
pub fn insert(model: &[u8], length: f64) -> Result<Vec<u8>, Box<dyn Error>> {
    let model = Model::from_bytes(model)?;
    let swap = Swap::to(&FAMILY).parameter("length", Value::Number(length))?;
    Ok(model.plan(swap)?.apply()?.to_bytes()?)
}

/// The encodings of a model, which may have the bias.
pub fn found(model: &[u8]) -> Result<Vec<String>, Box<dyn Error>> {
    let report = Model::from_bytes(model)?.with_family(&FAMILY)?.inspect();
    let of = |e: &posenc_onnx::report::Encoding| format!("{} {:?}", e.kind, e.params);
    Ok(report.encodings.iter().map(of).collect())
}

#[allow(dead_code)] // the test calls the functions
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(input), Some(output)) = (args.next(), args.next()) else {
        return Err("give the model to read and the file to write".into());
    };
    std::fs::write(output, insert(&std::fs::read(input)?, 16.0)?)?;
    Ok(())
}
