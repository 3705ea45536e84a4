//! What must be true after each patch, by detection in the patched graph.

use ndarray::{Array3, indices};
use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::attention::plane::Plane;
use crate::detect::Found;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::region::shape_only;
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Kind;

/// Checks that the selected sites have no encoding any more, and that attention is that of
/// `before`.
///
/// # Errors
/// When an encoding is still present, with its node.
pub(crate) fn check_removed(
    context: &Context<'_>,
    before: &Found,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    check_same_sites(context, before, "after removing the encoding")?;
    let found = context.found;
    let present = |node: NodeId, kind: Kind| {
        let why = format!("{kind} is still present in the selected layers");
        Err(context.refuse(node, why))
    };
    if let Some(refused) = found.not_rotary.iter().find(|r| plan.has(r.site)) {
        return Err(context.refuse(refused.node, &refused.why));
    }
    if let Some(rotary) = found.rotary.iter().find(|r| plan.has(r.site)) {
        return present(rotary.node, Kind::Rope);
    }
    for finding in &context.found.findings {
        if plan.removes(context, finding) {
            let first = finding.sites.first().map(|site| context.site(*site).node);
            return match finding.node().or(first) {
                Some(node) => present(node, finding.encoding.kind()),
                None => Ok(()),
            };
        }
    }
    check_tables(context, before, plan)
}

/// Refuses content that would go on meeting numbers of a table whose encoding is removed, and end with its rows.
fn check_tables(
    context: &Context<'_>,
    before: &Found,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let removed = before.findings.iter().filter(|f| plan.removes(context, f));
    let is_kept = |table: &ValueId| {
        context
            .found
            .findings
            .iter()
            .any(|f| f.table == Some(*table))
    };
    // Rows that tokens pick too are those of words.
    let by_content = |at: &Use| {
        let node = graph.node(at.node);
        node.is("Gather") && node.input(1).is_some_and(|index| context.is_content(index))
    };
    let is_of_words = |table: &ValueId| graph.uses(*table).iter().any(by_content);
    let tables = removed.filter_map(|finding| finding.table);
    for table in tables.filter(|table| !is_kept(table) && !is_of_words(table)) {
        let mut stack = vec![table];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            for at in graph.uses(value) {
                if shape_only(graph, at.node) || !seen.insert(at.node) {
                    continue;
                }
                let outputs = graph.node(at.node).outputs().iter().flatten().copied();
                let outputs: Vec<ValueId> = outputs.collect();
                // Other branches do not run, and are changed on their own.
                let acts = |v: &ValueId| context.is_content(*v) && context.dims(*v).is_some();
                if outputs.iter().any(acts) {
                    let why = format!(
                        "numbers of {}, the position table, act here too, and would stay",
                        graph.name(table)
                    );
                    return Err(context.refuse(at.node, why));
                }
                stack.extend(outputs);
            }
        }
    }
    Ok(())
}

/// Checks that attention is that of `before`; `after` names the step since, for the message.
///
/// # Errors
/// When a site has other properties, is missing or is new, with its node.
pub(crate) fn check_same_sites(
    context: &Context<'_>,
    before: &Found,
    after: &str,
) -> Result<(), RewriteError> {
    let (old, new) = (&before.attention, &context.found.attention);
    let graph = context.graph();
    for (old, new) in old.iter().zip(new) {
        // An operator that includes the rotation is replaced.
        let same = old.node == new.node || graph.is_removed(old.node);
        let shape = |site: &Site| (site.heads, site.kv_heads, site.head_dim, site.cross);
        // An operator without a mask is taken to hide nothing.
        let mask = |site: &Site| (site.mask.causal == Some(true), site.mask.window);
        let alike = shape(old) == shape(new) && mask(old) == mask(new) && hides_alike(old, new);
        if !same || !alike {
            let why = format!("attention properties changed {after}");
            return Err(context.refuse(new.node, why));
        }
    }
    if let Some(site) = old.get(new.len()) {
        let why = format!("no longer found as attention {after}");
        return Err(context.refuse(site.node, why));
    }
    if let Some(site) = new.get(old.len()) {
        let why = format!("found as attention only {after}");
        return Err(context.refuse(site.node, why));
    }
    Ok(())
}

/// Whether the same pairs are hidden in both, if the hidden pairs of both are known.
fn hides_alike(old: &Site, new: &Site) -> bool {
    let (Some(old), Some(new)) = (&old.bias, &new.bias) else {
        return true;
    };
    let (a, b) = (old.bias.dim(), new.bias.dim());
    // What is equal for all sequences or heads may be given once.
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
        }) && lifts_alike(old, new, groups)
}

