//! The table of layers in ARCHITECTURE.md.
//!
//! It is between `<!-- layers -->` and `<!-- /layers -->`, from the highest layer to the lowest:
//!
//! ```text
//! | layer | paths | what it holds |
//! |---|---|---|
//! | driver | `crates/a/src/rewrite/`, `crates/a/src/{lib,words}.rs` | … |
//! | graph | `crates/*/src/` | … |
//!
//! - mutual recursion inside the evaluator: `crates/a/src/eval/{run,trace}.rs`
//! ```
//!
//! `x/` contains all files under `x/` and the file `x.rs`; the longest path decides. `*` is any part
//! of one name. The list names the circles that are allowed, each with a reason and all its files.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

#[derive(Debug, Default)]
pub(super) struct Table {
    /// From the highest to the lowest.
    pub layers: Vec<Layer>,
    pub exceptions: Vec<Exception>,
}

#[derive(Debug)]
pub(super) struct Layer {
    pub name: String,
    /// Without braces.
    pub paths: Vec<String>,
}

/// A circle that is allowed.
#[derive(Debug)]
pub(super) struct Exception {
    pub reason: String,
    pub files: BTreeSet<String>,
}

/// The place of a file in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The index of the layer.
    Layer(usize),
    Nowhere,
    /// Two layers have an equally long path for it.
    Ambiguous,
}

impl Table {
    pub(super) fn parse(document: &str) -> Result<Self> {
        let (_, rest) = document
            .split_once("<!-- layers -->")
            .context("there is no `<!-- layers -->`")?;
        let (block, _) = rest
            .split_once("<!-- /layers -->")
            .context("there is no `<!-- /layers -->`")?;
        let mut table = Self::default();
        for line in block.lines().map(str::trim) {
            if let Some(row) = line.strip_prefix('|') {
                table.add_row(row)?;
            } else if let Some(item) = line.strip_prefix("- ") {
                let (reason, files) = item
                    .split_once(": `")
                    .with_context(|| format!("`{item}` is not `reason: files`"))?;
                table.exceptions.push(Exception {
                    reason: reason.to_owned(),
                    files: paths(files).into_iter().collect(),
                });
            }
        }
        ensure!(!table.layers.is_empty(), "the table of layers has no rows");
        Ok(table)
    }

    fn add_row(&mut self, row: &str) -> Result<()> {
        let mut cells = row.split('|').map(str::trim);
        let (Some(name), Some(cell)) = (cells.next(), cells.next()) else {
            bail!("`|{row}` has no paths");
        };
        let is_ruler = name.starts_with(['-', ':']);
        if is_ruler || name == "layer" {
            return Ok(());
        }
        let paths = paths(cell);
        ensure!(!paths.is_empty(), "the layer `{name}` has no paths");
        let name = name.to_owned();
        self.layers.push(Layer { name, paths });
        Ok(())
    }

    /// The layer that a file belongs to.
    pub(super) fn place(&self, file: &str) -> Place {
        let mut best = (0, Place::Nowhere);
        for (at, layer) in self.layers.iter().enumerate() {
            let fitting = layer.paths.iter().filter(|path| contains(path, file));
            let Some(length) = fitting.map(String::len).max() else {
                continue;
            };
            if length > best.0 {
                best = (length, Place::Layer(at));
            } else if length == best.0 {
                best.1 = Place::Ambiguous;
            }
        }
        best.1
    }
}

/// Splits a cell or a list into its paths: at commas outside of braces; `{a,b}` gives two paths.
fn paths(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let parts = text.split(|sign| {
        match sign {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    });
    let strip = |part: &str| part.replace('`', "").trim().to_owned();
    let parts = parts.map(strip).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&part)).collect()
}

/// Writes out `{a,b}`.
fn expand(path: &str) -> Vec<String> {
    let Some((start, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let Some((choices, end)) = rest.split_once('}') else {
        return vec![path.to_owned()];
    };
    let choices = choices.split(',');
    choices
        .flat_map(|choice| expand(&format!("{start}{}{end}", choice.trim())))
        .collect()
}

/// Whether a path of the table contains a file.
pub(super) fn contains(path: &str, file: &str) -> bool {
    let Some(folder) = path.strip_suffix('/') else {
        return fits(path, file);
    };
    let depth = folder.matches('/').count();
    let mut slashes = file.match_indices('/').map(|(at, _)| at);
    match slashes.nth(depth) {
        Some(end) => fits(folder, &file[..end]),
        None => fits(&format!("{folder}.rs"), file),
    }
}

/// Compares name by name; `*` is any part of one name.
fn fits(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/');
    let all = pattern
        .split('/')
        .all(|part| names.next().is_some_and(|name| fits_name(part, name)));
    all && names.next().is_none()
}

fn fits_name(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(left) = name.strip_prefix(start) else {
        return false;
    };
    let mut tails = left.char_indices().map(|(at, _)| &left[at..]);
    tails.any(|tail| fits_name(rest, tail)) || fits_name(rest, "")
}
