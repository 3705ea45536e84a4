//! The lengths at which whole models run.

mod ends;

use posenc_ir::{Model, ValueId};

use super::VerifyError;
use super::options::VerifyOptions;
use crate::attention::site::Operand;
use crate::detect::{Found, limits};
use crate::graph::ports::Lengths;
use crate::report::Limit;

/// Lengths to run at by default.
const LENGTHS: [usize; 5] = [1, 2, 64, 65, 128];

/// A model that takes no more tokens than this runs with as many as it takes.
const SHORT: usize = 64;

/// Tokens of a run of sound, beside that of the trial run.
const MANY: usize = 65;

/// The most scores of one attention in one run: 4 GiB in f32.
const SCORES: usize = 1 << 30;

/// The most scores of one attention in a run at the end of a table, which nobody asked for.
const SCORES_AT_ENDS: usize = 1 << 28;

/// The most scores of all attention in a run at a length at which rotations change, which nobody asked for: about a
/// second in all runtimes.
const SCORES_AROUND: usize = 1 << 22;

/// The most multiplications for the scores of all attention in one run: minutes.
const WORK: u64 = 1 << 38;

/// The lengths to run at, each once: those of the options, or the usual ones that fit the tables and
/// buffers of all models, and the most that fit short ones; adjusted to static shapes.
///
/// # Errors
/// Where a length of the options is more than a model supports, or more than can be run.
pub(crate) fn lengths(
    models: &[(&Model, &Found)],
    options: &VerifyOptions,
) -> Result<Vec<Lengths>, VerifyError> {
    let limits = models
        .iter()
        .flat_map(|(model, found)| limits::all(model.graph(), found));
    let limit = limits.min_by_key(|l| l.length);
    let limit = limit.as_ref();
    let first = models.first().map(|(_, found)| *found);
    let fitted = |sequence: usize| fitted(first, sequence);
    let longest = |at: Lengths| first.map_or(at.sequence, |found| self::longest(found, at));
    let fits = |at: Lengths| limit.is_none_or(|limit| longest(at) <= limit.length);
    let is_run = |length: &usize| {
        let mut all = models.iter();
        all.all(|(model, found)| is_affordable(model, found, fitted(*length)))
    };
    let wanted: Vec<usize> = match first.filter(|found| found.ports.is_sound()) {
        _ if !options.lengths.is_empty() => options.lengths.clone(),
        // A few samples make no token; those of the trial run do.
        Some(found) => {
            let more = more_sound(found, limit.map(|limit| limit.length));
            let trial = found.lengths.sequence;
            [trial].into_iter().chain(more.filter(is_run)).collect()
        }
        None => {
            let last = (1..=SHORT).rev().find(|l| fits(fitted(*l)));
            let all = LENGTHS.into_iter().chain(last.filter(is_run));
            let all = all.chain(ends(models).run);
            let mut all: Vec<usize> = all.filter(|l| fits(fitted(*l))).collect();
            all.sort_unstable();
            all
        }
    };
    // Limits are numbers of tokens.
    let is_known = options.lengths.is_empty();
    let mut all: Vec<Lengths> = vec![];
    for sequence in wanted {
        let at = fitted(sequence);
        if let Some(limit) = limit.filter(|_| !is_known && !fits(at)) {
            let why = format!(
                "length {} is more than the {} that the model supports; give shorter `lengths`",
                longest(at),
                limit.length
            );
            return Err(VerifyError::unsupported("verify", why));
        }
        for (model, found) in models {
            affordable(model, found, at, SCORES)?;
        }
        if !all.contains(&at) {
            all.push(at);
        }
    }
    Ok(all)
}

/// The most tokens of one stack in a run.
fn longest(found: &Found, at: Lengths) -> usize {
    let keys = found
        .attention
        .iter()
        .map(|site| tokens(found, &site.key, at));
    let of_sound = keys.max().filter(|_| found.ports.is_sound());
    of_sound.unwrap_or_else(|| found.ports.longest(at))
}