/// Whether the masks that hide pairs in some groups alone are the same.
fn lifts_alike(old: &Plane, new: &Plane, groups: usize) -> bool {
    let (Some((_, old)), Some((_, new))) = (old.lifted(), new.lifted()) else {
        return true;
    };
    let (.., queries, keys) = old.dim();
    let hides =
        |masks: &Array3<f64>, [g, i, j]: [usize; 3]| masks[[g.min(masks.dim().0 - 1), i, j]] > 0.0;
    let mut all = indices([groups, queries, keys]).into_iter();
    all.all(|(g, i, j)| hides(&old, [g, i, j]) == hides(&new, [g, i, j]))
}

#[cfg(test)]
mod tests {
    use ndarray::Array4;
    use posenc_ir::{DType, Model};

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
    use crate::request::Request;

    /// One layer with a table added to its residual stream, and rotated queries and keys.
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
        let [q, k, v] = [true, true, false].map(|rotated| {
            let y = s.headed(&x);
            if rotated {
                s.op("RotaryEmbedding", &[&y, &cos, &sin])
            } else {
                y
            }
        });
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(23, &[&y])
    }

    /// One layer whose mask hides keys by their distance, key − query.
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
    fn attention_with_another_mask_or_shape_is_refused() {
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
        let found: Vec<Found> = models
            .iter()
            .map(|model| detect(model, &Options::default()))
            .collect();
        for (i, model) in models.iter().enumerate() {
            for (j, before) in found.iter().enumerate() {
                let context = Context {
                    model,
                    found: &found[i],
                };
                let checked = check_same_sites(&context, before, "after a change");
                let checked = checked.map_err(|why| why.to_string());
                if i == j {
                    assert_eq!(checked, Ok(()), "{i}");
                } else {
                    let why = checked.unwrap_err();
                    let want = "attention properties changed after a change";
                    assert!(why.contains(want), "{i} {j}: {why}");
                }
            }
        }
    }

    /// Checks the model in which these operators are replaced by their first input.
    fn check_without(without: &[&str]) -> Result<(), String> {
        let model = model();
        let before = detect(&model, &Options::default());
        let request = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        let context = Context {
            model: &model,
            found: &before,
        };
        let plan = crate::plan::swap::plan(&context, &request)
            .unwrap()
            .unwrap();
        let graph = model.graph();
        let mut out = graph.emitter(graph.main(), "test");
        for (_, node) in graph.nodes().filter(|(_, n)| without.contains(&n.op())) {
            let (new, old) = (node.input(0).unwrap(), node.output(0).unwrap());
            out.redirect(old, new).unwrap();
        }
        let (next, _) = model.clone().with_patch(out.finish()).unwrap();
        let found = detect(&next, &Options::default());
        let context = Context {
            model: &next,
            found: &found,
        };
        check_removed(&context, &before, &plan).map_err(|why| why.to_string())
    }

    #[test]
    fn an_encoding_that_is_still_present_is_named() {
        assert_eq!(check_without(&["Add", "RotaryEmbedding"]), Ok(()));
        let cases: [(&[&str], &str); 4] = [
            (&[], "rope is still present"),
            (&["Add"], "rope is still present"),
            (&["RotaryEmbedding"], "learned is still present"),
            (
                &["Add", "RotaryEmbedding", "Softmax"],
                "no longer found as attention after removing the encoding",
            ),
        ];
        for (without, want) in cases {
            let why = check_without(without).unwrap_err();
            assert!(
                why.contains(want) && why.starts_with("sketch/"),
                "{without:?}: {why}"
            );
        }
    }

    #[test]
    fn a_mask_that_one_window_loses_is_seen() {
        let plane = |masks: [f64; 3]| {
            let cell = |(g, h, i, j): (usize, usize, usize, usize)| {
                let mask = if (i, j) == (0, 1) { masks[g] } else { 0.0 };
                0.1 * h as f64 - mask
            };
            Plane::new(Array4::from_shape_fn([3, 2, 2, 2], cell))
        };
        let masked = plane([0.0, 100.0, 100.0]);
        assert!(lifts_alike(&masked, &plane([0.0, 80.0, 100.0]), 3));
        assert!(!lifts_alike(&masked, &plane([0.0, 0.0, 100.0]), 3));
        assert!(!lifts_alike(&masked, &plane([0.0; 3]), 3));
        assert!(!lifts_alike(&plane([0.0; 3]), &masked, 3));
    }
}
