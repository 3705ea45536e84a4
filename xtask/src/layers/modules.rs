//! The tree of modules, from `mod` declarations and the places of files.

use std::collections::{BTreeMap, BTreeSet};

use super::Sources;
use super::scan::scan;
use super::scope::{Declared, Scope};

/// A file or an inline module.
#[derive(Debug)]
pub(super) struct Module {
    pub file: String,
    /// The index of the root of the crate.
    pub root: usize,
    pub parent: Option<usize>,
    /// Where the files of children are, with no slash at the end.
    folder: String,
    /// Whether only tests can reach it.
    pub is_test: bool,
    /// What is not for tests alone.
    pub children: BTreeMap<String, usize>,
    pub scope: Scope,
}

/// Every module of the workspace.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub modules: Vec<Module>,
    /// The roots of the libraries, by the names that other crates import.
    pub crates: BTreeMap<String, usize>,
    /// Files that are not Rust, with the message of the parser.
    pub unreadable: BTreeMap<String, String>,
    seen: BTreeSet<String>,
}

impl Tree {
    pub(super) fn read(sources: &Sources) -> Self {
        let mut tree = Self::default();
        for file in sources.0.keys() {
            let Some((folder, name)) = file.rsplit_once('/') else {
                continue;
            };
            let Some(package) = folder.strip_suffix("/src") else {
                continue;
            };
            if name == "lib.rs" || name == "main.rs" {
                let root = tree.add_file(sources, file, None, folder, false);
                if name == "lib.rs" {
                    let package = package.rsplit('/').next().unwrap_or(package);
                    tree.crates.insert(package.replace('-', "_"), root);
                }
            }
        }
        tree.add_rest(sources);
        tree
    }

    /// The files that are compiled without tests.
    pub(super) fn product_files(&self) -> BTreeSet<&str> {
        let modules = self.modules.iter().filter(|module| !module.is_test);
        let readable = modules.map(|module| module.file.as_str());
        let unreadable = self.unreadable.keys().map(String::as_str);
        readable.chain(unreadable).collect()
    }

    /// Adds the files that no `mod` names: a macro may declare them. They become modules by their
    /// place: `foo/x.rs` is the child `x` of `foo.rs`.
    fn add_rest(&mut self, sources: &Sources) {
        let mut rest: Vec<&String> = sources.0.keys().collect();
        // Parents first.
        rest.sort_by_key(|file| file.matches('/').count());
        for file in rest {
            if self.seen.contains(file) {
                continue;
            }
            let place = file.strip_suffix("/mod.rs");
            let place = place.or(file.strip_suffix(".rs")).unwrap_or(file);
            let (folder, name) = place.rsplit_once('/').unwrap_or(("", place));
            let has_folder = |module: &Module| module.folder == folder;
            let all = &self.modules;
            let parent = all.iter().position(|m| has_folder(m) && !m.is_test);
            let parent = parent.or_else(|| all.iter().position(has_folder));
            let is_test = parent.is_some_and(|parent| all[parent].is_test);
            let child = self.add_file(sources, file, parent, place, is_test);
            self.name_child(parent, name, child);
        }
    }

    fn name_child(&mut self, parent: Option<usize>, name: &str, child: usize) {
        if let Some(parent) = parent
            && (!self.modules[child].is_test || self.modules[parent].is_test)
        {
            self.modules[parent].children.insert(name.to_owned(), child);
        }
    }

    fn add_file(
        &mut self,
        sources: &Sources,
        file: &str,
        parent: Option<usize>,
        folder: &str,
        is_test: bool,
    ) -> usize {
        self.seen.insert(file.to_owned());
        let text = sources.0.get(file).map_or("", String::as_str);
        let scope = scan(text).unwrap_or_else(|error| {
            self.unreadable.insert(file.to_owned(), error.to_string());
            Scope::default()
        });
        self.add(sources, file, parent, folder, is_test, scope)
    }

    fn add(
        &mut self,
        sources: &Sources,
        file: &str,
        parent: Option<usize>,
        folder: &str,
        is_test: bool,
        mut scope: Scope,
    ) -> usize {
        let this = self.modules.len();
        let declared = std::mem::take(&mut scope.modules);
        let is_test = is_test || scope.is_test;
        self.modules.push(Module {
            file: file.to_owned(),
            root: parent.map_or(this, |parent| self.modules[parent].root),
            parent,
            folder: folder.to_owned(),
            is_test,
            children: BTreeMap::new(),
            scope,
        });
        for module in declared {
            self.add_declared(sources, this, module);
        }
        this
    }

    fn add_declared(&mut self, sources: &Sources, parent: usize, declared: Declared) {
        let within = &self.modules[parent];
        let is_test = within.is_test || declared.is_test;
        let file = within.file.clone();
        let place = format!("{}/{}", within.folder, declared.name);
        let child = if let Some(scope) = declared.body {
            self.add(sources, &file, Some(parent), &place, is_test, scope)
        } else {
            let (file, folder) = match declared.path {
                Some(path) => {
                    let file = sibling(&file, &path);
                    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                    (file.clone(), folder.to_owned())
                }
                None => {
                    let flat = format!("{place}.rs");
                    let nested = format!("{place}/mod.rs");
                    let is_nested = sources.0.contains_key(&nested);
                    (if is_nested { nested } else { flat }, place)
                }
            };
            if !sources.0.contains_key(&file) {
                // Generated, or the compiler will say so.
                return;
            }
            self.add_file(sources, &file, Some(parent), &folder, is_test)
        };
        self.name_child(Some(parent), &declared.name, child);
    }
}

/// A path relative to the folder of a file.
fn sibling(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
