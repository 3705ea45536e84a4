//! The visits of a walk, and the visits before each.

use posenc_ir::ValueId;

/// A value, and whether there is a projection between it and the scores.
pub(super) type Visit = (ValueId, bool);

/// The number of a visit, less than twice the number of values.
pub(super) fn number((value, outer): Visit) -> usize {
    2 * value.index() + usize::from(outer)
}

/// The visits before each visit, which follow each other in one list.
#[derive(Debug)]
pub(super) struct Visits {
    all: Vec<Visit>,
    /// Where those before a visit begin and end, by its number.
    ranges: Vec<Option<[u32; 2]>>,
}

impl Visits {
    /// None, in a graph of so many values.
    pub(super) fn new(values: usize) -> Self {
        Self {
            all: vec![],
            ranges: vec![None; 2 * values],
        }
    }

    pub(super) fn insert(&mut self, visit: Visit, before: impl Iterator<Item = Visit>) {
        let end = |all: &[Visit]| u32::try_from(all.len()).expect("a graph has fewer edges");
        let first = end(&self.all);
        self.all.extend(before);
        self.ranges[number(visit)] = Some([first, end(&self.all)]);
    }

    pub(super) fn contains(&self, visit: Visit) -> bool {
        self.ranges[number(visit)].is_some()
    }

    /// The visits before one; `None` for one that was not made.
    pub(super) fn get(&self, visit: Visit) -> Option<&[Visit]> {
        let [first, end] = self.ranges[number(visit)]?;
        Some(&self.all[first as usize..end as usize])
    }
}
