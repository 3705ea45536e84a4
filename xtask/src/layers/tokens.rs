//! Paths in the arguments of macros and attributes, where there is no syntax tree.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::scope::Path;

/// Every path in a stream, single names included.
pub(super) fn paths(stream: &TokenStream) -> Vec<Path> {
    let mut found = vec![];
    collect(stream, &[], &mut found);
    found
}

/// Collects the paths of a stream; they continue `prefix`, as in `prefix::{stream}`.
fn collect(stream: &TokenStream, prefix: &[String], found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = stream.clone().into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => collect(&group.stream(), &[], found),
            TokenTree::Ident(_) => {
                let start = at;
                let mut path = prefix.to_vec();
                path.push(name(&tokens[at]));
                while is_separator(&tokens, at + 1) {
                    let Some(TokenTree::Ident(_)) = tokens.get(at + 3) else {
                        break;
                    };
                    at += 3;
                    path.push(name(&tokens[at]));
                }
                if can_start(&tokens, start) {
                    match tokens.get(at + 3) {
                        Some(TokenTree::Group(group))
                            if is_separator(&tokens, at + 1)
                                && group.delimiter() == Delimiter::Brace =>
                        {
                            at += 3;
                            collect(&group.stream(), &path, found);
                        }
                        _ if path.len() == 1 && is_field(&tokens, at) => {}
                        _ => found.push(path),
                    }
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether the name there starts a path: it is no field or method, lifetime, macro variable or
/// continuation of another path.
fn can_start(tokens: &[TokenTree], at: usize) -> bool {
    let is = |back: usize, sign| at >= back && is_sign(tokens, at - back, sign);
    let is_range = is(1, '.') && is(2, '.');
    let is_macro_variable = is(1, '$') && name(&tokens[at]) != "crate";
    let is_continuation = is(1, ':') && is(2, ':');
    !(is(1, '.') && !is_range || is(1, '\'') || is_macro_variable || is_continuation)
}

/// Whether `:` follows and not `::`: the name of a field or a parameter.
fn is_field(tokens: &[TokenTree], at: usize) -> bool {
    is_sign(tokens, at + 1, ':') && !is_sign(tokens, at + 2, ':')
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_sign(tokens, at, ':') && is_sign(tokens, at + 1, ':')
}

fn is_sign(tokens: &[TokenTree], at: usize, sign: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn name(token: &TokenTree) -> String {
    token.to_string().trim_start_matches("r#").to_owned()
}
