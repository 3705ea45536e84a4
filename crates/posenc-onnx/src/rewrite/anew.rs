//! Putting another encoding in: what the swap did, as the report and the record of a rewrite.

use posenc_ir::Model;
use serde_json::{Value, json};

use super::record::{self, record as recorded};
use super::{RewriteError, Rewritten, rescale};
use crate::detect::{Detection, Options, Survey, detect, survey};
use crate::inspect::entries;
use crate::kind::{Kind, Layout};
use crate::plan::{Target, plan_within};
use crate::report::{Edit, Encoding, Guarantee, Rewrite};
use crate::request::{Parameters, Request};
use crate::swap::{Swapped, swap};

/// Whether a request puts an encoding in, rather than stretching the rotations that are there.
pub(super) fn is_asked(found: &Detection, request: &Request) -> bool {
    match request.to {
        None => false,
        Some(Kind::Rope) => rope_is_asked(found, request),
        Some(_) => true,
    }
}

/// Whether the sites that are spoken of do not turn yet, or turn other features.
fn rope_is_asked(found: &Detection, request: &Request) -> bool {
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
pub(super) fn rewrite(
    model: &mut Model,
    mut report: Rewrite,
    before: &Detection,
    request: &Request,
    options: &Options,
) -> Result<Rewritten, RewriteError> {
    let Some(swapped) = swap(model, before, request, options)? else {
        return Ok(Rewritten {
            report,
            targets: vec![],
            found: before.clone(),
            max_length: request.parameters.max_length,
            proof: None,
        });
    };
    let Swapped {
        model: mut next,
        found,
        asked,
        nodes,
        surveys,
        proof,
    } = swapped;
    report.inferred.clone_from(&asked.inferred);
    let stretched = match asked.kind {
        Kind::Rope => stretched(&mut next, &found, before, request, options, &mut report)?,
        _ => None,
    };
    let Stretched {
        found,
        shown,
        targets,
        nodes: more,
    } = stretched.unwrap_or_else(|| Stretched {
        found,
        shown: surveys[1].clone(),
        targets: vec![],
        nodes: [0, 0],
    });
    let nodes = [nodes[0] + more[0], nodes[1] + more[1]];
    let (from, to) = (
        entries(model, before, &surveys[0]),
        entries(&next, &found, &shown),
    );
    write(&mut next, &report, asked.kind, &to, targets.is_empty());
    report.edits = edits(before, &asked.sites, nodes, &from, &to);
    report.guarantee = Guarantee::NewFunction;
    report.meaning = Some(meaning(&report.edits, asked.kind));
    let bounds = |model: &Model, found: &Detection, survey: &Survey| {
        let mut all = found.limits.clone();
        all.extend(crate::limits::added(model.graph(), &survey.findings));
        all.sort_by_key(|l| l.length);
        all
    };
    report.limits.before = bounds(model, before, &surveys[0]);
    report.limits.after = bounds(&next, &found, &shown);
    report.warnings = warnings(before, &found, &asked.sites, asked.max_length);
    *model = next;
    Ok(Rewritten {
        report,
        targets,
        found,
        max_length: asked.max_length,
        proof: Some(proof),
    })
}

/// Rotations that were put in and stretched.
struct Stretched {
    found: Detection,
    shown: Survey,
    targets: Vec<(usize, Target)>,
    /// Nodes that came and went.
    nodes: [usize; 2],
}

/// Gives plain rotations that were put in the frequencies that the request names; `None` where it
/// names none. The length to stretch from is that of the model as it was.
fn stretched(
    next: &mut Model,
    found: &Detection,
    before: &Detection,
    request: &Request,
    options: &Options,
    report: &mut Rewrite,
) -> Result<Option<Stretched>, RewriteError> {
    if request.scale.is_none() && request.hf_config.is_none() {
        return Ok(None);
    }
    let plan = plan_within(next, found, &before.limits, request)?;
    for value in &plan.inferred {
        if !report.inferred.contains(value) {
            report.inferred.push(value.clone());
        }
    }
    let mut nodes = [0, 0];
    if let Some((scaled, groups)) = rescale::rescale(next, found, &plan, request)? {
        *next = scaled;
        for group in groups {
            nodes[0] += group.nodes_added;
            nodes[1] += group.nodes_removed;
        }
    }
    record::write(next, &report.input.fingerprint, found, &plan);
    let after = detect(next, options);
    super::agrees(next, found, &after, &plan)?;
    Ok(Some(Stretched {
        shown: survey(next, &after),
        found: after,
        targets: plan.targets,
        nodes,
    }))
}

/// An edit for each site; nodes are counted with the first.
fn edits(
    before: &Detection,
    sites: &[usize],
    nodes: [usize; 2],
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
            nodes_added: count(nodes[0]),
            nodes_removed: count(nodes[1]),
            initializers_changed: 0,
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
    before: &Detection,
    after: &Detection,
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
