//! Idioms of rotation and attention that are to be read, and look-alikes that are not.

mod absolute;
mod accepted;
mod after;
mod bare;
mod behind;
mod bias;
mod buffers;
mod convolution;
mod counts;
mod crossed;
mod edges;
mod elsewhere;
mod fed;
mod few_rows;
mod first_axis;
mod free;
mod hostile;
mod lengths;
mod longer;
mod negated;
mod one_token;
mod order;
mod outside;
mod paged;
mod partial;
mod pooled;
mod refused;
mod relaid;
mod rounded;
mod scans;
mod selected;
mod single;
mod streams;
mod switch;
mod terms;
mod unrecognized;
mod without;

use posenc_ir::{DType, Model};

use super::finding::Encoding;
use super::{Found, Options, detect, limits};
use crate::graph::ports::Ports;
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::prove::testing::rescaled_by;
use crate::request::{LawName, Request};
use posenc_encodings::kind::Kind;

/// Pairs of a head.
const PAIRS: usize = SIZE / 2;
const THETA: f64 = 10000.0;

fn frequency(i: usize) -> f64 {
    THETA.powf(-2.0 * i as f64 / SIZE as f64)
}

/// What a case changes about a plain decoder of one layer.
struct Form {
    /// Queries or keys, rotated, as `[batch, heads, sequence, size]`, from the residual stream.
    rotated: fn(&mut Sketch, &str, Side) -> String,
    /// Weighted values from queries, keys and values `[batch, heads, sequence, size]`.
    attend: fn(&mut Sketch, &str, &str, &str) -> String,
    /// What is done to the residual stream first.
    embed: fn(&mut Sketch, String) -> String,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Query,
    Key,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            rotated: |s, x, _| {
                let q = s.headed(x);
                halves(s, &q)
            },
            attend,
            embed: |_, x| x,
        }
    }
}

/// The layer as a model.
fn model(form: &Form) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = (form.embed)(&mut s, x);
    let q = (form.rotated)(&mut s, &x, Side::Query);
    let k = (form.rotated)(&mut s, &x, Side::Key);
    let v = s.headed(&x);
    let y = (form.attend)(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let y = s.op("MatMul", &[&y, &w]);
    s.model(23, &[&y])
}

fn found(model: &Model) -> Found {
    detect(model, &Options::default())
}

/// The kinds of encodings that were found.
fn kinds(found: &Found) -> Vec<Kind> {
    let findings = found.findings.iter();
    findings.map(|f| Encoding::kind(&f.encoding)).collect()
}

/// The lengths that limit a model which does this to its residual stream.
fn limiting(embed: fn(&mut Sketch, String) -> String) -> Vec<usize> {
    let model = model(&Form {
        embed,
        ..Form::default()
    });
    let all = limits::all(model.graph(), &found(&model));
    all.iter().map(|limit| limit.length).collect()
}

/// Causal scaled attention in plain operators.
fn attend(s: &mut Sketch, q: &str, k: &str, v: &str) -> String {
    let scores = scores(s, q, k);
    let scores = causal(s, &scores);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, v])
}

fn scores(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[q, &k]);
    let scale = s.float((SIZE as f64).powf(-0.5));
    s.op("Mul", &[&scores, &scale])
}

fn causal(s: &mut Sketch, scores: &str) -> String {
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let later = s.op("Greater", &[&columns, &rows]);
    let low = s.float(-1e9);
    s.op("Where", &[&later, &low, scores])
}

/// Angles `[sequence, pairs]`.
fn angles(s: &mut Sketch) -> String {
    let at = s.range();
    angles_of(s, &at)
}

fn angles_of(s: &mut Sketch, at: &str) -> String {
    let f = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
    let at = s.cast(at, DType::F32);
    let at = s.unsqueeze(&at, &[-1]);
    s.op("Mul", &[&at, &f])
}

/// `(−x₂, x₁)` of the halves of the last axis.
fn swapped(s: &mut Sketch, x: &str) -> String {
    let first = s.slice(x, -1, [0, PAIRS as i64, 1]);
    let second = s.slice(x, -1, [PAIRS as i64, 1 << 40, 1]);
    let second = s.op("Neg", &[&second]);
    s.concat(&[&second, &first], -1)
}

/// `x · cos + swapped · sin`.
fn mixed(s: &mut Sketch, x: &str, swapped: &str, cos: &str, sin: &str) -> String {
    let (a, b) = (s.op("Mul", &[x, cos]), s.op("Mul", &[swapped, sin]));
    s.op("Add", &[&a, &b])
}

/// cos and sin of angles that are stored twice, side by side.
fn waves(s: &mut Sketch, angles: &str) -> (String, String) {
    let both = s.concat(&[angles, angles], -1);
    (s.op("Cos", &[&both]), s.op("Sin", &[&both]))
}

/// The common form: halves of `[…, sequence, size]`.
fn halves(s: &mut Sketch, x: &str) -> String {
    let angles = angles(s);
    let (cos, sin) = waves(s, &angles);
    let other = swapped(s, x);
    mixed(s, x, &other, &cos, &sin)
}

/// Tables of cos or sin, `[rows, pairs]`.
fn table(s: &mut Sketch, rows: usize, of: fn(f64) -> f64) -> String {
    let cells = (0..rows).flat_map(|p| (0..PAIRS).map(move |i| of(p as f64 * frequency(i))));
    s.floats(&[rows, PAIRS], cells)
}
