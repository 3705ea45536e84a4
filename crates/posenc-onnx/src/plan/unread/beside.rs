//! Positions beside the encodings that were read, which a change would leave as they are.

use posenc_encodings::kind::Kind;
use posenc_ir::{DType, Model, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::scores;
use crate::detect::Found;
use crate::detect::branches::Branch;
use crate::detect::finding::Encoding;
use crate::detect::met::Met;
use crate::plan::change::Change;
use crate::request::Request;

/// What a change would leave, one sentence each: positions that were not read have to be scaled with the others, and
/// are another encoding than the one that is asked for.
pub(crate) fn left(
    model: &Model,
    branches: &[Branch],
    change: &Change,
    request: &Request,
) -> Vec<String> {
    let is_rescaled = matches!(change, Change::Rescale(_)) && !request.keeps_frequencies();
    let counts = match change {
        Change::Rescale(_) => is_rescaled || request.to.is_some(),
        Change::Stretch(_) => request.scale.is_some(),
        Change::Nothing { .. } => request.to.is_some(),
        _ => false,
    };
    let mut all = vec![];
    for Branch { found, .. } in branches {
        let unknown = unknown(model, found).filter(|_| is_rescaled);
        for why in unknown
            .into_iter()
            .chain(met(model, found).filter(|_| counts))
        {
            if !all.contains(&why) {
                all.push(why);
            }
        }
    }
    all
}

/// The first encoding that was not read, in one sentence.
fn unknown(model: &Model, found: &Found) -> Option<String> {
    let mut findings = found.findings.iter();
    let unknown = findings.find(|finding| finding.encoding.kind() == Kind::Unknown)?;
    let place = model.graph().place(unknown.node()?);
    Some(format!(
        "{place}: an encoding beside the rotations was not read, and would stay as it is"
    ))
}

/// Numbers that change from token to token, meet content and belong to no encoding that was read, in one sentence.
pub(crate) fn met(model: &Model, found: &Found) -> Option<String> {
    let graph = model.graph();
    let known = known(model, found);
    // Integers are indices: offsets of several tables in one, for example.
    let is_float = |value: ValueId| {
        let dtype = found.trace.get(value).dtype.or(graph.dtype(value));
        dtype.is_none_or(DType::is_float)
    };
    let others = found.met.iter().filter(|met| is_float(met.numbers));
    let mut others = others.filter(|met| !known.contains(&met.node));
    let Met { node, numbers, .. } = others.next()?;
    let more = match others.count() {
        0 => String::new(),
        1 => ", nor do those at another one".to_owned(),
        n => format!(", nor do those at {n} others"),
    };
    Some(format!(
        "{}: {} changes from token to token and belongs to no encoding that was read{more}",
        graph.place(*node),
        graph.name(*numbers)
    ))
}

/// Where the encodings that were found meet content.
fn known(model: &Model, found: &Found) -> FxHashSet<NodeId> {
    let rotary = found.rotary.iter();
    let regions = rotary.flat_map(|rotary| [&rotary.query.region, &rotary.key.region]);
    let regions = regions.chain(found.axial.iter().flat_map(|axial| &axial.regions));
    let entries = regions.flat_map(|region| &region.entries);
    let entries = entries.chain(found.findings.iter().flat_map(|f| &f.entries));
    // Of layers with equal biases, the finding has the entries of one.
    let biases = found.findings.iter().filter(|finding| {
        let encoding = &finding.encoding;
        matches!(encoding, Encoding::ScoreBias(..))
    });
    let sites = biases.flat_map(|finding| &finding.sites);
    let of_site = |site: &usize| {
        let site = &found.attention[*site];
        scores::entries(model.graph(), &found.classes, &found.trace, site)
    };
    let of_sites = sites.flat_map(of_site).map(|entry| entry.node);
    let refused = found.not_rotary.iter().map(|refused| refused.node);
    let entries = entries.map(|entry| entry.node);
    entries.chain(of_sites).chain(refused).collect()
}
