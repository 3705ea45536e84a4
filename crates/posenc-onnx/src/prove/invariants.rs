//! What has to hold of a graph after each patch, read off the graph itself.

use posenc_ir::NodeId;

use crate::attention::Site;
use crate::attention::scores::Plane;
use crate::detect::Detection;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Kind;

/// Nothing encodes position any more at the sites that are asked for, and the sites are those of
/// `before`.
///
/// # Errors
/// Where something is left, with its node.
pub(crate) fn is_bare(
    context: &Context<'_>,
    before: &Detection,
    asked: &SwapPlan,
) -> Result<(), RewriteError> {
    same_sites(context, before, "without its encoding")?;
    let found = context.found;
    let left = |node: NodeId, kind: Kind| {
        let why = format!("{kind} is left, and the sites that are asked for see it");
        Err(context.refuse(node, why))
    };
    if let Some(refused) = found.unknown.iter().find(|r| asked.has(r.site)) {
        return Err(context.refuse(refused.node, &refused.why));
    }
    if let Some(rotary) = found.rotary.iter().find(|r| asked.has(r.site)) {
        return left(rotary.node, Kind::Rope);
    }
    for finding in &context.survey.findings {
        if asked.removes(context, finding) {
            let first = finding.sites.first().map(|site| context.site(*site).node);
            return match finding.node().or(first) {
                Some(node) => left(node, finding.encoding.kind()),
                None => Ok(()),
            };
        }
    }
    Ok(())
}

/// The sites are those of `before`; `now` says what has changed since.
///
/// # Errors
/// Where one is another, is missing or is new, with its node.
pub(crate) fn same_sites(
    context: &Context<'_>,
    before: &Detection,
    now: &str,
) -> Result<(), RewriteError> {
    let (old, new) = (&before.attention, &context.found.attention);
    let graph = context.graph();
    for (old, new) in old.iter().zip(new) {
        // An operator that did the rotation itself was replaced.
        let same = old.node == new.node || graph.is_removed(old.node);
        let shape = |site: &Site| (site.heads, site.kv_heads, site.head_dim, site.cross);
        // An operator without a mask hides nothing, as far as is known.
        let sees = |site: &Site| (site.mask.causal == Some(true), site.mask.window);
        let alike = shape(old) == shape(new) && sees(old) == sees(new) && hides_alike(old, new);
        if !same || !alike {
            let why = format!("{now}, attention reads as another");
            return Err(context.refuse(new.node, why));
        }
    }
    if let Some(site) = old.get(new.len()) {
        let why = format!("{now}, it is not found as attention");
        return Err(context.refuse(site.node, why));
    }
    if let Some(site) = new.get(old.len()) {
        let why = format!("{now}, this reads as attention too");
        return Err(context.refuse(site.node, why));
    }
    Ok(())
}

/// Whether the same pairs are hidden in both, where what is hidden is known of both.
fn hides_alike(old: &Site, new: &Site) -> bool {
    let (Some(old), Some(new)) = (&old.bias, &new.bias) else {
        return true;
    };
    let (a, b) = (old.bias.dim(), new.bias.dim());
    // What is the same for all sequences or heads may stand there once.
    let (groups, heads) = (a.0.max(b.0), a.1.max(b.1));
    let hidden = |plane: &Plane, at: [usize; 4]| {
        let (groups, heads, ..) = plane.bias.dim();
        plane.is_hidden([at[0].min(groups - 1), at[1].min(heads - 1), at[2], at[3]])
    };
    let fits = |n: usize, all: usize| n == 1 || n == all;
    let comparable = (a.2, a.3) == (b.2, b.3)
        && [(a.0, groups), (b.0, groups), (a.1, heads), (b.1, heads)]
            .into_iter()
            .all(|(n, all)| fits(n, all));
    let mut pairs = (0..groups).flat_map(|g| (0..heads).map(move |h| (g, h)));
    !comparable
        || pairs.all(|(g, h)| {
            (0..a.2)
                .all(|i| (0..a.3).all(|j| hidden(old, [g, h, i, j]) == hidden(new, [g, h, i, j])))
        })
}

#[cfg(test)]
mod tests {
    use posenc_ir::{DType, Model};

    use super::*;
    use crate::detect::{Options, detect, survey};
    use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
    use crate::request::Request;

