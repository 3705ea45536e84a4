//! Putting another encoding in: what the swap did, as the report and the record of a rewrite.

pub mod branch;

use posenc_ir::Model;
use serde_json::{Value, json};

use super::Rewritten;
use crate::detect::{Found, Options, detect, limits};
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::rescale::Target;
use crate::record::{self, record as recorded};
use crate::report::{Edit, Encoding, Guarantee, Rewrite};
use crate::request::{Parameters, Request};
use crate::rewrite::rescale::stretch;
use crate::rewrite::swap::branch::{Swapped, swap};
use posenc_encodings::kind::{Kind, Layout};

/// Whether a request puts an encoding in, rather than stretching the rotations that are there.
pub(crate) fn is_asked(found: &Found, request: &Request) -> bool {
    match request.to {
        None => false,
        Some(Kind::Rope) => rope_is_asked(found, request),
        Some(_) => true,
    }
}

/// Whether the sites that are spoken of do not turn yet, or turn other features.
fn rope_is_asked(found: &Found, request: &Request) -> bool {
    let Parameters {
        layout,
        rotary_dim,
        theta,
        ..
    } = &request.parameters;
    let named = |site: usize| request.names(&found.attention[site]);
    let rotary: Vec<_> = found.rotary.iter().filter(|r| named(r.site)).collect();
    let all = (0..found.attention.len()).filter(|i| named(*i)).count();
    if rotary.is_empty() || request.layers.is_some() && rotary.len() < all {
        return found.unknown.is_empty() && found.axial.is_empty();
    }
    let stretched = request.scale.is_some() || request.hf_config.is_some() || theta.is_some();
    rotary.iter().any(|r| {
        let now = &r.query.rotation.rope;
        // A plain `--to rope` means the plain kind: halves of the whole head.
        let layout_differs = match layout {
            Some(layout) => now.layout != Some(*layout),
            None => !stretched && now.layout != Some(Layout::Half),
        };
        let width_differs = match rotary_dim {
            Some(dim) => now.rotary_dim != *dim,
            None => !stretched && now.rotary_dim != now.head_dim,
        };
        layout_differs || width_differs
    })
}

/// Swaps; what is left to do is to stretch rotations that were put in.
pub(crate) fn rewrite(
    model: &mut Model,
    mut report: Rewrite,
    before: &Found,
    request: &Request,
    options: &Options,
) -> Result<Rewritten, RewriteError> {
    let Some(swapped) = swap(model, before, request, options)? else {
        report.warnings.clone_from(&before.warnings);
        return Ok(Rewritten {
            report,
            targets: vec![],
            found: before.clone(),
            beside: vec![],
            max_length: request.parameters.max_length,
            proof: None,
        });
    };
    let Swapped {
        model: mut next,
        found,
        asked,
        nodes,
        widened,
        proof,
        branch,
    } = swapped;
    let (before, options) = match &branch {
        Some((before, options)) => (before, options),
        None => (before, options),
    };
    report.inferred.clone_from(&asked.inferred);
    let stretched = match asked.kind {
        Kind::Rope => stretched(&mut next, &found, before, request, options, &mut report)?,
        _ => None,
    };
    let Stretched {
        found,
        targets,
        nodes: more,
        constants,
    } = stretched.unwrap_or_else(|| Stretched {
        found,
        targets: vec![],
        nodes: [0, 0],
        constants: 0,
    });
    let changed = Changed {
        nodes: [nodes[0] + more[0], nodes[1] + more[1]],
        constants: widened + constants,
    };
    let (from, to) = (entries(model, before), entries(&next, &found));
    write(&mut next, &report, asked.kind, &to, targets.is_empty());
    report.edits = edits(before, &asked.sites, changed, &from, &to);
    report.guarantee = Guarantee::NewFunction;
    report.meaning = Some(meaning(&report.edits, asked.kind));
    report.limits.before = limits::all(model.graph(), before);
    report.limits.after = limits::all(next.graph(), &found);
    report.warnings = warnings(before, &found, &asked.sites, asked.max_length);
    // What of the old graph could not be evaluated may still be there.
    report.warnings.extend(before.warnings.iter().cloned());
    *model = next;
    Ok(Rewritten {
        report,
        targets,
        beside: super::beside(model, &found, options),
        found,
        max_length: asked.max_length,
        proof: Some(proof),
    })
}

