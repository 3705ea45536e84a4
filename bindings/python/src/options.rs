//! Keywords of Python: the options of a request with their types in Python.

use posenc_cli::steps::keywords::{self, Keyword, Of, Takes};
use pyo3::prelude::*;

/// The keywords that a table of frequencies takes, besides the parameters of laws.
const OF_TABLES: [&str; 6] = [
    "scale",
    "factor",
    "original_length",
    "max_length",
    "theta",
    "rotary_dim",
];

/// Every keyword of a request: its name, its type in Python, what it means, and whether `table` takes
/// it too.
#[pyfunction]
pub(crate) fn options() -> Vec<(String, String, String, bool)> {
    let option = |keyword: Keyword| {
        let of_laws = matches!(keyword.of, Of::Laws(_));
        let of_table = of_laws || OF_TABLES.contains(&keyword.name.as_str());
        (keyword.name, of(&keyword.takes), keyword.help, of_table)
    };
    keywords::all().into_iter().map(option).collect()
}

/// The type of values in Python.
fn of(takes: &Takes) -> String {
    let name = match takes {
        Takes::Words(words) => return literal(words),
        Takes::Roles(words) => return format!("Mapping[str, {}]", literal(words)),
        Takes::Number => "float",
        Takes::Count => "int",
        Takes::Numbers => "Numbers",
        Takes::Switch | Takes::Bool => "bool",
        Takes::Size => "ImageSize",
        Takes::Layers => "Layers",
        Takes::Config => "Config",
        Takes::Params => "Params",
    };
    name.to_owned()
}

fn literal(words: &[[&str; 2]]) -> String {
    let words: Vec<&str> = words.iter().map(|[word, _]| *word).collect();
    format!("Literal[\"{}\"]", words.join("\", \""))
}

/// A sentence in which parameters and flags are written as keywords.
pub(crate) fn as_keywords(sentence: &str) -> String {
    let own = [
        "external_data",
        "in_place",
        "no_fallback",
        "lengths",
        "inputs",
        "layer",
        "head_dim",
    ];
    let sentence = output_as_keyword(sentence);
    keywords::respelled(&sentence, &own, |name| format!("`{name}`"))
}

/// A sentence in which the flag `-o`, which is a word of its own, is the argument of `save`.
fn output_as_keyword(sentence: &str) -> String {
    let word = |word: &str| match word.trim_end_matches([',', ';']) {
        "-o" => word.replace("-o", "`path`"),
        _ => word.to_owned(),
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
