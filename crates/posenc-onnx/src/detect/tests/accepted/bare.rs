//! Every accepted form without its rotation.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::{Budget, Value, trace};

use super::*;
use crate::attention::Operand;
use crate::kind::Kind;

fn none() -> Request {
    Request {
        to: Some(Kind::None),
        ..Request::default()
    }
}

/// Queries and keys of the one site where all tokens are the same, and the position of the first.
fn operands(model: &Model) -> Option<[ArrayD<f64>; 2]> {
    let found = found(model);
    let [site] = &found.attention[..] else {
        return None;
    };
    let mut seeds = found.ports.seeds(model.graph(), found.lengths);
    for seed in seeds.values_mut().filter(|v| v.data.is_none()) {
        *seed = Value::float(ArrayD::ones(seed.dims.clone()?));
    }
    let budget = Budget { elements: 1 << 22 };
    let run = trace(model, &seeds, &|_| false, &budget);
    let of = |operand: &Operand| {
        let value = run.get(operand.value).to_f64()?;
        // Tokens first.
        let mut order: Vec<usize> = (0..value.ndim()).collect();
        order.retain(|a| *a != operand.lane.sequence);
        order.insert(0, operand.lane.sequence);
        Some(value.permuted_axes(order))
    };
    Some([of(&site.query)?, of(&site.key)?])
}

/// What a model without its rotation is other than it should be.
fn misbared(case: &Case) -> Option<String> {
    let mut bare = model(&case.form);
    let whole = bare.clone();
    if let Err(why) = rewrite(&mut bare, &none()) {
        return Some(why.to_string());
    }
    let text = bare.graph().text();
    match rewrite(&mut bare, &none()) {
        Ok(done) if done.report.edits.is_empty() && bare.graph().text() == text => {}
        Ok(_) => return Some("taken out twice".to_owned()),
        Err(why) => return Some(format!("the second time: {why}")),
    }
    let Some((before, after)) = operands(&whole).zip(operands(&bare)) else {
        return Some("queries and keys cannot be computed".to_owned());
    };
    for (before, after) in before.iter().zip(&after) {
        if before.shape() != after.shape() {
            return Some(format!("{:?} {:?}", before.shape(), after.shape()));
        }
        // The first token stands at position 0, where nothing turns.
        let first = before.index_axis(Axis(0), 0);
        let near = |a: &f64, b: &f64| (a - b).abs() < 1e-9;
        let turns = before.axis_iter(Axis(0)).any(|x| x != first);
        let alike = |x: ndarray::ArrayViewD<'_, f64>| x.iter().zip(&first).all(|(a, b)| near(a, b));
        if !turns || !after.axis_iter(Axis(0)).all(alike) {
            return Some(format!("turned before: {turns}, and other numbers after"));
        }
    }
    None
}

#[test]
fn rope_is_taken_out_however_it_is_written() {
    let wrong: Vec<(&str, String)> = cases()
        .iter()
        .filter_map(|c| Some((c.name, misbared(c)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
