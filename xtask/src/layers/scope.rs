//! What a scan finds in a file.

use std::collections::BTreeSet;

/// The segments of a path; the first one is empty for `::name`.
pub(super) type Path = Vec<String>;

/// A file or an inline module.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// `#![cfg(test)]`.
    pub is_test: bool,
    /// Names of the functions, types, traits, constants and macros defined here.
    pub items: BTreeSet<String>,
    pub uses: Vec<Use>,
    /// Paths in code, in the arguments of macros and in attributes.
    pub paths: BTreeSet<Path>,
    /// Paths in the arguments of macros called between items, such as `alibi::Alibi` in
    /// `families! { alibi::Alibi }`: the macro may re-export them.
    pub registered: Vec<Path>,
    pub modules: Vec<Declared>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub(super) struct Use {
    /// The name that it gets here; `*` for all names of a module.
    pub alias: String,
    pub path: Path,
    pub is_reexport: bool,
}

/// `mod name;` or `mod name { … }`.
#[derive(Debug)]
pub(super) struct Declared {
    pub name: String,
    pub is_test: bool,
    /// What `#[path = "…"]` says.
    pub path: Option<String>,
    /// An inline module.
    pub body: Option<Scope>,
}
