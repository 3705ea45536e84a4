//! Which file takes which names from which other file.
//!
//! An import is every path that leads to an item of another file: in `use` declarations, in code,
//! in the arguments of macros and in attributes. It counts against the file that defines the item,
//! through any number of re-exports. A name that a module does not visibly define, because a macro
//! does, counts against the file of that module.
//!
//! No imports are: `mod x;`; `pub use` and its kind, unless the file mentions the name in its own
//! code; a `use` that names a module, until an item is taken from it; documentation; code for
//! tests. Methods and associated functions cannot be seen: `value.method()` needs types, and
//! `Type::function()` counts against the file of `Type`, wherever its `impl` is.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Tree;

/// The names that one file takes from another, by the two files.
pub(super) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(usize),
    Item { file: String, name: String },
}

/// The imports of every file that is not for tests alone.
pub(super) fn imports(tree: &Tree) -> Imports {
    let mut found = Imports::new();
    for (at, module) in tree.modules.iter().enumerate() {
        if module.is_test {
            continue;
        }
        let mut add = |from: String, name: String| {
            if from != module.file {
                let files = (module.file.clone(), from);
                found.entry(files).or_default().insert(name);
            }
        };
        let private = module.scope.uses.iter().filter(|used| !used.is_reexport);
        let used = private.clone().map(|used| &used.path);
        for path in used.chain(&module.scope.paths) {
            for target in Resolver::new(tree).path(at, path) {
                if let Target::Item { file, name } = target {
                    add(file, name);
                }
            }
        }
        for used in private.filter(|used| used.alias == "*") {
            for target in Resolver::new(tree).path(at, &used.path) {
                if let Target::Module(from) = target {
                    add(tree.modules[from].file.clone(), "*".to_owned());
                }
            }
        }
    }
    found
}

struct Resolver<'a> {
    tree: &'a Tree,
    /// The names whose `use` declarations are being followed.
    open: BTreeSet<(usize, String)>,
}

impl<'a> Resolver<'a> {
    fn new(tree: &'a Tree) -> Self {
        let open = BTreeSet::new();
        Self { tree, open }
    }

    /// What a path means in a module: a module and an item may share a name. Nothing for what
    /// other packages, the prelude and functions define.
    fn path(&mut self, module: usize, path: &[String]) -> BTreeSet<Target> {
        let [first, rest @ ..] = path else {
            return BTreeSet::new();
        };
        let within = &self.tree.modules[module];
        let start = match first.as_str() {
            "" => {
                let root = rest.first().and_then(|name| self.tree.crates.get(name));
                let start = root.map(|&root| Target::Module(root));
                let rest = rest.get(1..).unwrap_or_default();
                return self.members(start.into_iter().collect(), rest);
            }
            "crate" => BTreeSet::from([Target::Module(within.root)]),
            "self" => BTreeSet::from([Target::Module(module)]),
            "super" => within.parent.map(Target::Module).into_iter().collect(),
            name => {
                let mut start = self.name(module, name);
                if start.is_empty() {
                    let root = self.tree.crates.get(name);
                    start.extend(root.map(|&root| Target::Module(root)));
                }
                start
            }
        };
        self.members(start, rest)
    }

    /// Follows the rest of a path.
    fn members(&mut self, start: BTreeSet<Target>, rest: &[String]) -> BTreeSet<Target> {
        let mut targets = start;
        for name in rest {
            let is_module = |target: &Target| matches!(target, Target::Module(_));
            if !targets.iter().any(is_module) {
                // Variants and associated items of an item.
                break;
            }
            let modules = targets.into_iter().filter_map(|target| match target {
                Target::Module(module) => Some(module),
                Target::Item { .. } => None,
            });
            targets = modules
                .flat_map(|module| self.member(module, name))
                .collect();
        }
        targets
    }

    /// A name that is taken from a module; what cannot be found there is an item of its file.
    fn member(&mut self, module: usize, name: &str) -> BTreeSet<Target> {
        let within = &self.tree.modules[module];
        if name == "super" {
            return within.parent.map(Target::Module).into_iter().collect();
        }
        let mut found = self.name(module, name);
        if found.is_empty() {
            let file = within.file.clone();
            let name = name.to_owned();
            found.insert(Target::Item { file, name });
        }
        found
    }

    /// What a name means in a module.
    fn name(&mut self, module: usize, name: &str) -> BTreeSet<Target> {
        let within = &self.tree.modules[module];
        let child = within.children.get(name);
        let mut found: BTreeSet<Target> = child
            .map(|&child| Target::Module(child))
            .into_iter()
            .collect();
        if within.scope.items.contains(name) {
            let file = within.file.clone();
            let name = name.to_owned();
            found.insert(Target::Item { file, name });
        }
        let key = (module, name.to_owned());
        if !self.open.insert(key.clone()) {
            return found;
        }
        for used in within.scope.uses.iter().filter(|used| used.alias == name) {
            found.extend(self.path(module, &used.path));
        }
        for used in within.scope.uses.iter().filter(|used| used.alias == "*") {
            if !found.is_empty() {
                break;
            }
            for target in self.path(module, &used.path) {
                if let Target::Module(from) = target {
                    found.extend(self.name(from, name));
                }
            }
        }
        let registered = within.scope.registered.iter();
        for path in registered.filter(|path| path.last().is_some_and(|last| last == name)) {
            if found.is_empty() {
                found.extend(self.path(module, path));
            }
        }
        self.open.remove(&key);
        found
    }
}
