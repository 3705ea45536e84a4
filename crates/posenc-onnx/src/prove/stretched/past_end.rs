//! What the first token beyond the old length meets: comparisons, limits and cuts that have no effect on
//! shorter sequences.

use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Node, ValueId};

use crate::detect::context::Context;
use crate::detect::run_at;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;
use crate::prove::stretched::frames::Frames;

/// Refuses a model in which something other than a table ends at the old length. `frames` tells what makes so many
/// tokens, where these are no elements of the inputs. `budget` is that of each run; of nodes with more numbers
/// than that, a warning.
///
/// # Errors
/// With the node, where a token beyond `old` is treated in another way than all before.
pub(in crate::prove) fn check(
    after: &Context<'_>,
    old: usize,
    frames: Option<&Frames>,
    budget: &Budget,
) -> Result<Option<String>, RewriteError> {
    let run = |tokens: usize| {
        let sequence = match frames {
            Some(frames) => frames.for_tokens(after, tokens)?,
            None => tokens,
        };
        let wanted = Lengths {
            batch: 1,
            sequence,
            past: 0,
        };
        run_at(after.model, after.found, wanted, budget)
    };
    let Some(less) = old.checked_sub(1) else {
        return Ok(None);
    };
    let (Some(shorter), Some(full), Some(longer)) = (run(less), run(old), run(old + 1)) else {
        // A model of one length has nothing beyond it; how many frames make a token may not be found.
        return Ok(frames.map(|_| {
            format!(
                "what the first token beyond {old} meets was not compared, because no input that makes \
                 {less}, {old} and {} tokens was found; compare the outputs with the model's own code",
                old + 1
            )
        }));
    };
    let runs = [&shorter, &full, &longer];
    let is_too_large = |value: ValueId| {
        let known = longer.get(value);
        let is_above = |count| count > budget.elements;
        known.to_f64().is_none() && known.elements().is_none_or(is_above)
    };
    let mut left_out = vec![];
    for (id, node) in after.graph().nodes() {
        let Some(output) = node.output(0).filter(|_| node.domain().is_empty()) else {
            continue;
        };
        let (is_meant, ends) = match node.op() {
            "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal" => {
                (is_integral(after, output), is_new(after, runs, output))
            }
            "Div" => {
                let is_list = full.get(output).elements() != Some(1);
                let is_new = is_list && is_new(after, runs, output);
                (is_integral(after, output), is_new)
            }
            "Min" | "Max" | "Clip" | "Mod" => {
                let follows = following(after, node).next().is_some();
                (
                    follows && !after.is_content(output),
                    is_held(after, runs, node, output),
                )
            }
            "Slice" | "Pad" => (false, is_cut(runs, node, output)),
            _ => (false, false),
        };
        if is_meant && is_too_large(output) {
            left_out.push(id);
        }
        if ends {
            let why = format!(
                "this {} has no effect up to {old} tokens, and how it goes on beyond is not known",
                node.op()
            );
            return Err(after.refuse(id, why));
        }
    }
    Ok(left_out.first().map(|first| {
        let place = after.graph().place(*first);
        let others = match left_out.len() {
            1 => String::new(),
            count => format!(", and {} nodes more", count - 1),
        };
        format!(
            "what the first token beyond {old} meets was not compared at {place}{others}, of too many numbers; \
             compare the outputs for more than {old} tokens with the model's own code"
        )
    }))
}

/// Whether a value has whole numbers or truth values that do not depend on content.
fn is_integral(after: &Context<'_>, value: ValueId) -> bool {
    let dtype = after.dtype(value);
    !after.is_content(value) && (dtype.is_int() || dtype == posenc_ir::DType::Bool)
}

/// The operands of a node that follow positions or lengths, and no content.
fn following(after: &Context<'_>, node: &Node) -> impl Iterator<Item = ValueId> {
    let classes = &after.found.classes;
    let operands = node.inputs().iter().flatten().copied();
    operands.filter(|v| {
        let class = classes.of_value(*v);
        !class.has(Class::CONTENT) && (class.has(Class::POSITION) || class.has(Class::LENGTH))
    })
}

/// Whether a value has one number up to the old length, and another one beyond.
fn is_new(after: &Context<'_>, [shorter, full, longer]: [&Trace; 3], value: ValueId) -> bool {
    if !is_integral(after, value) {
        return false;
    }
    let only = |run: &Trace| {
        let numbers = run.get(value).to_f64()?;
        let first = *numbers.first()?;
        numbers.iter().all(|v| *v == first).then_some(first)
    };
    match (only(shorter), only(full)) {
        (Some(a), Some(b)) => {
            a == b && longer.get(value).to_f64().is_some() && only(longer) != Some(a)
        }
        _ => false,
    }
}

