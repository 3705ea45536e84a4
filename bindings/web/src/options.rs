//! What the form of the page offers: the options of a rewrite as data.

use posenc_cli::steps::keywords::{self, Keyword, Of, Takes};
use serde_json::{Value, json};

use crate::problem::label;

/// Every option: its name and label, what it takes, what it means, its default, and the laws or families
/// that have it (empty for those of all requests).
pub fn options() -> Value {
    let option = |keyword: Keyword| {
        let (takes, words) = takes(&keyword.takes);
        let (laws, families) = match keyword.of {
            Of::Any => (vec![], vec![]),
            Of::Laws(words) => (words, vec![]),
            Of::Families(words) => (vec![], words),
        };
        json!({
            "label": label(&keyword.name),
            "name": keyword.name,
            "takes": takes,
            "words": words,
            "help": keyword.help,
            "default": keyword.default,
            "laws": laws,
            "families": families,
        })
    };
    keywords::all().into_iter().map(option).collect()
}

fn takes(takes: &Takes) -> (&'static str, &[[&'static str; 2]]) {
    match takes {
        Takes::Words(words) => ("word", words),
        Takes::Roles(words) => ("roles", words),
        Takes::Number => ("number", &[]),
        Takes::Count => ("count", &[]),
        Takes::Numbers => ("numbers", &[]),
        Takes::Switch => ("switch", &[]),
        Takes::Bool => ("bool", &[]),
        Takes::Size | Takes::Layers => ("text", &[]),
        Takes::Config | Takes::Params => ("file", &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_has_the_parameters_of_laws_and_families() {
        let all = options();
        let named = |name: &str| {
            let mut all = all.as_array().unwrap().iter();
            all.find(|option| option["name"] == name).cloned()
        };
        let beta = named("beta_fast").unwrap();
        assert_eq!(beta["label"], "beta fast");
        assert_eq!(
            (&beta["takes"], &beta["laws"]),
            (&json!("number"), &json!(["yarn"]))
        );
        let slopes = named("slopes").unwrap();
        assert_eq!(slopes["families"], json!(["alibi"]));
        let scale = named("scale").unwrap();
        assert!(scale["words"].to_string().contains("yarn"), "{scale}");
        assert_eq!(named("no_such_option"), None);
    }
}