/// Rotations that were put in and stretched.
struct Stretched {
    found: Found,
    targets: Vec<(usize, Target)>,
    /// Nodes that came and went.
    nodes: [usize; 2],
    /// Constants with another payload.
    constants: usize,
}

/// What a rewrite changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    /// Nodes that came and went.
    nodes: [usize; 2],
    /// Constants with another payload or shape.
    constants: usize,
}

/// Gives plain rotations that were put in the frequencies that the request names; `None` where it
/// names none. The length to stretch from is that of the model as it was.
fn stretched(
    next: &mut Model,
    found: &Found,
    before: &Found,
    request: &Request,
    options: &Options,
    report: &mut Rewrite,
) -> Result<Option<Stretched>, RewriteError> {
    if request.scale.is_none() && request.hf_config.is_none() {
        return Ok(None);
    }
    let (plan, done) = stretch(next, found, &before.limits, request, options)?;
    for value in &plan.inferred {
        if !report.inferred.contains(value) {
            report.inferred.push(value.clone());
        }
    }
    let (mut nodes, mut constants) = ([0, 0], 0);
    if let Some((scaled, groups)) = done {
        *next = scaled;
        for group in groups {
            nodes[0] += group.nodes_added;
            nodes[1] += group.nodes_removed;
            constants += group.constants_changed;
        }
    }
    let fingerprint = &report.input.fingerprint;
    record::write(next, fingerprint, plan.max_length, plan.records(found));
    let after = detect(next, options);
    super::agrees(next, found, &after, &plan)?;
    Ok(Some(Stretched {
        found: after,
        targets: plan.targets,
        nodes,
        constants,
    }))
}

/// An edit for each site; what was changed is counted with the first.
fn edits(
    before: &Found,
    sites: &[usize],
    changed: Changed,
    from: &[Encoding],
    to: &[Encoding],
) -> Vec<Edit> {
    let describe = |all: &[Encoding], site: usize| -> Value {
        let place = before.attention[site].place;
        let here = all
            .iter()
            .filter(|e| e.stack == place.stack && e.layers.binary_search(&place.layer).is_ok());
        let mut here: Vec<Value> = here
            .map(|e| json!({"kind": e.kind, "params": e.params}))
            .collect();
        match here.len() {
            0 => Value::Null,
            1 => here.remove(0),
            _ => Value::Array(here),
        }
    };
    let edit = |(n, site): (usize, &usize)| {
        let count = |all: usize| if n == 0 { all } else { 0 };
        Edit {
            site: before.attention[*site].name.clone(),
            from: describe(from, *site),
            to: describe(to, *site),
            nodes_added: count(changed.nodes[0]),
            nodes_removed: count(changed.nodes[1]),
            initializers_changed: count(changed.constants),
        }
    };
    sites.iter().enumerate().map(edit).collect()
}

