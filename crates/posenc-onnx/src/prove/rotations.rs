//! The rotations of a model against their formula, in every runtime.

use posenc_ir::Model;
use posenc_runtime::Backend;

use super::bound::Worst;
use super::error::VerifyError;
use super::expected::{as_inserted, expectations};
use super::inserted::merge;
use super::rows::rows;
use super::sites::{Checked, check_rope};
use crate::detect::{Found, Options};
use crate::record;
use crate::report::SiteCheck;

/// Rotations in every runtime that runs them, and why others do not.
pub(super) fn rotations(
    model: &Model,
    found: &Found,
    backends: &[&dyn Backend],
) -> Result<(Checked, Vec<VerifyError>), VerifyError> {
    let mut all = Checked {
        checks: absent(model, found)
            .into_iter()
            .chain(rows(model, found))
            .collect(),
        unchecked: not_read(found).into_iter().collect(),
    };
    let mut expected = expectations(model, found)?;
    as_inserted(model, Options::default().branch, &mut expected);
    if expected.is_empty() {
        return Ok((all, vec![]));
    }
    let mut refused = vec![];
    let mut ran = false;
    for backend in backends {
        match check_rope(model, found, &expected, *backend) {
            Ok(rotations) => {
                merge(&mut all.checks, rotations.checks);
                for why in rotations.unchecked {
                    if !all.unchecked.contains(&why) {
                        all.unchecked.push(why);
                    }
                }
                ran = true;
            }
            Err(error @ VerifyError::Runtime { .. }) => refused.push(error),
            Err(error) => return Err(error),
        }
    }
    if ran || refused.is_empty() {
        return Ok((all, refused));
    }
    Err(refused.swap_remove(0))
}

/// What was not read as a rotation, and so is compared with no formula.
fn not_read(found: &Found) -> Option<String> {
    let first = found.not_rotary.first()?;
    let site = &found.attention[first.site].name;
    let others = match found.not_rotary.len() {
        1 => String::new(),
        all => format!(" (the first of {all})"),
    };
    let why = &first.why;
    Some(format!(
        "what depends on positions in {site}{others}, because it was not read as a rotation: {why}"
    ))
}

/// A failed check for every site that has a rotation by the record and none in the graph.
fn absent(model: &Model, found: &Found) -> Vec<SiteCheck> {
    let recorded = record::record(model).map(|r| r.sites()).unwrap_or_default();
    let has_none = |site: &usize| found.rotary.iter().all(|r| r.site != *site);
    let absent = recorded.into_iter().filter(has_none).map(|site| {
        let name = found.attention.get(site).map(|s| s.name.clone());
        let name = name.unwrap_or_else(|| format!("attention site {site}"));
        Worst::default().check(&name, "rotation")
    });
    absent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{detect, found::Refused};
    use crate::prove::testing::{Evaluator, fixture};

    #[test]
    fn what_was_not_read_is_named_as_not_compared() {
        let model = fixture("llama/dynamo23");
        let mut found = detect(&model, &Options::default());
        let unchecked = |found: &Found| {
            let (checked, _) = rotations(&model, found, &[&Evaluator::default()]).unwrap();
            checked.unchecked
        };
        assert_eq!(unchecked(&found), [""; 0]);
        let refused = Refused {
            site: 1,
            node: found.attention[1].node,
            why: "its queries turn back".to_owned(),
        };
        found.not_rotary = vec![refused.clone(), refused];
        let said = unchecked(&found);
        assert!(
            matches!(&said[..], [why] if why.contains(&found.attention[1].name)
                && why.contains("the first of 2") && why.ends_with("its queries turn back")),
            "{said:?}"
        );
    }
}
