//! The `posenc.written` metadata entry: what a rewrite wrote, site by site, so that a verification
//! expects all of it.
//!
//! A site has the digest of everything that its weights and its weighted values are computed from,
//! back to the sites before it; an output that of what it is computed from, back to the sites. Names,
//! the order of nodes and the place of constants do not count.

pub(crate) mod current;
mod data;

use std::collections::BTreeMap;

use posenc_ir::{Model, NodeId};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::detect::Found;
use current::{Current, anchors, constants, large};
pub(crate) use data::{Reading, Written, WrittenConstant, WrittenOutput, WrittenSite, short};

pub(crate) const KEY: &str = "posenc.written";

/// How digests are computed; another number is not compared. A change of digests raises it.
const SCHEME: u32 = 2;

/// Records what a model contains after a rewrite of `source`, which has this fingerprint.
/// `found` is what was found in each branch.
pub(crate) fn write(model: &mut Model, (source, fingerprint): (&Model, &str), found: &[&Found]) {
    let anchors = anchors(found.iter().copied());
    let nodes: Vec<Option<NodeId>> = anchors.iter().map(|a| Some(a.node)).collect();
    let Some(first) = found.first() else {
        return;
    };
    let Some(current) = Current::of(model, first, &nodes) else {
        return;
    };
    let graph = model.graph();
    let sites = anchors.into_iter().zip(current.sites);
    let sites = sites.filter_map(|(anchor, digest)| {
        let (site, read) = anchor.read?;
        let value = graph.node(anchor.node).output(0)?;
        Some(WrittenSite {
            name: site.name.clone(),
            stack: site.place.stack,
            layer: site.place.layer,
            value: graph.name(value).to_owned(),
            digest: digest?,
            read,
        })
    });
    let before = constants(source.graph());
    let edited = large(graph, first).filter_map(|(name, value)| {
        let was = before.get(&name);
        let is_same = was.is_some_and(|was| model.shares_constant(value, source, *was));
        let digest = if is_same {
            None
        } else {
            model.digest_of(value)
        };
        Some(WrittenConstant {
            name: name.0.to_owned(),
            before: name.1,
            digest: short(digest?),
        })
    });
    let written = Written {
        tool: concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")).to_owned(),
        scheme: SCHEME,
        source: fingerprint.to_owned(),
        sites: sites.collect(),
        outputs: current.outputs,
        constants: edited.collect(),
        entries: entries(model),
    };
    let entry = json!(written).to_string();
    model.set_metadata(KEY, entry);
}

/// Digests of the entries that a rewrite makes besides this one, by key. The version of the tool and the
/// names of constants and nodes do not count.
pub(crate) fn entries(model: &Model) -> BTreeMap<String, String> {
    let all = model.metadata_entries().into_iter();
    let others = all.filter(|(key, _)| key.starts_with("posenc.") && *key != KEY);
    others
        .map(|(key, entry)| {
            let plain = match serde_json::from_str(entry) {
                Ok(read) => without_names(read).to_string(),
                Err(_) => entry.to_owned(),
            };
            let digest = Sha256::digest(plain.as_bytes());
            let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
            (key.to_owned(), digits.collect())
        })
        .collect()
}

fn without_names(value: Value) -> Value {
    match value {
        Value::Array(all) => all.into_iter().map(without_names).collect(),
        Value::Object(all) => {
            let kept = all.into_iter();
            let kept = kept.filter(|(key, _)| !["tool", "constant", "nodes"].contains(&&**key));
            let kept = kept.map(|(key, value)| (key, without_names(value)));
            // In one order, whoever wrote them.
            kept.collect::<BTreeMap<_, _>>().into_iter().collect()
        }
        other => other,
    }
}

/// Records the other entries as they are now.
pub(crate) fn renew(model: &mut Model) {
    let Some(Ok(mut written)) = read(model) else {
        return;
    };
    written.entries = entries(model);
    model.set_metadata(KEY, json!(written).to_string());
}

/// What an earlier rewrite wrote; `None` where there is no such record.
///
/// # Errors
/// In words, where the record cannot be read.
pub(crate) fn read(model: &Model) -> Option<Result<Written, String>> {
    let entry = model.metadata(KEY)?;
    let read = serde_json::from_str(entry).map_err(|e| e.to_string());
    Some(read.and_then(|written: Written| match written.scheme {
        SCHEME => Ok(written),
        other => Err(format!("its scheme {other} is not known")),
    }))
}