/// As much sound as makes some more tokens than the trial run has, within the limit of tokens.
fn more_sound(found: &Found, limit: Option<usize>) -> Option<usize> {
    let tokens = longest(found, found.lengths).max(1);
    let most = limit.map_or(usize::MAX, |limit| limit / tokens);
    let times = MANY.div_ceil(tokens).min(most);
    (times > 1).then(|| found.lengths.sequence.saturating_mul(times))
}

/// Whether a model runs at these lengths, as far as its tables and buffers tell.
pub(crate) fn supports(model: &Model, found: &Found, at: Lengths) -> bool {
    let limits = limits::all(model.graph(), found);
    let is_within = |limit: &Limit| longest(found, at) <= limit.length;
    found.ports.fit(at) == at && limits.iter().all(is_within)
}

/// Two sequences of about so many tokens, as the ports of the first model take them.
fn fitted(first: Option<&Found>, sequence: usize) -> Lengths {
    let wanted = Lengths {
        batch: 2,
        sequence,
        past: 0,
    };
    first.map_or(wanted, |found| found.ports.fit(wanted))
}

/// The lengths at which encodings change, but the usual ones.
struct Ends {
    run: Vec<usize>,
    /// Those that would take long.
    long: Vec<usize>,
}

fn ends(models: &[(&Model, &Found)]) -> Ends {
    let first = models.first().map(|(_, found)| *found);
    let tables = ends::of_tables(models);
    let mut all = ends::of_rotations(models);
    all.extend(&tables);
    all.retain(|length| !LENGTHS.contains(length));
    let is_run = |length: &usize| {
        let at = fitted(first, *length);
        models
            .iter()
            .all(|(model, found)| match tables.contains(length) {
                true => is_affordable(model, found, at),
                false => scores(found, at).all <= SCORES_AROUND,
            })
    };
    let (run, long) = all.into_iter().partition(is_run);
    Ends { run, long }
}

/// What is not run of the lengths at which the encodings of models change, with the reason.
pub(crate) fn not_run(models: &[(&Model, &Found)]) -> Option<String> {
    let first = models.first().map(|(_, found)| *found);
    let is_open = |found: &Found| !found.ports.is_sound() && found.ports.fixed_sequence().is_none();
    first.filter(|found| is_open(found))?;
    let fits = |length: &usize| {
        let at = fitted(first, *length);
        let mut all = models.iter();
        all.all(|(model, found)| supports(model, found, at))
    };
    let long = ends(models).long.into_iter().filter(fits);
    let long: Vec<String> = long.map(|length| length.to_string()).collect();
    let (last, first) = long.split_last()?;
    let (listed, them) = match first {
        [] => (format!("length {last}"), "it"),
        _ => (format!("lengths {} and {last}", first.join(", ")), "them"),
    };
    Some(format!(
        "whole runs at {listed}, because they take long; give {them} as `lengths`"
    ))
}

/// Whether a run takes no more memory and time than a comparison is worth.
pub(crate) fn is_affordable(model: &Model, found: &Found, at: Lengths) -> bool {
    affordable(model, found, at, SCORES_AT_ENDS).is_ok()
}

/// Refuses a run that would take more memory or time than a comparison is worth: `scores` are the most of one
/// attention.
fn affordable(model: &Model, found: &Found, at: Lengths, scores: usize) -> Result<(), VerifyError> {
    let Scores { most, work, .. } = self::scores(found, at);
    let length = at.sequence;
    let refuse = |why: String| Err(VerifyError::unsupported("verify", why));
    if most > scores || work > WORK {
        return refuse(format!(
            "length {length} needs {} scores in one attention and {} multiplications, more \
             than the {scores} and {WORK} that are run; give shorter `lengths`",
            counted(most as u64),
            counted(work)
        ));
    }
    // The usual lengths run, however large the model is.
    if LENGTHS.contains(&length) {
        return Ok(());
    }
    match largest(model, found, at) {
        Some((value, numbers)) if numbers > SCORES => refuse(format!(
            "length {length} needs {numbers} numbers for {}, more than the {SCORES} that are run; \
             give shorter `lengths`",
            model.graph().name(value)
        )),
        _ => Ok(()),
    }
}

