//! What begins to act behind the old length: numbers that are one number for all shorter sequences, bounds and
//! cuts.

use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Node, ValueId};

use crate::detect::context::Context;
use crate::detect::run_at;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;
use crate::prove::stretched::frames::Frames;

/// The most tokens of a run that looks for what begins before the new length: it has pairs of them.
const FAR: usize = 2048;

/// Refuses a model in which something other than a table ends at the old length, or begins between this and the new
/// one. `frames` tells what makes so many tokens, where these are no elements of the inputs. `budget` is that of each
/// run; of nodes with more numbers than that, a warning.
///
/// # Errors
/// With the node, where a token beyond `old` is treated in another way than all before.
pub(in crate::prove) fn check(
    after: &Context<'_>,
    [old, new]: [usize; 2],
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
    let longest = new.min(FAR);
    let longest = (longest > old + 1).then(|| run(longest)).flatten();
    let runs = Runs {
        shorter: &shorter,
        full: &full,
        longer: &longer,
        longest: longest.as_ref(),
    };
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
        let follows = || following(after, node).next().is_some() && !after.is_content(output);
        let is_meant = match node.op() {
            op if COMPARISONS.contains(&op) => is_integral(after, output),
            "Div" => is_integral(after, output),
            op if BENT.contains(&op) || STEPS.contains(&op) => follows(),
            _ => false,
        };
        let ends = runs.begins(after, node, output)
            || match node.op() {
                "Min" | "Max" | "Clip" | "Mod" => runs.is_held(after, node, output),
                "Slice" | "Pad" => runs.is_filled(output) || runs.is_cut(node, output),
                op if BENT.contains(&op) => runs.is_bent(after, node),
                _ => false,
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

/// Operators whose results are truth values.
const COMPARISONS: [&str; 5] = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"];

/// Other operators whose result may be one number for many operands.
const STEPS: [&str; 12] = [
    "Min",
    "Max",
    "Clip",
    "Mod",
    "Relu",
    "Sign",
    "Floor",
    "Ceil",
    "Round",
    "Cast",
    "Trilu",
    "HardSigmoid",
];

/// Operators whose result bends where their operand is 0, and is not one number on either side.
const BENT: [&str; 6] = ["LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Abs"];

/// Runs of one token less than the old length, of the old length, of one token more and, where that is more, of many
/// more.
struct Runs<'a> {
    shorter: &'a Trace,
    full: &'a Trace,
    longer: &'a Trace,
    longest: Option<&'a Trace>,
}

impl Runs<'_> {
    /// The runs beyond the old length.
    fn beyond(&self) -> impl Iterator<Item = &Trace> {
        [Some(self.longer), self.longest].into_iter().flatten()
    }

    /// Whether a result has one number for all tokens up to the old length, and others beyond.
    fn begins(&self, after: &Context<'_>, node: &Node, value: ValueId) -> bool {
        let Some(dims) = self.full.get(value).dims.as_deref() else {
            return false;
        };
        let is_list = dims.iter().product::<usize>() != 1;
        let has_more = |run: &&Trace| {
            let longer = run.get(value).dims.as_deref().unwrap_or_default();
            longer.len() == dims.len() && dims.iter().zip(longer).any(|(a, b)| a < b)
        };
        let op = node.op();
        let is_number = COMPARISONS.contains(&op) || op == "Div" && is_list;
        let is_number = is_number && is_integral(after, value);
        let is_compared = |run: &&Trace| is_number || is_list && has_more(run);
        let mut beyond = self.beyond().filter(is_compared).peekable();
        if after.is_content(value) || beyond.peek().is_none() {
            return false;
        }
        let before = [self.shorter, self.full].map(|run| only(run, value));
        let is_other =
            |run: &Trace| run.get(value).to_f64().is_some() && only(run, value) != before[0];
        before[0].is_some() && before[0] == before[1] && beyond.any(is_other)
    }

    /// Whether an operand without content is on one side of 0 up to the old length, and on the other one beyond.
    fn is_bent(&self, after: &Context<'_>, node: &Node) -> bool {
        following(after, node).any(|operand| {
            [1.0, -1.0].into_iter().any(|sign| {
                let is_above = |run| most(run, operand, sign).is_some_and(|most| most > 0.0);
                let before = most(self.full, operand, sign);
                before.is_some_and(|most| most <= 0.0) && self.beyond().any(is_above)
            })
        })
    }

    /// Whether a result has no elements up to the old length, and some beyond.
    fn is_filled(&self, value: ValueId) -> bool {
        let elements = |run: &Trace| run.get(value).elements();
        let is_empty = [self.shorter, self.full]
            .into_iter()
            .all(|run| elements(run) == Some(0));
        is_empty
            && self
                .beyond()
                .any(|run| elements(run).is_some_and(|count| count > 0))
    }

    /// Whether an operand grows with the length, and the result only up to the old length.
    fn is_held(&self, after: &Context<'_>, node: &Node, output: ValueId) -> bool {
        following(after, node).any(|operand| {
            [1.0, -1.0].into_iter().any(|sign| {
                let of = |value| [self.full, self.longer].map(|run| most(run, value, sign));
                match (of(operand), of(output)) {
                    ([Some(a), Some(b)], [Some(c), Some(d)]) => a == c && b > a && d == c,
                    _ => false,
                }
            })
        })
    }

    /// Whether an axis is whole up to the old length and no longer beyond.
    fn is_cut(&self, node: &Node, output: ValueId) -> bool {
        let Some(data) = node.input(0) else {
            return false;
        };
        let dims = |run: &Trace, value: ValueId| run.get(value).dims.clone().unwrap_or_default();
        let (a, b) = (dims(self.full, data), dims(self.longer, data));
        let (c, d) = (dims(self.full, output), dims(self.longer, output));
        let is_ranked = [b.len(), c.len(), d.len()]
            .iter()
            .all(|rank| *rank == a.len());
        let is_cut = |axis: usize| a[axis] == c[axis] && b[axis] > a[axis] && d[axis] == c[axis];
        is_ranked && (0..a.len()).any(is_cut)
    }
}