/// Whether an operand grows with the length, and the result only up to the old length.
fn is_held(
    after: &Context<'_>,
    [_, full, longer]: [&Trace; 3],
    node: &Node,
    output: ValueId,
) -> bool {
    let ends = |run: &Trace, value: ValueId, sign: f64| {
        let numbers = run.get(value).to_f64()?;
        numbers.iter().map(|v| sign * v).reduce(f64::max)
    };
    following(after, node).any(|operand| {
        [1.0, -1.0].into_iter().any(|sign| {
            let of = |run, value| ends(run, value, sign);
            match (
                of(full, operand),
                of(longer, operand),
                of(full, output),
                of(longer, output),
            ) {
                (Some(a), Some(b), Some(c), Some(d)) => a == c && b > a && d == c,
                _ => false,
            }
        })
    })
}

/// Whether an axis is whole up to the old length and no longer beyond.
fn is_cut([_, full, longer]: [&Trace; 3], node: &Node, output: ValueId) -> bool {
    let Some(data) = node.input(0) else {
        return false;
    };
    let dims = |run: &Trace, value: ValueId| run.get(value).dims.clone().unwrap_or_default();
    let (a, b) = (dims(full, data), dims(longer, data));
    let (c, d) = (dims(full, output), dims(longer, output));
    let is_ranked = [b.len(), c.len(), d.len()]
        .iter()
        .all(|rank| *rank == a.len());
    is_ranked
        && (0..a.len()).any(|axis| a[axis] == c[axis] && b[axis] > a[axis] && d[axis] == c[axis])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HIDDEN, Sketch};
    use posenc_ir::DType;

    /// What is said of attention that hides keys more than 7 tokens behind, after so many tokens.
    fn said(old: usize, elements: usize) -> Result<Option<String>, String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [scores, v] = s.scored(&x, &x);
        let d = s.distance();
        let (far, low) = (s.int(-7), s.float(-1e9));
        let is_far = s.op("Less", &[&d, &far]);
        let scores = s.op("Where", &[&is_far, &low, &scores]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let model = s.model(18, &[&y]);
        let found = detect(&model, &Options::default());
        let context = Context {
            model: &model,
            found: &found,
        };
        check(&context, old, None, &Budget { elements }).map_err(|why| why.to_string())
    }

    /// Every frame makes two tokens.
    #[test]
    fn tokens_that_no_frames_make_are_named() {
        let mut s = Sketch::default();
        let x = s.input("mel", DType::F32, &["batch", "8", "frames"]);
        let w = s.weights(&[8, HIDDEN, 2]);
        let y = s.with("ConvTranspose", &[&x, &w], &[("strides", A::Ints(&[2]))]);
        let x = s.transpose(&y, &[0, 2, 1]);
        let (shape, one, zero) = (s.op("Shape", &[&x]), s.ints(&[1]), s.ints(&[0]));
        let length = s.gather(&shape, &one, 0);
        let table = s.weights(&[64, HIDDEN]);
        let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
        let x = s.op("Add", &[&x, &rows]);
        let y = s.attends(&x, &x);
        let model = s.model(18, &[&y]);
        let found = detect(&model, &Options::default());
        let context = Context {
            model: &model,
            found: &found,
        };
        let frames = Frames::of(&context, &found.findings[0]).expect("two for each");
        assert_eq!(frames.for_tokens(&context, 40), Some(20), "control");
        let said = check(&context, 40, Some(&frames), &Budget { elements: 1 << 16 });
        let said = said.expect("nothing ends").expect("a warning");
        assert!(
            said.contains("what the first token beyond 40 meets"),
            "{said}"
        );
        assert!(
            said.contains("no input that makes 39, 40 and 41 tokens"),
            "{said}"
        );
    }

    #[test]
    fn what_ends_is_refused_and_what_is_too_large_is_named() {
        let why = said(8, 81).expect_err("keys are hidden from token 9 on");
        assert!(why.contains("has no effect up to 8 tokens"), "{why}");
        assert_eq!(said(6, 81), Ok(None));
        assert_eq!(said(20, 441), Ok(None));
        for (old, elements) in [(8, 80), (6, 48), (20, 440)] {
            let warning = said(old, elements).expect("a warning").expect("a warning");
            let says = format!("what the first token beyond {old} meets was not compared at");
            assert!(warning.contains(&says), "{warning}");
            assert!(warning.contains("Less"), "{warning}");
        }
    }
}
