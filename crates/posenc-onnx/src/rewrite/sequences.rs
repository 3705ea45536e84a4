//! Cosines and sines of one sequence, repeated for a batch in a result that keeps them.

use posenc_encodings::kind::Form;
use posenc_ir::Graph;

use super::form::{name, read_back, tell};
use super::rewritten::Rewritten;
use crate::detect::{Options, RotarySite};
use crate::edit::form::Reformed;
use crate::edit::rescale::sequences::{REPEATED, repeated};
use crate::error::RewriteError;

/// Repeats them where an operator of a result needs those of every sequence of a batch.
///
/// # Errors
/// Where the result is not read back as before.
pub(super) fn repeat(mut done: Rewritten, options: &Options) -> Result<Rewritten, RewriteError> {
    let before = &done.found;
    let Some((model, applied)) = repeated(&done.model, before)? else {
        return Ok(done);
    };
    let (old, new) = (done.model.graph(), model.graph());
    let all = before.rotary.iter().enumerate();
    let sites =
        all.filter(|(_, site)| site.form == Form::Onnx && has_other_tables([old, new], site));
    let made = Reformed {
        sites: sites.map(|(at, _)| at).collect(),
        model,
        applied,
    };
    let meant = |own: &RotarySite| (own.form, own.query.rotation.rope.layout);
    let after = read_back(&made, before, (options, "number of sequences"), meant)?;
    tell(&mut done, made, after, |described, own| {
        name(described, own.form)
    });
    done.report.warnings.push(REPEATED.to_owned());
    Ok(done)
}

/// Whether an operator reads other tables in the second graph.
fn has_other_tables(graphs: [&Graph; 2], site: &RotarySite) -> bool {
    [&site.query, &site.key].iter().any(|side| {
        let id = side.region.entries[0].node;
        let [old, new] = graphs.map(|graph| graph.node(id).inputs());
        old != new
    })
}
