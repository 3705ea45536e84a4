//! Every form without the rotation of its queries and keys.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::{Budget, Value, trace};

use super::*;
use crate::attention::Operand;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

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

/// A model without the rotation of its queries and keys, or why it cannot be removed.
fn without_rotation(form: &Form) -> Result<Model, String> {
    let mut bare = model(form);
    rewrite(&mut bare, &none()).map_err(|why| why.to_string())?;
    let text = bare.graph().text();
    match rewrite(&mut bare, &none()) {
        Ok(done) if done.report.edits.is_empty() && bare.graph().text() == text => Ok(bare),
        Ok(_) => Err("removed twice".to_owned()),
        Err(why) => Err(format!("the second time: {why}")),
    }
}

/// What is wrong with a model whose rotation was removed; `None` if nothing is.
fn fault_without_rotation(form: &Form) -> Option<String> {
    let (whole, bare) = (model(form), without_rotation(form));
    let bare = match bare {
        Ok(bare) => bare,
        Err(why) => return Some(why),
    };
    let Some((before, after)) = operands(&whole).zip(operands(&bare)) else {
        return Some("queries and keys cannot be computed".to_owned());
    };
    for (before, after) in before.iter().zip(&after) {
        if before.shape() != after.shape() {
            return Some(format!("{:?} {:?}", before.shape(), after.shape()));
        }
        // The first token is at position 0, where nothing rotates.
        let first = before.index_axis(Axis(0), 0);
        let near = |a: &f64, b: &f64| (a - b).abs() < 1e-9;
        let rotates = before.axis_iter(Axis(0)).any(|x| x != first);
        let alike = |x: ndarray::ArrayViewD<'_, f64>| x.iter().zip(&first).all(|(a, b)| near(a, b));
        if !rotates || !after.axis_iter(Axis(0)).all(alike) {
            return Some(format!(
                "rotated before: {rotates}, and other numbers after"
            ));
        }
    }
    None
}

#[test]
fn rope_is_removed_in_every_form() {
    let wrong: Vec<(&str, String)> = accepted::cases()
        .iter()
        .filter_map(|c| Some((c.name, fault_without_rotation(&c.form)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Attention whose values are changed by position, too.
fn with_values(attend: fn(&mut Sketch, &str, &str, &str) -> String) -> Form {
    Form {
        attend,
        ..Form::default()
    }
}

#[test]
fn rotations_of_values_are_removed_with_those_of_queries_and_keys() {
    let rotated = with_values(|s, q, k, v| {
        let v = halves(s, v);
        attend(s, q, k, &v)
    });
    let bare = without_rotation(&rotated).unwrap();
    let waves = bare.graph().nodes().filter(|(_, n)| n.is("Cos")).count();
    assert_eq!(waves, 0);
    let gated = with_values(|s, q, k, v| {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1]);
        let v = s.op("Mul", &[v, &at]);
        attend(s, q, k, &v)
    });
    let why = without_rotation(&gated).unwrap_err();
    assert!(why.contains("encoding of the values"), "{why}");
}

#[test]
fn an_unknown_rotation_is_removed_only_where_queries_and_keys_rotate_alike() {
    let alike = [
        "an angle that grows with the square of the position",
        "an angle that is constant from some position on",
        "rows in a shuffled order",
    ];
    let cases = refused::cases().into_iter().filter(|c| c.unknown);
    let mut wrong = vec![];
    for case in cases {
        let name = case.name;
        let unchanged = model(&case.form).graph().text();
        match without_rotation(&case.form) {
            Ok(bare) if alike.contains(&name) => {
                if bare.graph().text() == unchanged {
                    wrong.push(format!("{name}: still there"));
                }
            }
            Ok(_) => wrong.push(format!("{name}: removed")),
            Err(why) => {
                let whys = found(&model(&case.form)).not_rotary;
                let said = whys.iter().any(|refused| why.contains(&refused.why));
                if alike.contains(&name) || !said {
                    wrong.push(format!("{name}: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