/// The number that all elements of a value are.
fn only(run: &Trace, value: ValueId) -> Option<f64> {
    let numbers = run.get(value).to_f64()?;
    let first = *numbers.first()?;
    numbers.iter().all(|v| *v == first).then_some(first)
}

/// The largest element of a value times a sign.
fn most(run: &Trace, value: ValueId, sign: f64) -> Option<f64> {
    let numbers = run.get(value).to_f64()?;
    numbers.iter().map(|v| sign * v).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HIDDEN, Sketch};
    use posenc_ir::{DType, Model};

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
        checked(&s.model(18, &[&y]), [old, old + 1], elements)
    }

    /// What is said of a model, with so many numbers in a run at the most.
    fn checked(
        model: &Model,
        lengths: [usize; 2],
        elements: usize,
    ) -> Result<Option<String>, String> {
        let found = &detect(model, &Options::default());
        let context = Context { model, found };
        check(&context, lengths, None, &Budget { elements }).map_err(|why| why.to_string())
    }

    /// What is said of tokens that are multiplied by what `change` makes of their places, from 8 tokens to 16.
    fn begun(change: fn(&mut Sketch, &str) -> String) -> Result<(), String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let places = s.range();
        let places = s.cast(&places, DType::F32);
        let factor = change(&mut s, &places);
        let factor = s.cast(&factor, DType::F32);
        let factor = s.unsqueeze(&factor, &[1]);
        let x = s.op("Mul", &[&x, &factor]);
        let y = s.attends(&x, &x);
        checked(&s.model(18, &[&y]), [8, 16], 1 << 16).map(drop)
    }

    /// Places, counted from this one.
    fn from(s: &mut Sketch, places: &str, first: f64) -> String {
        let first = s.float(first);
        s.op("Sub", &[places, &first])
    }

    #[test]
    fn what_begins_behind_the_old_length_is_refused_by_any_operator() {
        type Change = fn(&mut Sketch, &str) -> String;
        let begins: [(&str, Change); 9] = [
            ("Relu", |s, p| {
                let late = from(s, p, 7.0);
                s.op("Relu", &[&late])
            }),
            ("Relu of a later token", |s, p| {
                let late = from(s, p, 12.0);
                s.op("Relu", &[&late])
            }),
            ("Less", |s, p| {
                let first = s.float(13.0);
                s.op("Less", &[p, &first])
            }),
            ("Sign", |s, p| {
                let late = from(s, p, 7.5);
                s.op("Sign", &[&late])
            }),
            ("Floor", |s, p| {
                let step = s.float(8.0);
                let blocks = s.op("Div", &[p, &step]);
                s.op("Floor", &[&blocks])
            }),
            ("Cast", |s, p| {
                let step = s.float(8.0);
                let blocks = s.op("Div", &[p, &step]);
                s.cast(&blocks, DType::I64)
            }),
            ("Max", |s, p| {
                let least = s.float(7.0);
                s.op("Max", &[p, &least])
            }),
            ("LeakyRelu", |s, p| {
                let late = from(s, p, 7.0);
                s.op("LeakyRelu", &[&late])
            }),
            ("Slice", |s, p| {
                let late = s.slice(p, 0, [8, i64::MAX, 1]);
                let both = s.concat(&[&late, p], 0);
                s.slice(&both, 0, [0, 1, 1])
            }),
        ];
        for (name, change) in begins {
            let why = begun(change).expect_err(name);
            assert!(
                why.contains("has no effect up to 8 tokens"),
                "{name}: {why}"
            );
        }
        let stays: [(&str, Change); 5] = [
            ("places", |_, p| p.to_owned()),
            ("Relu within the old length", |s, p| {
                let late = from(s, p, 5.0);
                s.op("Relu", &[&late])
            }),
            ("Relu beyond the new length", |s, p| {
                let late = from(s, p, 15.0);
                s.op("Relu", &[&late])
            }),
            ("LeakyRelu within the old length", |s, p| {
                let late = from(s, p, 5.0);
                s.op("LeakyRelu", &[&late])
            }),
            ("Abs", |s, p| s.op("Abs", &[p])),
        ];
        for (name, change) in stays {
            assert_eq!(begun(change), Ok(()), "{name}");
        }
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
        let said = check(
            &context,
            [40, 41],
            Some(&frames),
            &Budget { elements: 1 << 16 },
        );
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
