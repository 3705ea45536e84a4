//! What the runtime that a result is for implements: the form of rotations that it takes, and the operators that it
//! lacks.

mod kernels;

use posenc_encodings::kind::Form;
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, NodeId, ScopeKind};

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
            nodes.any(|id| lacks(model, &found.trace, id, target).is_some())
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
    let model = &done.model;
    let traces = || std::iter::once(found).chain(others);
    let nodes = model.graph().nodes();
    let mut lacking = nodes.filter_map(|(id, _)| {
        let mut reasons = traces().filter_map(|own| lacks(model, &own.trace, id, target));
        Some((id, reasons.next()?))
    });
    let Some((id, why)) = lacking.next() else {
        return Ok(());
    };
    let mut sites = found.attention.iter();
    let place = match sites.find(|site| site.node == id) {
        // Its node may be new.
        Some(site) => site.name.clone(),
        None => model.graph().place(id),
    };
    let why = format!("{why}; leave out `target`");
    Err(Refusal::unsupported(why).at(place).into())
}

/// Why a runtime does not run an operator, as far as the graph tells.
fn lacks(model: &Model, trace: &Trace, id: NodeId, target: Target) -> Option<String> {
    let node = model.graph().node(id);
    let (domain, op) = (node.domain(), node.op());
    match target {
        Target::Portable => (!domain.is_empty() && !has_functions(model.graph(), domain))
            .then(|| format!("{op} of {domain} is no operator of ONNX, and so not portable")),
        // A run tells what it lacks.
        Target::Tract => None,
        Target::OrtCpu => kernels::lacks(node, trace, kernels::Provider::Cpu),
        Target::OrtCuda => kernels::lacks(node, trace, kernels::Provider::Cuda),
    }
}

/// Whether a domain is that of functions of the model, whose nodes are among those of the graph.
fn has_functions(graph: &Graph, of: &str) -> bool {
    let mut scopes = graph.scopes();
    scopes.any(|scope| match graph.scope(scope).kind() {
        ScopeKind::Function { domain, .. } => **domain == *of,
        _ => false,
    })
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