/// What the swap means for the weights.
fn meaning(edits: &[Edit], to: Kind) -> String {
    let mut kinds: Vec<&str> = vec![];
    for from in edits.iter().map(|e| &e.from) {
        let all = from
            .as_array()
            .map_or(std::slice::from_ref(from), |list| list);
        for kind in all.iter().filter_map(|f| f["kind"].as_str()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let from = match kinds.is_empty() {
        true => "without any encoding".to_owned(),
        false => format!("with {}", kinds.join(" and ")),
    };
    let to = match to {
        Kind::None => "without any".to_owned(),
        kind => format!("with {kind}"),
    };
    format!("the weights were trained {from}: fine-tune the model {to}, or expect worse results")
}

/// What a user should know of the result.
fn warnings(
    before: &Found,
    after: &Found,
    sites: &[usize],
    max_length: Option<usize>,
) -> Vec<String> {
    let mut warnings = vec![];
    let turned = before.rotary.iter().any(|r| sites.contains(&r.site));
    if turned && before.ports.has_past() {
        let warning = "keys in caches of the old model were turned by its rope: start with an \
                       empty cache";
        warnings.push(warning.to_owned());
    } else if after.ports.has_past() && after.rotary.iter().any(|r| sites.contains(&r.site)) {
        let warning = "keys in caches of the old model were not turned: start with an empty cache";
        warnings.push(warning.to_owned());
    }
    if let Some(wanted) = max_length {
        for limit in after.limits.iter().filter(|l| l.length < wanted) {
            let name = limit.value.as_deref().unwrap_or("a shape");
            warnings.push(format!(
                "{name} ({}) still ends at {}, below the new length {wanted}",
                limit.cause, limit.length
            ));
        }
    }
    warnings
}

const KEY: &str = "posenc.swap";

/// Writes the record of a swap, and takes back that of rotations that are no more.
fn write(model: &mut Model, report: &Rewrite, kind: Kind, to: &[Encoding], is_plain: bool) {
    let entries: Vec<Value> = to
        .iter()
        .filter(|e| e.kind == kind)
        .map(|e| json!({"stack": e.stack, "layers": e.layers, "params": e.params}))
        .collect();
    let entry = json!({
        "tool": concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")),
        "source": report.input.fingerprint,
        "to": kind,
        "encodings": entries,
    });
    model.set_metadata(KEY, entry.to_string());
    if is_plain && recorded(model).is_some() {
        record::clear(model, &report.input.fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::graph::sketch::{A, HIDDEN, Sketch};
    use crate::rewrite::rewrite;

    /// A model of two layers that cut one causal buffer of 16 tokens.
    fn model() -> Model {
        let mut s = Sketch::default();
        let mut x = s.embedded();
        let rows = s.weights(&[16, HIDDEN]);
        let lower = (0..256).map(|i| f64::from(u8::from(i % 16 <= i / 16)));
        let buffer = s.typed(DType::Bool, &[1, 1, 16, 16], lower);
        let shape = s.op("Shape", &[&x]);
        let one = s.ints(&[1]);
        let length = s.gather(&shape, &one, 0);
        let zero = s.ints(&[0]);
        let rows = s.op("Slice", &[&rows, &zero, &length, &zero]);
        x = s.op("Add", &[&x, &rows]);
        let axes = [s.ints(&[2]), s.ints(&[3])];
        let seen = s.op("Slice", &[&buffer, &zero, &length, &axes[0]]);
        let seen = s.op("Slice", &[&seen, &zero, &length, &axes[1]]);
        for _ in 0..2 {
            let [q, k, v] = [0; 3].map(|_| s.headed(&x));
            let k = s.transpose(&k, &[0, 1, 3, 2]);
            let scores = s.op("MatMul", &[&q, &k]);
            let low = s.float(-1e9);
            let scores = s.op("Where", &[&seen, &scores, &low]);
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
            let y = s.op("MatMul", &[&weights, &v]);
            let y = s.merged(&y);
            x = s.op("Add", &[&x, &y]);
        }
        s.model(17, &[&x])
    }

    #[test]
    fn buffers_that_were_made_longer_are_counted_once() {
        for (wanted, count) in [(None, 0), (Some(10), 0), (Some(40), 1)] {
            let mut request = Request {
                to: Some(Kind::Rope),
                ..Request::default()
            };
            request.parameters.max_length = wanted;
            let done = rewrite(&mut model(), &request).unwrap();
            let changed = done.report.edits.iter().map(|e| e.initializers_changed);
            let changed: Vec<usize> = changed.collect();
            assert_eq!(changed, [count, 0], "{wanted:?}");
        }
    }

    #[test]
    fn a_length_beyond_any_buffer_is_refused() {
        for kind in [Kind::Rope, Kind::Alibi, Kind::Learned, Kind::Sinusoidal] {
            for wanted in [1_000_000_000_000, usize::MAX] {
                let mut request = Request {
                    to: Some(kind),
                    ..Request::default()
                };
                request.parameters.max_length = Some(wanted);
                let why = rewrite(&mut model(), &request).unwrap_err();
                let why = why.to_string();
                assert!(why.starts_with("--max-length is"), "{kind}: {why}");
            }
        }
        let mut request = Request {
            to: Some(Kind::Learned),
            ..Request::default()
        };
        request.parameters.max_length = Some(100_000_000);
        let why = rewrite(&mut model(), &request).unwrap_err().to_string();
        assert!(why.contains("a table of [100000000, 24]"), "{why}");
    }
}
