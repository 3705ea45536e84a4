//! What the runtime that a result is for implements: the form of rotations that it takes, and the operators that it
//! lacks.

mod kernels;

use std::collections::BTreeSet;

use posenc_encodings::kind::Form;
use posenc_ir::{Graph, Model, Node, ScopeKind};

use super::form::Wanted;
use super::rewritten::Rewritten;
use crate::detect::{Found, Options, RotarySite, detect};
use crate::error::{Refusal, RewriteError};
use crate::request::{Request, Target};

/// The form that rotations get: that of the request, or plain operators where its target needs them. `None` where
/// they keep theirs. `found` is what was found in the branches of the model.
pub(super) fn wanted<'a>(
    request: &Request,
    model: &Model,
    found: impl IntoIterator<Item = &'a Found>,
) -> Option<Wanted> {
    if let Some(form) = request.form {
        return Some(Wanted { form, target: None });
    }
    let target = request.target?;
    let is_needed = |found: &Found, site: &RotarySite| match target {
        Target::Portable => site.form != Form::Ops,
        Target::Tract => site.form == Form::Contrib,
        Target::OrtCpu | Target::OrtCuda => {
            // An operator of attention stays, whether it rotates or not.
            let sides = [&site.query, &site.key].into_iter();
            let sides = sides.filter(|side| side.region.inside.is_none());
            let mut nodes = sides
                .flat_map(|side| &side.region.entries)
                .map(|at| at.node);
            let kernels = |id| kernels::lacks(model.graph().node(id), &found.trace, target);
            nodes.any(|id| kernels(id).is_some())
        }
    };
    let mut branches = found.into_iter();
    let needs = |found: &Found| found.rotary.iter().any(|site| is_needed(found, site));
    branches.any(needs).then_some(Wanted {
        form: Form::Ops,
        target: Some(target),
    })
}

/// Refuses a result with an operator that its target lacks.
///
/// # Errors
/// With the first such operator.
pub(super) fn check(done: &Rewritten, target: Target) -> Result<(), RewriteError> {
    // A model that is not changed is written as it is, and not as it was read.
    let again = done
        .flat
        .is_some()
        .then(|| detect(&done.model, &Options::default()));
    let (found, others) = match &again {
        Some(again) => (again, &[][..]),
        None => (&done.found, &done.other_branches[..]),
    };
    let traces = || std::iter::once(found).chain(others);
    let graph = done.model.graph();
    let functions = domains_of_functions(graph);
    let lacks = |node: &Node| match target {
        Target::Portable => {
            let (domain, op) = (node.domain(), node.op());
            (!domain.is_empty() && !functions.contains(domain))
                .then(|| format!("{op} of {domain} is no operator of ONNX, and so not portable"))
        }
        // A run tells what it lacks.
        Target::Tract => None,
        Target::OrtCpu | Target::OrtCuda => {
            traces().find_map(|own| kernels::lacks(node, &own.trace, target))
        }
    };
    let mut lacking = graph
        .nodes()
        .filter_map(|(id, node)| Some((id, lacks(node)?)));
    let Some((id, why)) = lacking.next() else {
        return Ok(());
    };
    let mut sites = found.attention.iter();
    let place = match sites.find(|site| site.node == id) {
        // Its node may be new.
        Some(site) => site.name.clone(),
        None => graph.place(id),
    };
    Err(Refusal::unsupported(why).at(place).into())
}

/// The domains of the functions of a model, whose nodes are among those of the graph.
fn domains_of_functions(graph: &Graph) -> BTreeSet<&str> {
    let kinds = graph.scopes().map(|scope| graph.scope(scope).kind());
    let domains = kinds.filter_map(|kind| match kind {
        ScopeKind::Function { domain, .. } => Some(&**domain),
        _ => None,
    });
    domains.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::testing::fixture;
    use crate::rewrite::rewrite;

    /// How the rotations of an export with RotaryEmbedding are written for a target, after another form.
    fn rotated(first: Option<Form>, target: Target) -> [Form; 2] {
        let mut model = fixture("llama/dynamo23");
        let of = |form, target| Request {
            form,
            target,
            ..Request::default()
        };
        if first.is_some() {
            rewrite(&mut model, &of(first, None)).unwrap();
        }
        let done = rewrite(&mut model, &of(None, Some(target))).unwrap();
        let forms: Vec<Form> = done.found.rotary.iter().map(|site| site.form).collect();
        forms.try_into().unwrap()
    }

    #[test]
    fn plain_operators_are_for_every_runtime_and_others_stay_where_there_is_a_kernel() {
        use Form::{Contrib, Onnx, Ops};
        use Target::{OrtCpu, OrtCuda, Portable, Tract};
        for (first, target, want) in [
            (None, Portable, Ops),
            (None, Tract, Onnx),
            // Its cosines are those of one sequence, which ONNX Runtime takes for one sequence only.
            (None, OrtCpu, Ops),
            (None, OrtCuda, Ops),
            (Some(Contrib), OrtCpu, Contrib),
            (Some(Contrib), OrtCuda, Contrib),
            (Some(Contrib), Tract, Ops),
            (Some(Contrib), Portable, Ops),
            (Some(Ops), OrtCuda, Ops),
        ] {
            assert_eq!(rotated(first, target), [want; 2], "{first:?} {target}");
        }
    }
}
