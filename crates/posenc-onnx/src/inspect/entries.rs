//! From findings to entries of the report: one for each kind, stack and set of hyperparameters.

use posenc_ir::Model;
use serde_json::{Value, json};

use crate::detect::Found;
use crate::detect::finding::Finding;
use crate::report::Encoding;
use posenc_encodings::kind::{Kind, Stack};
use posenc_encodings::params::Params;

/// Parameters that may differ within an entry: they become lists.
const MANY: [&str; 1] = ["heads"];

/// The entries of these findings.
pub(crate) fn of(model: &Model, found: &Found, findings: &[Finding]) -> Vec<Encoding> {
    let mut entries: Vec<(Encoding, Params)> = vec![];
    for finding in findings {
        let kind = finding.encoding.kind();
        let params = finding.encoding.params();
        let stack = stack(found, finding);
        let shared = shared(kind, &params);
        let same = |(e, p): &&mut (Encoding, Params)| {
            let unknown = kind != Kind::Unknown || e.evidence == finding.evidence;
            e.kind == kind && e.stack == stack && *p == shared && unknown
        };
        let entry = match entries.iter_mut().find(same) {
            Some((entry, _)) => {
                gather(&mut entry.params, &params, entry.sites, finding.sites.len());
                entry
            }
            None => {
                let mut entry = Encoding::new(kind, stack, finding.form, params);
                entry.evidence = finding.evidence.clone();
                entries.push((entry, shared));
                &mut entries.last_mut().expect("just pushed").0
            }
        };
        for site in &finding.sites {
            let layer = found.attention[*site].place.layer;
            entry.places.push((layer, found.attention[*site].cross));
            if !entry.layers.contains(&layer) {
                entry.layers.push(layer);
            }
        }
        entry.sites += if finding.encoding.is_absolute() {
            1
        } else {
            finding.sites.len()
        };
        if let Some(fit) = finding.fit_error {
            entry.fit_error = Some(entry.fit_error.unwrap_or(0.0).max(fit));
        }
        entry.max_length = [entry.max_length, finding.max_length]
            .into_iter()
            .flatten()
            .min();
        let nodes = finding.entries.iter().map(|u| model.graph().place(u.node));
        for node in nodes {
            if !entry.nodes.contains(&node) {
                entry.nodes.push(node);
            }
        }
    }
    entries.into_iter().map(|(entry, _)| entry).collect()
}

/// The stack whose sites see it; where both do, the decoder has a finding of its own.
fn stack(found: &Found, finding: &Finding) -> Option<Stack> {
    let site = finding.sites.first()?;
    found.attention[*site].place.stack
}

/// The parameters that findings of one entry share: not those that are learned, of which the entry
/// has those of its first finding.
fn shared(kind: Kind, params: &Params) -> Params {
    let learned = kind.family().map_or(&[][..], |family| family.learned);
    let own = |name: &str| MANY.contains(&name) || learned.contains(&name);
    let kept = params.iter().filter(|(name, _)| !own(name));
    kept.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Joins what may differ: `before` sites have the parameters so far, `now` have these.
fn gather(into: &mut Params, more: &Params, before: usize, now: usize) {
    for name in MANY {
        let (Some(old), Some(new)) = (into.get(name).cloned(), more.get(name)) else {
            continue;
        };
        let mut list = match old {
            Value::Array(list) => list,
            one if one == *new => continue,
            one => vec![one; before.max(1)],
        };
        list.extend(std::iter::repeat_n(new.clone(), now.max(1)));
        into.insert(name.to_owned(), json!(list));
    }
}