    /// One layer whose residual stream has a table added, and whose queries and keys turn.
    fn model() -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let at = s.range();
        let rows = s.weights(&[40, HIDDEN]);
        let rows = s.gather(&rows, &at, 0);
        let x = s.op("Add", &[&x, &rows]);
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[0, 2]);
        let f = s.floats(&[1, 1, SIZE / 2], [1.0, 0.1, 0.01, 0.001]);
        let angles = s.op("Mul", &[&at, &f]);
        let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
        let [q, k, v] = [true, true, false].map(|turns| {
            let y = s.headed(&x);
            match turns {
                true => s.op("RotaryEmbedding", &[&y, &cos, &sin]),
                false => y,
            }
        });
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(23, &[&y])
    }

    /// One layer whose queries see the keys that this says, of their distance, key − query.
    fn masked(heads: usize, hidden: fn(&mut Sketch, &str) -> String) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[&x, &w]);
            let y = s.reshape(&y, &[0, 0, heads as i64, (HIDDEN / heads) as i64]);
            s.transpose(&y, &[0, 2, 1, 3])
        });
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let at = s.range();
        let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
        let distance = s.op("Sub", &[&columns, &rows]);
        let hidden = hidden(&mut s, &distance);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&hidden, &low, &scores]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(17, &[&y])
    }

    fn beyond(s: &mut Sketch, distance: &str, most: i64) -> String {
        let far = s.op("Abs", &[distance]);
        let most = s.int(most);
        s.op("Greater", &[&far, &most])
    }

    #[test]
    fn attention_that_sees_otherwise_or_is_shaped_otherwise_is_another() {
        let later: fn(&mut Sketch, &str) -> String = |s, d| {
            let zero = s.int(0);
            s.op("Greater", &[d, &zero])
        };
        let near = |s: &mut Sketch, d: &str| beyond(s, d, 3);
        let nearer = |s: &mut Sketch, d: &str| beyond(s, d, 2);
        let both = |s: &mut Sketch, d: &str| {
            let (later, far) = {
                let zero = s.int(0);
                (s.op("Greater", &[d, &zero]), beyond(s, d, 3))
            };
            s.op("Or", &[&later, &far])
        };
        let models = [
            masked(HEADS, later),
            masked(2, later),
            masked(HEADS, near),
            masked(HEADS, nearer),
            masked(HEADS, both),
        ];
        let found: Vec<Detection> = models
            .iter()
            .map(|model| detect(model, &Options::default()))
            .collect();
        for (i, model) in models.iter().enumerate() {
            for (j, before) in found.iter().enumerate() {
                let context = Context {
                    model,
                    found: &found[i],
                    survey: &survey(model, &found[i]),
                };
                let said = same_sites(&context, before, "with a change");
                let said = said.map_err(|why| why.to_string());
                match i == j {
                    true => assert_eq!(said, Ok(()), "{i}"),
                    false => {
                        let why = said.unwrap_err();
                        let want = "with a change, attention reads as another";
                        assert!(why.contains(want), "{i} {j}: {why}");
                    }
                }
            }
        }
    }

    /// What is said of the model where the first input of these operators stands in for them.
    fn told(without: &[&str]) -> Result<(), String> {
        let model = model();
        let before = detect(&model, &Options::default());
        let old = survey(&model, &before);
        let request = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        let context = Context {
            model: &model,
            found: &before,
            survey: &old,
        };
        let asked = crate::plan::swap::asked(&context, &request)
            .unwrap()
            .unwrap();
        let graph = model.graph();
        let mut out = graph.emitter(graph.main(), "test");
        for (_, node) in graph.nodes().filter(|(_, n)| without.contains(&n.op())) {
            let (new, old) = (node.input(0).unwrap(), node.output(0).unwrap());
            out.redirect(old, new).unwrap();
        }
        let (next, _) = model.clone().committed(out.finish()).unwrap();
        let found = detect(&next, &Options::default());
        let context = Context {
            model: &next,
            found: &found,
            survey: &survey(&next, &found),
        };
        is_bare(&context, &before, &asked).map_err(|why| why.to_string())
    }

    #[test]
    fn what_is_left_is_named() {
        assert_eq!(told(&["Add", "RotaryEmbedding"]), Ok(()));
        let cases: [(&[&str], &str); 4] = [
            (&[], "rope is left"),
            (&["Add"], "rope is left"),
            (&["RotaryEmbedding"], "learned is left"),
            (
                &["Add", "RotaryEmbedding", "Softmax"],
                "not found as attention",
            ),
        ];
        for (without, want) in cases {
            let why = told(without).unwrap_err();
            assert!(
                why.contains(want) && why.starts_with("sketch/"),
                "{without:?}: {why}"
            );
        }
    }
}
