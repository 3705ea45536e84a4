//! Compares the imports of all product files with the table of layers in ARCHITECTURE.md.
//!
//! `cargo xtask layers` prints every circle of files and every import from a lower layer to a
//! higher one, and fails if there is any; `--list` prints each file with its layer and imports.
//! [`imports`] says what counts as an import, [`table`] how the table is written. Every file has
//! to be in exactly one layer. Files of one layer may import each other, but not in a circle. What
//! the table names and the workspace does not have is an error too.

mod circles;
mod imports;
mod items;
mod modules;
mod report;
mod scan;
mod scope;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use report::check;
use table::Table;

/// Where the table is, under the root.
const DOCUMENT: &str = "ARCHITECTURE.md";

/// Checks the workspace.
#[allow(clippy::print_stdout)] // this is what the task is for
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let is_list = match arguments {
        [] => false,
        [flag] if flag == "--list" => true,
        _ => bail!("`cargo xtask layers` has one option, `--list`"),
    };
    let document = std::fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    let table = Table::parse(&document).context(DOCUMENT)?;
    let report = check(&Sources::read(root)?, &table);
    if is_list {
        print!("{}", report.list(&table));
    }
    print!("{report}");
    if report.problems.is_empty() {
        Ok(())
    } else {
        bail!("found {} problems", report.problems.len());
    }
}

/// The folders that hold packages.
const PACKAGES: [&str; 2] = ["crates", "bindings"];

/// The files under `crates/*/src` and `bindings/*/src`, by their paths under the root, with `/`.
#[derive(Debug, Default)]
struct Sources(BTreeMap<String, String>);

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let mut sources = Self::default();
        for folder in PACKAGES {
            for package in names_in(&root.join(folder))? {
                sources.add(root, &format!("{folder}/{package}/src"))?;
            }
        }
        Ok(sources)
    }

    fn add(&mut self, root: &Path, path: &str) -> Result<()> {
        let place = root.join(path);
        if place.is_dir() {
            for name in names_in(&place)? {
                self.add(root, &format!("{path}/{name}"))?;
            }
        } else if path.ends_with(".rs") {
            let text = std::fs::read_to_string(place).with_context(|| path.to_owned())?;
            self.0.insert(path.to_owned(), text);
        }
        Ok(())
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = folder.read_dir();
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
