//! Whole models in every runtime, and their rotations against the formula.

use posenc_ir::{Dim, Model};
use posenc_runtime::{Backend, RuntimeError};

use super::comparison::{Comparison, WholeRuns};
use super::error::VerifyError;
use super::feeds::Padding;
use super::given::Given;
use super::inputs;
use super::lengths;
use super::options::{Bisect, VerifyOptions};
use super::points::{self, Meaning, Point};
use super::recorded::Held;
use super::records::held;
use super::rotations::rotations;
use super::run::{RuntimeTarget, as_backends, targets};
use super::subject::Subject;
use super::unchanged::is_unchanged;
use crate::detect::{Found, detect};
use crate::graph::ports::Lengths;
use crate::graph::reorder::Order;
use crate::record::{self, asked};
use crate::report::Verify;
use crate::request::roles;

/// What is outside of the edits of a rewrite.
#[derive(Debug)]
pub(crate) struct Rest {
    /// How it differs from the original.
    pub(crate) held: Held,
    /// What was not compared, with the reason.
    pub(crate) unchecked: Vec<String>,
    /// The inputs and outputs that the original has in another order, with the order that they got.
    pub(crate) moved: Vec<(String, Order)>,
}

/// What a rewritten model is run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The original, from whose outputs the rewrite makes its own differ.
    Original,
    /// The same rewrite of the original, made again, which has to compute the same.
    Again,
}

/// Proves a model: its rotations and what was inserted against the formula, the graph against its
/// record, and whole runs against `other` or, without it, against the first run. Of a model that was rewritten,
/// `rewritten` says what `other` is, and how the two differ.
pub(crate) fn verify_with(
    model: &Model,
    other: Option<&Model>,
    options: &VerifyOptions,
    backends: &[Box<dyn Backend>],
    rewritten: Option<(Beside, Rest)>,
) -> Result<Verify, VerifyError> {
    let options = &with_recorded_roles(model, options);
    if backends.is_empty() {
        let none = RuntimeError::unavailable("a runtime", "none was found, and none is built in");
        return Err(VerifyError::runtime("verify", none));
    }
    let beside = rewritten.as_ref().map(|(beside, _)| *beside);
    let meaning = match beside {
        // Rotations in another form compute the same.
        Some(Beside::Original) if !is_only_form(model) => Meaning::NewFunction,
        _ => Meaning::Same,
    };
    let roles = roles(&options.roles);
    let mut given = Given::of(model, &roles);
    let mut other = other.map(|other| Given::of(other, &roles));
    if let Some(other) = &mut other {
        [given.name, other.name] = match beside {
            Some(Beside::Original) => ["the rewritten model, ", "the original, "],
            Some(Beside::Again) => ["the rewritten model, ", "the rewrite made again, "],
            None => ["the first model, ", "the second model, "],
        };
    }
    let targets = targets(options, backends)?;
    let placed = as_backends(&targets);
    // A rewrite made again has the record that it has just got.
    let is_again = beside == Some(Beside::Again);
    let recorded = other.as_ref().filter(|_| !is_again);
    let mut records = held(&given, recorded, options, &placed, beside.is_some())?;
    let mut moved = vec![];
    if let Some((_, rest)) = rewritten {
        records.add(rest.held);
        records.unchecked.extend(rest.unchecked);
        moved = rest.moved;
    }
    if is_again {
        moved.clear();
        let why = "outputs against those of the original, because runs are compared with the same rewrite made again, \
                   where the first value that differs is searched";
        records.unchecked.push(why.to_owned());
    }
    let is_broken = records.checks.iter().any(|check| !check.ok);
    let mut report = match computed(&given, (other.as_ref(), &moved), options, &targets, meaning) {
        Ok(report) => report,
        // What differs from the record is a result, whether a runtime runs it or not.
        Err(error) if is_broken => {
            records.unchecked.push(format!("runs, because {error}"));
            Verify::new(vec![], vec![])
        }
        Err(error) => return Err(error),
    };
    records.checks.append(&mut report.sites);
    let mut all = Verify::new(report.runs, records.checks);
    all.warnings = records.warnings;
    all.warnings.extend(report.warnings);
    let unread = record::read_unread(model).into_iter();
    let unread = unread.map(|why| format!("not read when the model was rewritten: {why}"));
    all.warnings.extend(unread);
    all.unchecked = records.unchecked;
    all.unchecked.extend(report.unchecked);
    Ok(all)
}