/// The scores that a run computes.
#[derive(Clone, Copy, Debug, Default)]
struct Scores {
    /// Of all attention.
    all: usize,
    /// Of the attention that has the most.
    most: usize,
    /// The multiplications for all of them.
    work: u64,
}

fn scores(found: &Found, at: Lengths) -> Scores {
    let mut scores = Scores::default();
    for site in &found.attention {
        let sizes = [
            at.batch,
            site.heads.unwrap_or(1),
            tokens(found, &site.query, at),
            tokens(found, &site.key, at),
        ];
        let own = sizes.into_iter().fold(1usize, usize::saturating_mul);
        scores.all = scores.all.saturating_add(own);
        scores.most = own.max(scores.most);
        let each = (own as u64).saturating_mul(site.head_dim.unwrap_or(1) as u64);
        scores.work = scores.work.saturating_add(each);
    }
    scores
}

/// How many tokens queries or keys have in a run. Many samples of sound make one token: as many as in the trial run.
fn tokens(found: &Found, operand: &Operand, at: Lengths) -> usize {
    let dims = found.trace.get(operand.value).dims.as_ref();
    let of_trial = dims.and_then(|dims| dims.get(operand.lane.sequence).copied());
    match of_trial.filter(|_| found.ports.is_sound()) {
        Some(tokens) => {
            let all = tokens.saturating_mul(at.sequence);
            all.div_ceil(found.lengths.sequence.max(1))
        }
        None => at.sequence,
    }
}

/// A number in words; the largest stands for all that are above it.
fn counted(number: u64) -> String {
    match number {
        u64::MAX => "countless".to_owned(),
        _ => number.to_string(),
    }
}

