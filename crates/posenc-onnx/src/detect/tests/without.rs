//! Networks that do not attend, or attend without position: no encoding is to be found in them.

mod arranged;
mod attending;
mod convolutional;
mod fed;
mod flat;
mod graphs;
mod latents;
mod mixers;
mod recurrent;
mod routed;
mod settings;
mod variants;

use super::*;
use crate::error::RefusalKind;
use crate::plan::unread::of_branch;
use crate::report::LimitCause;
use crate::rewrite::rewrite;

type Draw = fn(&mut Sketch) -> String;

fn drawn(draw: Draw) -> Model {
    let mut s = Sketch::default();
    let y = draw(&mut s);
    s.model(18, &[&y])
}

/// What is read wrongly in a model with this many sites of attention and no position, and with no
/// warnings but those of which these are parts; empty if nothing is.
fn faults(model: &Model, sites: usize, warned: &[&str]) -> Vec<String> {
    let read = found(model);
    let mut faults = vec![];
    if read.attention.len() != sites {
        faults.push(format!("{} sites", read.attention.len()));
    }
    if !kinds(&read).is_empty() || !read.rotary.is_empty() || !read.not_rotary.is_empty() {
        faults.push(format!("encodings: {:?}", read.findings));
    }
    let limits = limits::all(model.graph(), &read).into_iter();
    // A declared length of ids is no table.
    let tables = limits.filter(|limit| limit.cause != LimitCause::StaticShape);
    faults.extend(tables.map(|limit| format!("{limit:?}")));
    let warnings = of_branch(model, &read);
    let missed = |part: &&&str| !warnings.iter().any(|warning| warning.contains(**part));
    faults.extend(
        warned
            .iter()
            .filter(missed)
            .map(|part| format!("no warning of {part}")),
    );
    let is_known = |warning: &&String| warned.iter().any(|part| warning.contains(part));
    faults.extend(warnings.iter().filter(|w| !is_known(w)).cloned());
    faults.extend(fault_of_removal(model, &read, !warned.is_empty()));
    faults
}

/// What is wrong with how positions are removed from a model that has none.
fn fault_of_removal(model: &Model, read: &Found, unread: bool) -> Option<String> {
    let none = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let mut bare = model.clone();
    let done = rewrite(&mut bare, &none);
    if bare.graph().text() != model.graph().text() {
        return Some("changed by a removal".to_owned());
    }
    let refused = match &done {
        Ok(_) => None,
        Err(why) => match why.refusal() {
            Some(refusal) => Some(refusal.kind().clone()),
            None => return Some(format!("removal: {why}")),
        },
    };
    let mut sites = read.attention.iter();
    let has_none = match read.latent[..] {
        [] => read.attention.is_empty(),
        _ => sites.all(|site| site.cross || read.latent.contains(&site.index)),
    };
    let want = match has_none {
        _ if unread => Some(RefusalKind::Unread),
        true => Some(RefusalKind::NoSite),
        false => None,
    };
    (refused != want).then(|| format!("removal: {:?}", done.map(|done| done.report)))
}

/// A network with this many sites of attention, and no position.
fn without(sites: usize, draw: Draw) {
    assert_eq!(faults(&drawn(draw), sites, &[]), [""; 0]);
}

/// A network of which no attention is read, with a warning of which this is a part: tokens or features
/// meet as queries and keys do.
fn warned(part: &str, draw: Draw) {
    assert_eq!(faults(&drawn(draw), 0, &[part]), [""; 0]);
}

/// A network with one site of attention and a learned table, which the checks above do not pass.
fn with_table(draw: Draw) {
    let model = drawn(draw);
    assert_eq!(kinds(&found(&model)), [Kind::Learned]);
    let faults = faults(&model, 1, &[]);
    assert!(faults.iter().any(|f| f.contains("Learned")), "{faults:?}");
    assert!(faults.iter().any(|f| f.contains("removal")), "{faults:?}");
}

