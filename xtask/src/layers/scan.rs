//! What one file declares and which paths it mentions, by syntax alone.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, UseTree, Visibility};

use super::items::{
    attributes_of, is_test, name_of, name_of_item, path_attribute, paths_in_strings,
};
use super::scope::{Declared, Path, Scope, Use};
use super::tokens;

/// Reads a file.
pub(super) fn scan(text: &str) -> syn::Result<Scope> {
    let file = syn::parse_file(text)?;
    let mut scanner = Scanner::default();
    scanner.scope.is_test = file.attrs.iter().any(is_test);
    scanner.visit_file(&file);
    Ok(scanner.scope)
}

#[derive(Default)]
struct Scanner {
    scope: Scope,
    /// How many blocks the current item is in.
    depth: usize,
    /// Local variables of the current function.
    locals: BTreeSet<String>,
}

impl Scanner {
    fn mention(&mut self, path: Path) {
        let is_local = matches!(path.as_slice(), [name] if self.locals.contains(name));
        if !is_local {
            self.scope.paths.insert(path);
        }
    }

    fn mention_tokens(&mut self, stream: &TokenStream) {
        for path in tokens::paths(stream) {
            self.mention(path);
        }
    }

    fn declare(&mut self, item: &syn::ItemMod) {
        let path = item.attrs.iter().find_map(path_attribute);
        let body = item.content.as_ref().map(|(_, items)| {
            let mut inner = Self::default();
            for item in items {
                inner.visit_item(item);
            }
            inner.scope
        });
        self.scope.modules.push(Declared {
            name: name_of(&item.ident),
            is_test: item.attrs.iter().any(is_test),
            path,
            body,
        });
    }

    fn import(&mut self, tree: &UseTree, path: Path, is_reexport: bool) {
        let join = |ident: &Ident| [path.as_slice(), &[name_of(ident)]].concat();
        let (alias, path) = match tree {
            UseTree::Path(part) => return self.import(&part.tree, join(&part.ident), is_reexport),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), is_reexport);
                }
                return;
            }
            UseTree::Glob(_) => ("*".to_owned(), path),
            UseTree::Name(part) if part.ident == "self" => {
                (path.last().cloned().unwrap_or_default(), path)
            }
            UseTree::Rename(part) if part.ident == "self" => (name_of(&part.rename), path),
            UseTree::Name(part) => (name_of(&part.ident), join(&part.ident)),
            UseTree::Rename(part) => (name_of(&part.rename), join(&part.ident)),
        };
        self.scope.uses.push(Use {
            alias,
            path,
            is_reexport,
        });
    }

    /// A macro between items, or the definition of one.
    fn item_macro(&mut self, item: &syn::ItemMacro) {
        if let Some(ident) = &item.ident {
            self.scope.items.insert(name_of(ident));
        } else if item.mac.path.is_ident("include") {
            // The text of `x.rs` counts as a module `x` that is re-exported here.
            if let Ok(name) = syn::parse2::<syn::LitStr>(item.mac.tokens.clone()) {
                let name = name.value();
                let stem = name.rsplit('/').next().unwrap_or(&name);
                let stem = stem.trim_end_matches(".rs").to_owned();
                self.scope.uses.push(Use {
                    alias: "*".to_owned(),
                    path: vec!["self".to_owned(), stem],
                    is_reexport: true,
                });
            }
        } else {
            let mut paths = tokens::paths(&item.mac.tokens);
            paths.retain(|path| path.len() > 1);
            self.scope.registered.append(&mut paths);
        }
    }

    /// Visits a function with its local variables.
    fn with_locals(&mut self, collect: impl Fn(&mut Locals), visit: impl Fn(&mut Self)) {
        let mut locals = Locals(self.locals.clone());
        collect(&mut locals);
        let outer = std::mem::replace(&mut self.locals, locals.0);
        visit(self);
        self.locals = outer;
    }
}

impl<'a> Visit<'a> for Scanner {
    fn visit_item(&mut self, item: &'a Item) {
        if let Item::Mod(item) = item {
            return self.declare(item);
        }
        if attributes_of(item).iter().any(is_test) {
            return;
        }
        match item {
            Item::Use(item) => {
                let is_private = match &item.vis {
                    Visibility::Inherited => true,
                    Visibility::Restricted(scope) => scope.path.is_ident("self"),
                    Visibility::Public(_) => false,
                };
                let start = item.leading_colon.as_ref().map(|_| String::new());
                return self.import(&item.tree, start.into_iter().collect(), !is_private);
            }
            Item::Macro(item) => self.item_macro(item),
            _ => {}
        }
        if self.depth == 0 {
            self.scope.items.extend(name_of_item(item).map(name_of));
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attrs = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !attrs.iter().any(is_test) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.with_locals(
            |locals| locals.visit_item_fn(item),
            |this| visit::visit_item_fn(this, item),
        );
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.with_locals(
            |locals| locals.visit_impl_item_fn(item),
            |this| visit::visit_impl_item_fn(this, item),
        );
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        self.with_locals(
            |locals| locals.visit_trait_item_fn(item),
            |this| visit::visit_trait_item_fn(this, item),
        );
    }

    fn visit_block(&mut self, block: &'a syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if !local.attrs.iter().any(is_test) {
            visit::visit_local(self, local);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let start = path.leading_colon.as_ref().map(|_| String::new());
        let names = path.segments.iter().map(|segment| name_of(&segment.ident));
        self.mention(start.into_iter().chain(names).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.visit_path(&call.path);
        self.mention_tokens(&call.tokens);
    }

    /// `pub(in crate::x)` imports nothing.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    /// Documentation imports nothing.
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.mention_tokens(&list.tokens);
            if list.path.is_ident("serde") {
                for path in paths_in_strings(&list.tokens) {
                    self.mention(path);
                }
            }
        }
    }
}

/// The names that patterns bind.
struct Locals(BTreeSet<String>);

impl<'a> Visit<'a> for Locals {
    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        let name = name_of(&pattern.ident);
        // An uppercase name in a pattern is a constant or a variant.
        if !name.starts_with(char::is_uppercase) {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}
