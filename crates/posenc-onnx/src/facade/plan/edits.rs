//! What becomes of each attention site, as far as it is known before anything has changed.

use serde_json::{Value, json};

use crate::detect::finding::Encoding;
use crate::detect::{Found, RotarySite};
use crate::inspect::{entries, inspect_encodings};
use crate::plan::rescale;
use crate::plan::swap::SwapPlan;
use crate::record::record;
use crate::rewrite::buckets::unfolded;
use crate::rewrite::form::{each_rotation, name};
use crate::rewrite::{Planned, describe};

/// What changes at an attention site. Encodings are JSON as in the reports: an object with `kind`
/// and `params`, a list of several, or `null` for none.
///
/// ```
/// # use posenc_onnx::{Alibi, Model, Swap};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let plan = model.plan(Swap::to(Alibi::default()))?;
/// let edit = &plan.edits()[0];
/// assert_eq!(edit.site, model.inspect().attention[0].name);
/// assert_eq!((&edit.from["kind"], &edit.to["kind"]), (&"rope".into(), &"alibi".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedEdit {
    /// The site, by its name in reports.
    pub site: String,
    /// The encodings that it has.
    pub from: Value,
    /// The encoding that it is to have; of its parameters, those that are known in advance.
    pub to: Value,
}

/// The rotations that get other frequencies.
pub(super) fn rescaled(
    planned: &Planned<'_>,
    found: &Found,
    plan: &rescale::Plan,
) -> Vec<PlannedEdit> {
    let entries = inspect_encodings(planned.input(), found);
    let edit = |(i, target): &(usize, rescale::Target)| {
        let site = found.rotary[*i].site;
        let from = describe(found, &entries, site);
        let mut to = from.clone();
        if let Some(params) = to.get_mut("params") {
            params["theta"] = json!(target.rope.theta);
            params["scaling"] = target.scaling.to_json();
        }
        PlannedEdit {
            site: found.attention[site].name.clone(),
            from,
            to,
        }
    };
    let record = record(planned.input());
    // Frequencies that stay are in a plan where only tables get more rows.
    let changes = |(i, target): &&(usize, rescale::Target)| {
        planned.keeps_frequencies()
            || !rescale::is_already(record.as_ref(), &found.rotary[*i], target)
    };
    plan.targets.iter().filter(changes).map(edit).collect()
}

/// The rotations that get another form.
pub(super) fn reformed(planned: &Planned<'_>, found: &Found) -> Vec<PlannedEdit> {
    let entries = inspect_encodings(planned.input(), found);
    let request = &planned.request;
    let wanted = planned.form();
    let form = |site: &RotarySite| {
        let wanted = wanted.filter(|own| own.covers(request, &found.attention[site.site]))?;
        (site.form != wanted.form).then_some(wanted.form)
    };
    let layout = |site: &RotarySite| {
        let own = site.query.rotation.rope.layout;
        let layout = request.layout().filter(|layout| own != Some(*layout));
        layout.filter(|_| request.covers(&found.attention[site.site]))
    };
    let edit = |site: &RotarySite| {
        let (form, layout) = (form(site), layout(site));
        if form.is_none() && layout.is_none() {
            return None;
        }
        let described = describe(found, &entries, site.site);
        let [mut from, mut to] = [described.clone(), described];
        if let Some(form) = form {
            name(&mut from, site.form);
            name(&mut to, form);
        }
        if let Some(layout) = layout {
            each_rotation(&mut to, &|one| one["params"]["layout"] = json!(layout));
        }
        Some(PlannedEdit {
            site: found.attention[site.site].name.clone(),
            from,
            to,
        })
    };
    let biases = planned.unfolded_biases(found).into_iter().map(|site| {
        let described = describe(found, &entries, site);
        let [mut from, mut to] = [described.clone(), described];
        unfolded(&mut from, &mut to);
        let site = found.attention[site].name.clone();
        PlannedEdit { site, from, to }
    });
    found.rotary.iter().filter_map(edit).chain(biases).collect()
}

/// The sites that get another encoding.
pub(super) fn swapped(planned: &Planned<'_>, found: &Found, plan: &SwapPlan) -> Vec<PlannedEdit> {
    let entries = entries(planned.input(), found);
    let edit = |site: &usize| {
        let mut groups = plan.groups.iter();
        let group = groups.find(|g| g.sites.binary_search(site).is_ok());
        let to = group.map_or(
            Value::Null,
            |group| json!({"kind": plan.kind, "params": group.new.encoding().params()}),
        );
        PlannedEdit {
            site: found.attention[*site].name.clone(),
            from: describe(found, &entries, *site),
            to,
        }
    };
    let edits = plan.sites.iter().map(edit);
    let changes = |edit: &PlannedEdit| !(edit.from.is_null() && edit.to.is_null());
    edits.filter(changes).collect()
}

/// What becomes of the sites of these findings; `after` is the encoding that each gets.
pub(super) fn changed(
    planned: &Planned<'_>,
    findings: impl Iterator<Item = usize>,
    after: impl Fn(usize, &Encoding) -> Encoding,
) -> Vec<PlannedEdit> {
    let found = &planned.branches[0].found;
    let entries = entries(planned.input(), found);
    let of_finding = |at: usize| {
        let finding = &found.findings[at];
        let new = after(at, &finding.encoding);
        let to = json!({"kind": new.kind(), "params": new.params()});
        let edit = |site: &usize| PlannedEdit {
            site: found.attention[*site].name.clone(),
            from: describe(found, &entries, *site),
            to: to.clone(),
        };
        finding.sites.iter().map(edit).collect::<Vec<_>>()
    };
    findings.flat_map(of_finding).collect()
}
