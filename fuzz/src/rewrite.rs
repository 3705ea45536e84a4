//! Rewrites of any model: the result can be read and passes the check, and only the messages that
//! the edit names have changed.

use std::collections::{BTreeMap, BTreeSet};

use posenc_encodings::kind::Kind as Encoding;
use posenc_encodings::param::{Value as Given, Values};
use posenc_encodings::words::Word;
use posenc_ir::{Graph, Model, ScopeId, ScopeKind, Tensor, Use};
use posenc_onnx::RewriteError;
use posenc_onnx::request::{LawName, Request, ScaleType};

use super::random::Random;
use super::tree::{Kind, Message, Style, Value};

/// Inspects the model, and edits it by a rescale, a swap and a patch that its bytes determine.
///
/// # Panics
/// When the result cannot be read, fails the check, or differs where it must not.
pub fn rewrite(data: &[u8]) {
    let Ok(checked) = posenc_onnx::Model::from_bytes(data) else {
        return;
    };
    let model = checked.as_ir();
    let _ = checked.inspect();
    let mut random = Random::new(hash(data));
    let whole = model.inlined().is_ok_and(|flat| flat.is_none());
    let rewritten = |request: &Request| match checked.plan(request.clone()).ok()?.apply() {
        Ok(done) => Some(done.into_ir()),
        Err(error @ RewriteError::Result(_)) => panic!("{error}"),
        Err(_) => None,
    };
    if let Some(rescaled) = rewritten(&rescale(&mut random)) {
        check(data, &rescaled, whole);
    }
    let mut patched = model.clone();
    if patch(&mut patched, &mut random) {
        check(data, &patched, true);
    }
    // A swap is slow: it detects and proves several times.
    let request = swap(&mut random);
    if random.below(2) == 0
        && let Some(swapped) = rewritten(&request)
    {
        // A new input is an additional field.
        check(
            data,
            &swapped,
            whole && !request.allowances.add_position_ids,
        );
    }
}

