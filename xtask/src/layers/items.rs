//! Names and attributes of single items.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Item, Lit, Meta, Token};

use super::scope::Path;

/// Whether an item exists in tests only: `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`.
pub(super) fn is_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args().is_ok_and(|meta| implies_test(&meta))
        }
        _ => false,
    }
}

fn implies_test(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(implies_test),
        Meta::List(list) if list.path.is_ident("any") => parts(list).iter().all(implies_test),
        _ => false,
    }
}

/// What `#[path = "…"]` says.
pub(super) fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(value) if pair.path.is_ident("path") => match &value.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The paths that serde takes as strings, such as `with = "module"`.
pub(super) fn paths_in_strings(arguments: &TokenStream) -> Vec<Path> {
    let tokens: Vec<TokenTree> = arguments.clone().into_iter().collect();
    let mut found = vec![];
    for part in tokens.windows(3) {
        let [
            TokenTree::Ident(key),
            TokenTree::Punct(_),
            TokenTree::Literal(value),
        ] = part
        else {
            continue;
        };
        let value = value.to_string();
        let Ok(path) = syn::parse_str::<syn::Path>(value.trim_matches('"')) else {
            continue;
        };
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let mut names: Path = names.collect();
        if key == "with" {
            names.push("serialize".to_owned());
        }
        found.push(names);
    }
    found
}

/// The attributes of an item.
pub(super) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines, but for modules and macros.
pub(super) fn name_of_item(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// Without `r#`.
pub(super) fn name_of(ident: &Ident) -> String {
    ident.unraw().to_string()
}