/// The largest value that a run computes, with its numbers: the dimensions of the trial run that are
/// those of its sequences grow with them.
fn largest(model: &Model, found: &Found, at: Lengths) -> Option<(ValueId, usize)> {
    let graph = model.graph();
    let trial = found.lengths;
    let grown = |dim: &usize| match *dim {
        n if n == trial.sequence || n == trial.sequence + trial.past => at.sequence,
        n if n == trial.batch => at.batch,
        n => n,
    };
    let numbers = |value: ValueId| {
        graph.producer(value)?;
        let dims = found.trace.get(value).dims.as_ref()?;
        let numbers = dims.iter().map(grown).fold(1usize, usize::saturating_mul);
        Some((value, numbers))
    };
    graph.values().filter_map(numbers).max_by_key(|(_, n)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HIDDEN, Sketch};
    use crate::prove::testing::{fixture, rescaled_by};
    use crate::request::LawName;
    use crate::rewrite::rewrite;
    use posenc_ir::DType;

    /// Tokens as vectors of a vocabulary, without attention.
    fn model(vocabulary: usize) -> Model {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             test (int64[batch,sequence] input_ids) => (float[batch,sequence,{vocabulary}] y)\n\
             <int64 depth = {{{vocabulary}}}, float[2] values = {{0.0, 1.0}}>\n\
             {{ y = OneHot <axis = -1> (input_ids, depth, values) }}"
        );
        Model::parse(&text).unwrap()
    }

    #[test]
    fn lengths_that_no_memory_holds_are_refused_without_attention_too() {
        let model = model(50_000);
        let found = detect(&model, &Options::default());
        let at = |length| {
            let options = VerifyOptions {
                lengths: vec![length],
                ..VerifyOptions::default()
            };
            let lengths = lengths(&[(&model, &found)], &options);
            lengths.map(|l| l.len()).map_err(|e| e.to_string())
        };
        assert_eq!(at(128), Ok(1));
        assert_eq!(at(4096), Ok(1));
        let why = "verify: length 100000 needs 10000000000 numbers for y, more than the \
                   1073741824 that are run; give shorter `lengths`";
        assert_eq!(at(100_000), Err(why.to_owned()));
    }

    #[test]
    fn short_tables_are_run_to_their_end() {
        let run = |rows: usize| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let table = s.weights(&[rows, HIDDEN]);
            let at = s.range();
            let own = s.gather(&table, &at, 0);
            let x = s.op("Add", &[&x, &own]);
            let y = s.attends(&x, &x);
            let model = s.model(17, &[&y]);
            let found = detect(&model, &Options::default());
            let all = lengths(&[(&model, &found)], &VerifyOptions::default()).unwrap();
            all.iter().map(|at| at.sequence).collect::<Vec<_>>()
        };
        assert_eq!(run(48), [1, 2, 48]);
        assert_eq!(run(64), [1, 2, 64]);
        assert_eq!(run(100), [1, 2, 64, 65]);
    }

    #[test]
    fn scores_of_sound_are_counted_by_tokens_and_not_by_samples() {
        // A token of 384 samples, as in Moonshine.
        let mut s = Sketch::default();
        let x = s.input("input_values", DType::F32, &["batch", "num_samples"]);
        let x = s.unsqueeze(&x, &[1]);
        let weights = s.weights(&[HIDDEN, 1, 384]);
        let strides: &[(&str, A)] = &[("strides", A::Ints(&[384]))];
        let x = s.with("Conv", &[&x, &weights], strides);
        let x = s.transpose(&x, &[0, 2, 1]);
        let y = s.attends(&x, &x);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert!(found.ports.is_sound() && found.lengths.sequence >= 2048);
        let all = lengths(&[(&model, &found)], &VerifyOptions::default()).unwrap();
        let keys = found.attention[0].keys(&found.trace).unwrap();
        let times = MANY.div_ceil(keys);
        let sound = [1, times].map(|times| times * found.lengths.sequence);
        assert_eq!(all.iter().map(|at| at.sequence).collect::<Vec<_>>(), sound);
        assert_eq!(
            more_sound(&found, Some(2 * keys + 1)),
            Some(2 * found.lengths.sequence)
        );
        assert_eq!(more_sound(&found, Some(keys)), None);
        let at = Lengths {
            batch: 2,
            sequence: 384 * 100,
            past: 0,
        };
        let heads = found.attention[0].heads.unwrap();
        let is_run = |most| affordable(&model, &found, at, most).is_ok();
        assert!(is_run(2 * heads * 110 * 110) && !is_run(2 * heads * 90 * 90));
        // As many samples as make too many tokens are refused.
        let hours = Lengths {
            sequence: 384 << 16,
            ..at
        };
        assert!(affordable(&model, &found, hours, SCORES).is_err());
    }

    #[test]
    fn rescaled_rotations_run_around_their_ends() {
        let mut model = fixture("llama/dynamo");
        let run = |model: &Model| {
            let found = detect(model, &Options::default());
            let all = lengths(&[(model, &found)], &VerifyOptions::default()).unwrap();
            let all: Vec<usize> = all.iter().map(|at| at.sequence).collect();
            (all, not_run(&[(model, &found)]))
        };
        let (usual, none) = run(&model);
        assert_eq!((&usual[..], none), (&LENGTHS[..], None));
        let mut request = rescaled_by(LawName::Dynamic, 4.0);
        request.parameters.original_length = Some(100);
        let mut short = model.clone();
        rewrite(&mut short, &request).unwrap();
        let (all, none) = run(&short);
        assert_eq!(all, [1, 2, 64, 65, 99, 100, 101, 128, 200, 400]);
        assert_eq!(none, None);
        request.parameters.original_length = Some(3000);
        rewrite(&mut model, &request).unwrap();
        let (all, long) = run(&model);
        assert_eq!(all, LENGTHS);
        let why = "whole runs at lengths 2999, 3000, 3001, 6000 and 12000, because they take long; give them as \
                   `lengths`";
        assert_eq!(long.as_deref(), Some(why));
    }

    #[test]
    fn scores_are_counted_for_all_sequences_and_heads() {
        let model = fixture("mini/learned");
        let found = detect(&model, &Options::default());
        let at = Lengths {
            batch: 2,
            sequence: 64,
            past: 0,
        };
        let heads = found.attention[0].heads.unwrap();
        let scores = 2 * heads * 64 * 64;
        let is_run = |most| affordable(&model, &found, at, most).is_ok();
        assert!(is_run(scores) && !is_run(scores - 1));
    }
}