fn hash(data: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn rescale(random: &mut Random) -> Request {
    let laws = LawName::ALL.iter().map(|law| ScaleType::Law(*law));
    let laws: Vec<ScaleType> = laws.chain([ScaleType::None]).collect();
    let scale = *random.pick(&laws);
    let mut request = Request {
        scale: Some(scale),
        ..Request::default()
    };
    let p = &mut request.parameters;
    p.factor = *random.pick(&[None, Some(2.0), Some(4.0), Some(1.0), Some(0.0), Some(1e30)]);
    p.original_length = *random.pick(&[Some(64), Some(64), Some(4096), None, Some(0)]);
    p.theta = *random.pick(&[None, None, None, Some(1e6), Some(-1.0)]);
    p.max_length = *random.pick(&[None, None, Some(512), Some(1 << 40)]);
    request.allowances.allow_rescale = random.below(4) > 0;
    let list = (0..[4, 8, 16][random.below(3)]).map(f64::from);
    let list: Vec<f64> = list.map(|i| 1.0 + i / 4.0).collect();
    if let ScaleType::Law(law) = scale {
        for param in law.facts().params {
            let value = match param.values {
                Values::Numbers => Given::Numbers(list.clone()),
                Values::Positive | Values::NotNegative if random.below(4) == 0 => {
                    Given::Number(*random.pick(&[0.0, 0.5, 1.0, 8.0, 1e30]))
                }
                _ => continue,
            };
            p.law.set(param, value);
        }
    }
    request
}

fn swap(random: &mut Random) -> Request {
    let targets: Vec<Encoding> = Encoding::targets().collect();
    let mut request = Request {
        to: Some(*random.pick(&targets)),
        ..Request::default()
    };
    if random.below(4) == 0 {
        request.layers = "0".parse().ok();
    }
    let p = &mut request.parameters;
    p.max_length = *random.pick(&[Some(64), Some(64), None, Some(1), Some(1 << 40)]);
    p.theta = *random.pick(&[None, None, Some(1e6), Some(0.0)]);
    p.rotary_dim = *random.pick(&[None, None, Some(4), Some(7), Some(0)]);
    let counts = [
        (
            "num-buckets",
            *random.pick(&[None, None, Some(8), Some(3), Some(0)]),
        ),
        (
            "max-distance",
            *random.pick(&[None, None, Some(4), Some(0), Some(1 << 40)]),
        ),
    ];
    let counts = counts.into_iter();
    p.family = counts
        .filter_map(|(name, count)| Some((name, Given::Count(count?))))
        .collect();
    if let Some(both) = *random.pick(&[None, None, Some(true), Some(false)]) {
        let bidirectional = &posenc_encodings::families::alibi::FAMILY.params[1];
        p.family
            .set(bidirectional, posenc_encodings::param::Value::Bool(both));
    }
    p.seed = Some(7);
    request.allowances.add_position_ids = random.below(4) == 0;
    request
}

/// Gives a constant other values, or inserts a node before a use. Returns whether the model changed.
///
/// # Panics
/// When a refused patch changes the model.
fn patch(model: &mut Model, random: &mut Random) -> bool {
    let graph = model.graph();
    let values: Vec<_> = graph
        .values()
        .filter(|v| !graph.uses(*v).is_empty())
        .collect();
    if values.is_empty() {
        return false;
    }
    let value = *random.pick(&values);
    let uses: Vec<Use> = graph.uses(value).to_vec();
    let at = *random.pick(&uses);
    let scope = graph.value(value).scope();
    let mut out = graph.emitter(scope, "posenc_fuzz");
    let done = match graph.constant(value) {
        Some(tensor) if random.below(2) == 0 => {
            let mut bytes = tensor.bytes().to_vec();
            bytes.reverse();
            let other = Tensor::new(tensor.dtype(), tensor.dims().to_vec(), bytes.into());
            let other = other.expect("the number of bytes is the same");
            let seen = if random.below(2) == 0 {
                &uses[..]
            } else {
                &[at]
            };
            out.replace_constant(value, seen, other).map(drop)
        }
        // A new node needs an import of its operator.
        _ if model.opsets().get("").is_none_or(|v| *v < 1) || in_function(graph, scope) => {
            return false;
        }
        _ => {
            let new = out.op("Identity", &[value]);
            match random.below(3) {
                0 => out.redirect(value, new),
                _ => out.redirect_use(value, at, new),
            }
        }
    };
    let patch = out.finish();
    let _ = patch.text(model.graph());
    if done.is_err() {
        return false;
    }
    // A patch may be refused: an input of the graph that is its output has no other name.
    let before = model.to_bytes().expect("a model can be written");
    let applied = model.commit(patch).is_ok();
    if !applied {
        let after = model.to_bytes().expect("a model can be written");
        assert!(before == after, "a refused patch changed the model");
    }
    applied
}

fn in_function(graph: &Graph, mut scope: ScopeId) -> bool {
    while let Some(parent) = graph.scope(scope).parent() {
        scope = parent;
    }
    matches!(graph.scope(scope).kind(), ScopeKind::Function { .. })
}

/// Checks the edited model, and that the messages outside of the edit are unchanged.
fn check(before: &[u8], model: &Model, whole: bool) {
    if let Err(error) = model.check() {
        panic!("the edited model does not pass the check: {error}");
    }
    let after = model.to_bytes().expect("an edited model can be written");
    let read = match Model::from_bytes(after.clone()) {
        Ok(read) => read,
        Err(error) => panic!("the edited model cannot be read: {error}"),
    };
    if let Err(error) = read.check() {
        panic!("the edited model, written and read, does not pass the check: {error}");
    }
    if whole {
        let faults = moved(before, &after);
        assert!(faults.is_empty(), "{faults:?}");
    }
}

/// The differences between two models that an edit may not make: all but nodes, initializers,
/// declared types of removed values, operator sets and metadata; and in a node that remains, all but
/// names and attributes.
pub fn moved(before: &[u8], after: &[u8]) -> Vec<String> {
    let parse = |bytes| Message::parse(Kind::Model, bytes);
    let (Some(before), Some(after)) = (parse(before), parse(after)) else {
        return vec!["not a message".into()];
    };
    let mut faults = vec![];
    rest(&before, &after, &[7, 8, 14, 25], &mut faults);
    let graphs = before.messages(7).zip(after.messages(7));
    let functions = before.messages(25).zip(after.messages(25));
    for (before, after) in graphs {
        scope(before, after, 1, &[1, 5, 13, 15], &mut faults);
    }
    for (before, after) in functions {
        scope(before, after, 7, &[7, 12], &mut faults);
    }
    faults
}

fn scope(before: &Message, after: &Message, node: u64, free: &[u64], faults: &mut Vec<String>) {
    rest(before, after, free, faults);
    // The outputs identify a node.
    let named = |m: &&Message| m.texts(2).iter().any(|name| !name.is_empty());
    let known: BTreeMap<Vec<&[u8]>, &Message> = before
        .messages(node)
        .filter(named)
        .map(|old| (old.texts(2), old))
        .collect();
    for new in after.messages(node) {
        if let Some(old) = known.get(&new.texts(2))
            && old.texts(4) == new.texts(4)
            && !is_added(old, new)
        {
            rest(old, new, &[1, 2, 5], faults);
        }
    }
    // Declared types are removed with their values, and never changed.
    let types: BTreeSet<Vec<u8>> = before
        .messages(13)
        .map(|m| m.encode(Style::Canonical))
        .collect();
    for info in after.messages(13) {
        if !types.contains(&info.encode(Style::Canonical)) {
            faults.push("a declared type changed".into());
        }
    }
}

/// Whether a new node took over the names of the outputs of another one.
fn is_added(old: &Message, new: &Message) -> bool {
    let named = new.texts(3).iter().any(|name| name.starts_with(b"posenc"));
    named && old.texts(3) != new.texts(3)
}

/// Compares the fields of two messages, in order, except those with numbers in `free`.
fn rest(before: &Message, after: &Message, free: &[u64], faults: &mut Vec<String>) {
    let kept = |m: &Message| -> Vec<(u64, Value)> {
        let fields = m.fields.iter().filter(|f| !free.contains(&f.number));
        fields.map(|f| (f.number, f.value.clone())).collect()
    };
    if kept(before) != kept(after) {
        faults.push(format!("fields of a {:?} changed", before.kind));
    }
}