/// The residual stream with a row of a table for each of its tokens.
fn placed(s: &mut Sketch, x: &str) -> String {
    let at = s.op("Shape", &[x]);
    let one = s.int(1);
    let length = s.gather(&at, &one, 0);
    let zero = s.int(0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let table = s.weights(&[40, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    s.op("Add", &[x, &rows])
}

/// Features of tokens, or of the members of a set.
fn sequence(s: &mut Sketch) -> String {
    s.input("x", DType::F32, &["batch", "sequence", "24"])
}

fn linear(s: &mut Sketch, x: &str, from: usize, to: usize) -> String {
    let (w, b) = (s.weights(&[from, to]), s.weights(&[to]));
    let y = s.op("MatMul", &[x, &w]);
    s.op("Add", &[&y, &b])
}

/// A block of two layers between tokens of the residual stream, added to it.
fn forward(s: &mut Sketch, x: &str) -> String {
    let y = normed(s, x);
    let y = linear(s, &y, HIDDEN, 32);
    let y = s.op("Relu", &[&y]);
    let y = linear(s, &y, 32, HIDDEN);
    s.op("Add", &[x, &y])
}

fn normed(s: &mut Sketch, x: &str) -> String {
    let (scale, bias) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
    s.op("LayerNormalization", &[x, &scale, &bias])
}

fn softmax(s: &mut Sketch, x: &str, axis: i64) -> String {
    s.with("Softmax", &[x], &[("axis", A::Int(axis))])
}

/// A reduction that leaves out the axes.
fn reduced(s: &mut Sketch, op: &str, x: &str, axes: &[i64]) -> String {
    let axes = s.ints(axes);
    s.with(op, &[x, &axes], &[("keepdims", A::Int(0))])
}

/// The same, with the axes of one element.
fn kept(s: &mut Sketch, op: &str, x: &str, axes: &[i64]) -> String {
    let axes = s.ints(axes);
    s.op(op, &[x, &axes])
}

fn split(s: &mut Sketch, x: &str, sizes: &[i64], axis: i64) -> Vec<String> {
    let parts = s.ints(sizes);
    s.many(
        "Split",
        &[x, &parts],
        &[("axis", A::Int(axis))],
        sizes.len(),
    )
}

/// A convolution with weights of this shape, which keeps lengths.
fn convolved(s: &mut Sketch, x: &str, weights: &[usize], groups: usize) -> String {
    let half: Vec<i64> = weights[2..].iter().map(|n| (n / 2) as i64).collect();
    let pads = [half.clone(), half].concat();
    let (w, b) = (s.weights(weights), s.weights(&weights[..1]));
    let group = ("group", A::Int(groups as i64));
    s.with("Conv", &[x, &w, &b], &[group, ("pads", A::Ints(&pads))])
}

/// Pictures of 3 channels.
fn pixels(s: &mut Sketch) -> String {
    s.input("pixels", DType::F32, &["batch", "3", "32", "32"])
}

/// Learned vectors, one set for each element of the batch of `x`.
fn expanded(s: &mut Sketch, x: &str, count: usize) -> String {
    let vectors = s.weights(&[1, count, HIDDEN]);
    let shape = s.op("Shape", &[x]);
    let batch = s.slice(&shape, 0, [0, 1, 1]);
    let rest = s.ints(&[count as i64, HIDDEN as i64]);
    let shape = s.concat(&[&batch, &rest], 0);
    s.op("Expand", &[&vectors, &shape])
}

/// `queries` attend to `keys` by scores that `change` changes; added to the queries.
fn attending(
    s: &mut Sketch,
    queries: &str,
    keys: &str,
    change: fn(&mut Sketch, String) -> String,
) -> String {
    let q = s.headed(queries);
    let [k, v] = [(); 2].map(|()| s.headed(keys));
    let scores = scores(s, &q, &k);
    let scores = change(s, scores);
    let weights = softmax(s, &scores, -1);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    let y = linear(s, &y, HIDDEN, HIDDEN);
    s.op("Add", &[queries, &y])
}
