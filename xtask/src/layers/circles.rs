//! Circles of files: sets of files that all lead to each other by imports.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Imports;

/// Every circle, as the set of its files.
pub(super) fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        next.entry(from).or_default().push(to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|&from| (from, reachable(from, &next)))
        .collect();
    let mut found = BTreeSet::new();
    for (from, ahead) in &reach {
        let returns = |to: &&&str| reach.get(**to).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> = ahead
            .iter()
            .filter(returns)
            .map(|&file| file.to_owned())
            .collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Everything that a file leads to; itself only through another file.
fn reachable<'a>(from: &'a str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for &to in next.get(file).into_iter().flatten() {
            if found.insert(to) {
                open.push(to);
            }
        }
    }
    found
}
