//! Compares imports with the table of layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::Sources;
use super::circles::circles;
use super::imports::{Imports, imports};
use super::modules::Tree;
use super::table::{Place, Table, contains};

/// What is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Unreadable {
        file: String,
        message: String,
    },
    /// The names that its files import from each other.
    Circle(Imports),
    Upward {
        from: String,
        to: String,
        names: BTreeSet<String>,
        layers: [String; 2],
    },
    NoLayer(String),
    TwoLayers(String),
    /// An exception for a circle that does not exist, by its reason.
    StaleException(String),
    /// A path of a layer that contains no file.
    StalePath {
        layer: String,
        path: String,
    },
}

#[derive(Debug)]
pub(super) struct Report {
    pub problems: Vec<Problem>,
    files: BTreeMap<String, Place>,
    imports: Imports,
}

/// Compares the imports of files with a table of layers.
pub(super) fn check(sources: &Sources, table: &Table) -> Report {
    let tree = Tree::read(sources);
    let imports = imports(&tree);
    let files = tree.product_files().into_iter();
    let files: BTreeMap<String, Place> = files
        .map(|file| (file.to_owned(), table.place(file)))
        .collect();
    let mut problems = vec![];
    for (file, message) in tree.unreadable {
        problems.push(Problem::Unreadable { file, message });
    }
    check_circles(&imports, table, &mut problems);
    for ((from, to), names) in &imports {
        if let (Some(&Place::Layer(low)), Some(&Place::Layer(high))) =
            (files.get(from), files.get(to))
            && high < low
        {
            problems.push(Problem::Upward {
                from: from.clone(),
                to: to.clone(),
                names: names.clone(),
                layers: [low, high].map(|at| table.layers[at].name.clone()),
            });
        }
    }
    for (file, place) in &files {
        match place {
            Place::Layer(_) => {}
            Place::Nowhere => problems.push(Problem::NoLayer(file.clone())),
            Place::Ambiguous => problems.push(Problem::TwoLayers(file.clone())),
        }
    }
    for layer in &table.layers {
        for path in &layer.paths {
            if !files.keys().any(|file| contains(path, file)) {
                problems.push(Problem::StalePath {
                    layer: layer.name.clone(),
                    path: path.clone(),
                });
            }
        }
    }
    Report {
        problems,
        files,
        imports,
    }
}

fn check_circles(imports: &Imports, table: &Table, problems: &mut Vec<Problem>) {
    let circles = circles(imports);
    for circle in &circles {
        if table
            .exceptions
            .iter()
            .any(|exception| exception.files == *circle)
        {
            continue;
        }
        let is_inside =
            |(from, to): &(String, String)| circle.contains(from) && circle.contains(to);
        let arrows = imports.iter().filter(|(files, _)| is_inside(files));
        let arrows = arrows.map(|(files, names)| (files.clone(), names.clone()));
        problems.push(Problem::Circle(arrows.collect()));
    }
    for exception in &table.exceptions {
        if !circles.contains(&exception.files) {
            problems.push(Problem::StaleException(exception.reason.clone()));
        }
    }
}

impl Report {
    /// Each file with its layer and imports.
    pub(super) fn list(&self, table: &Table) -> String {
        let mut text = String::new();
        for (file, place) in &self.files {
            let layer = match place {
                Place::Layer(at) => &table.layers[*at].name,
                Place::Nowhere => "no layer",
                Place::Ambiguous => "two layers",
            };
            text += &format!("{file} ({layer})\n");
            for ((_, to), names) in self.imports.iter().filter(|((from, _), _)| from == file) {
                text += &format!("  → {to}: {}\n", join(names));
            }
        }
        text
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.problems
            .iter()
            .try_for_each(|problem| writeln!(f, "{problem}"))
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, message } => write!(f, "{file} is not Rust: {message}"),
            Self::Circle(arrows) => {
                let files: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
                write!(f, "circle of {} files:", files.len())?;
                for ((from, to), names) in arrows {
                    write!(f, "\n  {from} → {to}: {}", join(names))?;
                }
                Ok(())
            }
            Self::Upward {
                from,
                to,
                names,
                layers: [low, high],
            } => {
                write!(f, "upward: {from} ({low}) → {to} ({high}): {}", join(names))
            }
            Self::NoLayer(file) => write!(f, "{file} is in no layer"),
            Self::TwoLayers(file) => write!(f, "{file} is in two layers"),
            Self::StaleException(reason) => {
                write!(
                    f,
                    "there is no circle for the exception \"{reason}\"; remove it"
                )
            }
            Self::StalePath { layer, path } => {
                write!(
                    f,
                    "the layer {layer} names {path}, where there are no files"
                )
            }
        }
    }
}

fn join(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}
