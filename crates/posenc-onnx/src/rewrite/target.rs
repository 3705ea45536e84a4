//! What the runtime that a result is for implements: the form of rotations that it takes, and the operators that it
//! lacks.

mod kernels;

use posenc_encodings::inferred::Inferred;
use posenc_encodings::kind::Form;
use posenc_encodings::words::Word;
use posenc_ir::eval::Trace;
use posenc_ir::{Model, NodeId};

use super::rewritten::Rewritten;
use crate::detect::branches::Branch;
use crate::error::{Refusal, RewriteError};
use crate::request::{Request, Target};

/// A form that a runtime wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    target: Target,
}

impl Wanted {
    /// What the report says of it.
    pub(super) fn told(self) -> Inferred {
        Inferred::new("form", self.form.name(), format!("target {}", self.target))
    }
}

/// The form that rotations get for the target of a request that names none; `None` where they keep theirs.
pub(super) fn form(request: &Request, model: &Model, branches: &[Branch]) -> Option<Wanted> {
    let target = request.target.filter(|_| request.form.is_none())?;
    let mut rotated = branches.iter().flat_map(|branch| &branch.found.rotary);
    let rotated_by = |found: &Branch| {
        let sites = found.found.rotary.iter();
        let nodes = sites.map(|site| site.query.region.entries[0].node);
        nodes.collect::<Vec<_>>()
    };
    let is_needed = match target {
        Target::Portable => rotated.any(|site| site.form != Form::Ops),
        Target::Tract => rotated.any(|site| site.form == Form::Contrib),
        Target::OrtCpu | Target::OrtCuda => branches.iter().any(|branch| {
            let mut nodes = rotated_by(branch).into_iter();
            nodes.any(|id| lacks(model, &branch.found.trace, id, target).is_some())
        }),
    };
    let form = Form::Ops;
    is_needed.then_some(Wanted { form, target })
}

/// Refuses a result with an operator that its target lacks.
///
/// # Errors
/// With the first such operator.
pub(super) fn check(done: &Rewritten, target: Target) -> Result<(), RewriteError> {
    let model = done.read();
    let nodes = model.graph().nodes();
    let mut lacking = nodes.filter_map(|(id, _)| {
        let why = lacks(model, &done.found.trace, id, target)?;
        Some((id, why))
    });
    let Some((id, why)) = lacking.next() else {
        return Ok(());
    };
    let mut sites = done.found.attention.iter();
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
        Target::Portable => (!domain.is_empty())
            .then(|| format!("{op} of {domain} is no operator of ONNX, and so not portable")),
        // A run tells what it lacks.
        Target::Tract => None,
        Target::OrtCpu => kernels::lacks(node, trace, kernels::Provider::Cpu),
        Target::OrtCuda => kernels::lacks(node, trace, kernels::Provider::Cuda),
    }
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
