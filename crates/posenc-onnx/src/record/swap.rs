//! The `posenc.swap` metadata entry: which encoding a rewrite inserted at which sites, with its
//! parameters and the constants that hold its learned numbers, so that a verification can run it
//! against its formula.

use posenc_encodings::kind::Kind;
use posenc_encodings::param::Given;
use posenc_encodings::params::Params;
use posenc_ir::Model;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::request::values;

/// The key of the entry.
pub(crate) const KEY: &str = "posenc.swap";

/// What a swap wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SwapRecord {
    tool: String,
    /// The fingerprint of the model that was rewritten.
    source: String,
    /// The kind.
    pub(crate) to: Kind,
    /// The parameters of its family that were asked for.
    #[serde(default, with = "values::family")]
    pub(crate) parameters: Given,
    /// What is read from the result, as in a report.
    encodings: Vec<Value>,
    /// What was inserted in each branch of the model.
    #[serde(default)]
    pub(crate) branches: Vec<BranchRecord>,
}

/// What a swap wrote in one branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BranchRecord {
    /// The branch, by its number in the options of detection.
    pub(crate) branch: usize,
    /// The sites whose encoding was replaced, by their places in `Found::attention`.
    pub(crate) sites: Vec<usize>,
    /// What they have now; none where nothing was inserted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<GroupRecord>,
}

/// Sites with one encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    /// The sites.
    pub(crate) sites: Vec<usize>,
    /// The parameters of the encoding.
    pub(crate) params: Params,
    /// The constants with its learned numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tensors: Vec<LearnedRecord>,
    /// The kind that detection reads at every site where its numbers are not zero; a few tokens may
    /// show less than what was inserted.
    pub(crate) read: Option<Kind>,
    /// Whether it can be removed again.
    pub(crate) removable: bool,
    /// How often it is added before the first site, where it is added to the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entries: Option<usize>,
}

/// A constant with learned numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearnedRecord {
    /// The name of the tensor in its family.
    pub(crate) name: String,
    /// Its name in the file that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given: Option<String>,
    /// The dimensions of the tensor.
    pub(crate) dims: Vec<usize>,
    /// The name of the constant.
    pub(crate) constant: String,
    /// What the numbers of the tensor were multiplied with.
    pub(crate) factor: f64,
    /// Whether the constant has rows for columns.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) transposed: bool,
}

impl LearnedRecord {
    /// The numbers of the tensor that a constant with these holds; `None` where they are not as many.
    pub(crate) fn numbers(&self, constant: &[f64]) -> Option<Vec<f64>> {
        let count = self
            .dims
            .iter()
            .try_fold(1, |n: usize, d| n.checked_mul(*d));
        if count != Some(constant.len()) || self.factor == 0.0 {
            return None;
        }
        let plain: Vec<f64> = constant.iter().map(|n| n / self.factor).collect();
        if !self.transposed {
            return Some(plain);
        }
        let [rows, columns] = self.dims[..] else {
            return None;
        };
        let at = |i: usize| plain[(i % columns) * rows + i / columns];
        Some((0..plain.len()).map(at).collect())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl SwapRecord {
    /// The record of a model in which a branch's sites have other numbers by now; those that are no longer read, which
    /// have none, are left out. `None` where no other is recorded.
    pub(crate) fn renumbered(
        mut self,
        branch: usize,
        now: impl Fn(usize) -> Option<usize>,
    ) -> Option<Self> {
        // Whether all that were there are gone.
        let renumber = |sites: &mut Vec<usize>| {
            let before = std::mem::take(sites);
            sites.extend(before.iter().filter_map(|site| now(*site)));
            sites.is_empty() && !before.is_empty()
        };
        let is_empty = self.branches.is_empty();
        self.branches.retain_mut(|own| {
            if own.branch != branch {
                return true;
            }
            own.groups.retain_mut(|group| !renumber(&mut group.sites));
            !renumber(&mut own.sites)
        });
        (is_empty || !self.branches.is_empty()).then_some(self)
    }
}

/// Writes the record of a swap of the model with this fingerprint.
pub(crate) fn write(
    model: &mut Model,
    source: &str,
    (to, parameters): (Kind, &Given),
    encodings: Vec<Value>,
    branches: Vec<BranchRecord>,
) {
    let record = SwapRecord {
        tool: concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")).to_owned(),
        source: source.to_owned(),
        to,
        parameters: parameters.clone(),
        encodings,
        branches,
    };
    model.set_metadata(KEY, json!(record).to_string());
}

/// Revises the record of an earlier swap where a rewrite has changed since what it inserted in a branch. `revised` makes
/// the parameters of a site of those that are recorded, or none where these hold; `encodings` are those of a kind that
/// are read from the result.
pub(crate) fn revise(
    model: &mut Model,
    branch: usize,
    revised: impl Fn(Kind, usize, &Params) -> Option<Params>,
    encodings: impl FnOnce(Kind) -> Vec<Value>,
) {
    let Some(Ok(before)) = read(model) else {
        return;
    };
    let mut record = before.clone();
    for own in record.branches.iter_mut().filter(|b| b.branch == branch) {
        let groups = std::mem::take(&mut own.groups).into_iter();
        own.groups = groups
            .flat_map(|group| with_revised(group, |site, params| revised(before.to, site, params)))
            .collect();
    }
    if record != before {
        record.encodings = encodings(record.to);
        model.set_metadata(KEY, json!(record).to_string());
    }
}

/// A group, divided by the parameters that its sites have now.
fn with_revised(
    group: GroupRecord,
    revised: impl Fn(usize, &Params) -> Option<Params>,
) -> Vec<GroupRecord> {
    let mut all: Vec<GroupRecord> = vec![];
    for site in &group.sites {
        let params = revised(*site, &group.params);
        let params = params.unwrap_or_else(|| group.params.clone());
        match all.iter_mut().find(|own| own.params == params) {
            Some(own) => own.sites.push(*site),
            None => all.push(GroupRecord {
                sites: vec![*site],
                params,
                ..group.clone()
            }),
        }
    }
    all
}

/// What an earlier swap wrote; `None` where there is no such record.
///
/// # Errors
/// In words, where the record cannot be read.
pub(crate) fn read(model: &Model) -> Option<Result<SwapRecord, String>> {
    let entry = model.metadata(KEY)?;
    Some(serde_json::from_str(entry).map_err(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let record = |factor, transposed| LearnedRecord {
            name: "table".into(),
            given: None,
            dims: vec![2, 3],
            constant: "c".into(),
            factor,
            transposed,
        };
        let constant = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(
            record(2.0, false).numbers(&constant).unwrap()[..2],
            [0.5, 1.0]
        );
        let turned = record(1.0, true).numbers(&constant).unwrap();
        assert_eq!(turned, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        assert_eq!(record(1.0, false).numbers(&constant[..5]), None);
        assert_eq!(record(0.0, false).numbers(&constant), None);
        for dims in [vec![usize::MAX, 2], vec![1 << 63, 2]] {
            let huge = LearnedRecord {
                dims,
                ..record(1.0, false)
            };
            assert_eq!(huge.numbers(&[]), None, "{:?}", huge.dims);
        }
    }
}