/// The options with the roles of inputs that the last rewrite was given.
fn with_recorded_roles(model: &Model, options: &VerifyOptions) -> VerifyOptions {
    let mut options = options.clone();
    let asked = asked::read(model).and_then(Result::ok);
    for (name, role) in asked
        .map(|asked| asked.request.input_roles)
        .unwrap_or_default()
    {
        options.roles.entry(name).or_insert(role);
    }
    options
}

/// Whether the last rewrite gave rotations another form, and changed nothing else.
fn is_only_form(model: &Model) -> bool {
    let asked = asked::read(model).and_then(Result::ok);
    asked.is_some_and(|asked| asked.request.is_only_form())
}

/// Rotations against their formula, and whole runs. The other model has the inputs and outputs `moved` in another
/// order.
fn computed(
    given: &Given<'_>,
    (other, moved): (Option<&Given<'_>>, &[(String, Order)]),
    options: &VerifyOptions,
    targets: &[RuntimeTarget<'_>],
    meaning: Meaning,
) -> Result<Verify, VerifyError> {
    let model = given.model;
    let found = detected(model, options);
    let backends = as_backends(targets);
    let plain = given.plain.as_ref().map(|plain| detected(plain, options));
    let read = (given.read(), plain.as_ref().unwrap_or(&found));
    let rotations = rotations(read.0, read.1, &backends);
    let (rotations, skipped) = rotations.map_err(|error| error.of_model(given.name))?;
    let subject = Subject::new(model, &found, options)?.named(given.name);
    let is_resized =
        meaning == Meaning::NewFunction && other.is_some_and(|o| other_sizes(model, o.model));
    let given_other = other.filter(|_| !is_resized);
    let other = given_other.map(|other| (other, detected(other.model, options)));
    let both = std::iter::once((model, &found)).chain(other.as_ref().map(|o| (o.0.model, &o.1)));
    let both: Vec<(&Model, &Found)> = both.collect();
    // A rewritten model may go on where its original ends.
    let compared = match meaning {
        Meaning::NewFunction => &both[..1],
        _ => &both[..],
    };
    let fed = &options.inputs[..];
    let lengths = match fed {
        [] => lengths::lengths(compared, options)?,
        fed => {
            inputs::check_names(both.iter().map(|(model, _)| model.graph()), fed)?;
            vec![inputs::lengths(&subject, fed)]
        }
    };
    let not_run = match options.lengths.is_empty() && fed.is_empty() {
        true => lengths::not_run(compared),
        false => None,
    };
    let other = match &other {
        Some((other, found)) => Some(Subject::new(other.model, found, options)?.named(other.name)),
        None => None,
    };
    let other = other.as_ref();
    let plain = given_other.and_then(|other| other.plain.as_ref());
    let plain = plain.map(|plain| (plain, detected(plain, options)));
    let original = match (&plain, other) {
        (Some((model, found)), _) => Some((*model, found)),
        (None, other) => other.map(|other| (other.model, other.found)),
    };
    let is_new = meaning == Meaning::NewFunction && fed.is_empty();
    let original = original.filter(|_| is_new);
    // More sound than that of the trial run need not fit.
    let is_sound = found.ports.is_sound() && options.lengths.is_empty() && fed.is_empty();
    let tried = if is_sound {
        found.lengths.sequence
    } else {
        usize::MAX
    };
    let meant = |at: &Lengths| -> Result<Point, VerifyError> {
        let unchanged = match original {
            Some(original) => is_unchanged(&[original, read], *at)?,
            None => false,
        };
        let runs = other.is_some_and(|other| lengths::supports(other.model, other.found, *at));
        let meaning = match meaning {
            Meaning::NewFunction if !runs => Meaning::Alone,
            Meaning::NewFunction if unchanged => Meaning::Same,
            meaning => meaning,
        };
        Ok(Point {
            at: *at,
            padding: Padding::Right,
            is_optional: at.sequence > tried,
            meaning,
        })
    };
    let points = lengths.iter().map(meant);
    let points = points.collect::<Result<Vec<Point>, VerifyError>>()?;
    let (points, single) = match fed {
        [] => {
            let single = points::alone(&points, subject.ports());
            (points::with_variants(&points, &subject), single)
        }
        _ => (points.clone(), points),
    };
    let of = |points| Comparison {
        subject: &subject,
        other,
        moved,
        points,
        options,
    };
    let several = of(&points);
    let ran = several.run(targets);
    let (comparison, mut whole) = match refusal(&ran).filter(|_| single != points) {
        None => (several, ran?),
        Some(why) => match of(&single).run(targets) {
            Ok(mut alone)
                if alone.refused.len() < refusing(&ran)
                    && (ran.is_err() || !alone.is_without_numbers()) =>
            {
                let mut refused = alone.refused.iter();
                let why = match refused.any(|error| error.to_string() == why) {
                    true => "no runtime runs it with several".to_owned(),
                    false => why,
                };
                alone
                    .warnings
                    .push(format!("run with one sequence, because {why}"));
                (of(&single), alone)
            }
            Err(alone @ VerifyError::Runtime { .. }) if ran.is_err() => return Err(alone),
            _ => (several, ran?),
        },
    };
    if options.bisect == Bisect::FirstFailure {
        comparison.bisect(&mut whole)?;
    }
    let mut report = whole.report(rotations.checks);
    report.unchecked.extend(differing(&points, is_resized));
    report.unchecked.extend(not_run);
    if !fed.is_empty() && subject.ports().has_past() {
        let why = "prefill against decode, because the inputs of one run were given";
        report.unchecked.push(why.to_owned());
    }
    report.unchecked.extend(rotations.unchecked);
    let skipped = skipped.iter().map(|error| format!("skipped: {error}"));
    for warning in skipped {
        if !report.warnings.contains(&warning) {
            report.warnings.push(warning);
        }
    }
    Ok(report)
}

/// Which outputs are not compared with those of the original.
fn differing(points: &[Point], is_resized: bool) -> Vec<String> {
    let of = |meaning: Meaning, why: &str| {
        // What else is run at a length means the same there.
        let usual = || points.iter().filter(|point| !point.is_optional);
        let all = usual().filter(|point| point.meaning == meaning);
        let all: Vec<String> = all.map(|point| point.at.sequence.to_string()).collect();
        let at = match &all[..] {
            [] => return None,
            all if all.len() == usual().count() => String::new(),
            [one] => format!(" at length {one}"),
            [all @ .., last] => format!(" at lengths {} and {last}", all.join(", ")),
        };
        Some(format!(
            "outputs against those of the original{at}, because {why}"
        ))
    };
    let ends = match is_resized {
        true => "a rewrite makes them differ",
        false => "the original does not run there",
    };
    let changed = of(Meaning::NewFunction, "a rewrite makes them differ");
    changed
        .into_iter()
        .chain(of(Meaning::Alone, ends))
        .collect()
}

/// Whether an input of both models is declared with other sizes in one of them, or with open ones.
fn other_sizes(model: &Model, other: &Model) -> bool {
    let inputs = |model: &Model| -> Vec<(String, Vec<Dim>)> {
        let graph = model.graph();
        let inputs = graph.scope(graph.main()).inputs().iter();
        let declared = inputs.filter_map(|v| Some((graph.name(*v), graph.value(*v).shape()?)));
        declared
            .map(|(name, dims)| (name.to_owned(), dims.to_vec()))
            .collect()
    };
    let others = inputs(other);
    inputs(model).iter().any(|(name, dims)| {
        let same = others.iter().find(|(other, _)| other == name);
        let mut pairs = same
            .into_iter()
            .flat_map(|(_, other)| dims.iter().zip(other));
        pairs.any(|(a, b)| match (a, b) {
            (Dim::Known(a), Dim::Known(b)) => a != b,
            (a, b) => matches!(a, Dim::Known(_)) != matches!(b, Dim::Known(_)),
        })
    })
}

/// Why a runtime did not run a model.
fn refusal(ran: &Result<WholeRuns<'_>, VerifyError>) -> Option<String> {
    let error = match ran {
        Ok(whole) => whole.refused.first()?,
        Err(error @ VerifyError::Runtime { .. }) => error,
        Err(_) => return None,
    };
    Some(error.to_string())
}

/// How many runtimes did not run a model; all, where none is known to have run it.
fn refusing(ran: &Result<WholeRuns<'_>, VerifyError>) -> usize {
    ran.as_ref().map_or(usize::MAX, |whole| whole.refused.len())
}

/// A model as it is run: with the width of its caches.
fn detected(model: &Model, options: &VerifyOptions) -> Found {
    let mut found = detect(model, &options.detection());
    found.ports = found.ports_with_width();
    found
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::graph::sketch::{HIDDEN, Sketch};
    use crate::prove::testing::{Chosen, Evaluator, fixture};

    /// The report of a model on two runtimes, of which the first refuses it and the second fails where told.
    fn on_one_of_two(fails: Chosen) -> Result<Verify, VerifyError> {
        let refusing = Evaluator {
            refused: Some("attention_mask"),
            ..Evaluator::default()
        };
        let failing = Evaluator {
            fails: Some(fails),
            ..Evaluator::default()
        };
        let backends: [Box<dyn Backend>; 2] = [Box::new(refusing), Box::new(failing)];
        let options = VerifyOptions {
            lengths: vec![1, 9],
            ..VerifyOptions::default()
        };
        verify_with(&fixture("bert/dynamo"), None, &options, &backends, None)
    }

    #[test]
    fn a_runtime_that_takes_one_sequence_is_enough() {
        let is_wide: Chosen = |fed| fed.iter().any(|(_, tensor)| tensor.dims()[0] > 1);
        let report = on_one_of_two(is_wide).unwrap();
        assert!(report.ok && !report.runs.is_empty());
        assert!(report.runs.iter().all(|run| run.batch == 1));
        let says = |part: &str| report.warnings.iter().any(|w| w.contains(part));
        assert!(says("run with one sequence"), "{:?}", report.warnings);
        assert!(on_one_of_two(|_| true).is_err(), "none runs it");
    }

    #[test]
    fn a_runtime_that_takes_one_sequence_and_gives_no_numbers_is_left_out() {
        let report = |is_broken: [bool; 2]| {
            let no_numbers = |is_broken: bool| Evaluator {
                fault: is_broken.then_some(|y, _| y.fill(f64::NAN)),
                ..Evaluator::default()
            };
            let [first, second] = is_broken.map(no_numbers);
            let first = Evaluator {
                fails: Some(|fed| fed.iter().any(|(_, tensor)| tensor.dims()[0] > 1)),
                ..first
            };
            let backends: [Box<dyn Backend>; 2] = [Box::new(first), Box::new(second)];
            let options = VerifyOptions {
                lengths: vec![1, 9],
                ..VerifyOptions::default()
            };
            // Without an encoding: a runtime that computes one wrongly is not left out.
            verify_with(&fixture("mini/none"), None, &options, &backends, None).unwrap()
        };
        let left_out = report([true, false]);
        assert!(left_out.ok && left_out.runs.iter().any(|run| run.batch > 1));
        assert!(left_out.warnings.iter().any(|w| w.starts_with("skipped")));
        assert!(report([false, false]).ok);
        assert!(!report([false, true]).ok, "control");
        assert!(!report([true, true]).ok, "control");
    }

    #[test]
    fn more_sound_than_that_of_the_trial_run_need_not_fit() {
        let mut s = Sketch::default();
        let x = s.input("frames", DType::F32, &["batch", "frames", "8"]);
        let w = s.weights(&[8, HIDDEN]);
        let x = s.op("MatMul", &[&x, &w]);
        let y = s.attends(&x, &x);
        let model = s.model(17, &[&y]);
        let report = |fails: Option<Chosen>| {
            let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator {
                fails,
                ..Evaluator::default()
            })];
            verify_with(&model, None, &VerifyOptions::default(), &backends, None)
        };
        let has_longer = |report: &Verify| report.runs.iter().any(|run| run.length > 64);
        assert!(has_longer(&report(None).unwrap()));
        let short = report(Some(|fed| fed[0].1.dims()[1] > 64)).unwrap();
        assert!(short.ok && !short.runs.is_empty() && !has_longer(&short));
        assert!(report(Some(|_| true)).is_err(), "control");
    }
}
