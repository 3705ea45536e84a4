//! Keywords of Python as a request: every option of `rewrite`, under the name of its flag with
//! underscores.
//!
//! Parameters of laws and families come from their declarations; what else a request has, and how it
//! is spelled as a keyword, is in one table.

use anyhow::Result;
use posenc_cli::steps::Failure;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::param::{Param, Values};
use posenc_encodings::words::Word;
use posenc_encodings::{families, laws};
use posenc_onnx::request::{InputRole, Request, ScaleType, TablePrecision, Target};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};

/// An option that is a field of a request.
struct Field {
    /// The keyword.
    name: &'static str,
    /// The place in the JSON of a request.
    path: &'static [&'static str],
    /// The word that stands for true, where the keyword is true or false and the field is no boolean.
    on: Option<&'static str>,
    /// Its type in Python.
    of: fn() -> String,
    help: &'static str,
}

const fn field(
    name: &'static str,
    path: &'static [&'static str],
    of: fn() -> String,
    help: &'static str,
) -> Field {
    Field {
        name,
        path,
        on: None,
        of,
        help,
    }
}

const FIELDS: &[Field] = &[
    field(
        "to",
        &["to"],
        || words(Kind::targets()),
        "Encoding afterwards; the one found where left out",
    ),
    field(
        "scale",
        &["scale"],
        all::<ScaleType>,
        "How the encoding is stretched",
    ),
    field(
        "hf_config",
        &["hf_config"],
        || "Config".into(),
        "Hugging Face config that the graph is to follow",
    ),
    field(
        "model_config",
        &["model_config"],
        || "Config".into(),
        "Config of the model as it is; the `config.json` next to its file where left out",
    ),
    field(
        "params",
        &["params"],
        || "Params".into(),
        "Learned values: arrays by name, or a safetensors file",
    ),
    field(
        "layers",
        &["layers"],
        || "Layers".into(),
        "Attention sites to work on, counted within their stack; all where left out",
    ),
    field(
        "stack",
        &["stack"],
        all::<Stack>,
        "Stack to work on; both where left out",
    ),
    field(
        "form",
        &["form"],
        all::<Form>,
        "Operators that rotations consist of afterwards; as they are where left out",
    ),
    field(
        "target",
        &["target"],
        all::<Target>,
        "Runtime that has to run the result; none is checked where left out",
    ),
    field(
        "input_role",
        &["input_roles"],
        || format!("Mapping[str, {}]", all::<InputRole>()),
        "Roles of inputs that cannot be inferred, by name",
    ),
    field(
        "factor",
        &["parameters", "factor"],
        || "float".into(),
        "Context extension; maximum ÷ original length where left out, else 4 (Llama 3: 8)",
    ),
    field(
        "original_length",
        &["parameters", "original_length"],
        || "int".into(),
        "Length that the model was trained on, before any scaling, in tokens",
    ),
    field(
        "max_length",
        &["parameters", "max_length"],
        || "int".into(),
        "Length that tables, caches and buffers must hold, in tokens; never a parameter of a formula",
    ),
    field(
        "theta",
        &["parameters", "theta"],
        || "float".into(),
        "Base θ of the frequencies",
    ),
    field(
        "rotary_dim",
        &["parameters", "rotary_dim"],
        || "int".into(),
        "Elements of a head that rotate",
    ),
    field(
        "layout",
        &["parameters", "layout"],
        all::<Layout>,
        "Pairs of RoPE, or the order within a sinusoidal row",
    ),
    field(
        "image_size",
        &["parameters", "image_size"],
        || "ImageSize".into(),
        "Image size in pixels, height and width",
    ),
    Field {
        name: "align_corners",
        path: &["parameters", "corners"],
        on: Some("aligned"),
        of: || "bool".into(),
        help: "Interpolated tables: the first row and the last one stay, as align_corners does in PyTorch",
    },
    Field {
        name: "antialias",
        path: &["parameters", "antialias"],
        on: Some("on"),
        of: || "bool".into(),
        help: "Tables of patches: interpolate with antialiasing, as PyTorch does",
    },
    Field {
        name: "dynamic",
        path: &["parameters", "length"],
        on: Some("dynamic"),
        of: || "bool".into(),
        help: "Images of any height and width: the graph resizes its table of patches when it runs",
    },
    field(
        "table_precision",
        &["parameters", "table_precision"],
        all::<TablePrecision>,
        "Type in which tables are computed before they are stored",
    ),
    field(
        "seed",
        &["parameters", "seed"],
        || "int".into(),
        "Seed of tables that are filled at random",
    ),
    field(
        "add_position_ids",
        &["allowances", "add_position_ids"],
        || "bool".into(),
        "Add an input with position ids",
    ),
    field(
        "allow_rescale",
        &["allowances", "allow_rescale"],
        || "bool".into(),
        "Scale what is already scaled, or undo a scaling",
    ),
    field(
        "allow_unread",
        &["allowances", "allow_unread"],
        || "bool".into(),
        "Rewrite a model of which something was not read; the output records what",
    ),
    field(
        "write_config",
        &["allowances", "write_config"],
        || "bool".into(),
        "Write the `config.json` that matches the result next to it when it is saved",
    ),
    field(
        "sort",
        &["allowances", "sort"],
        || "bool".into(),
        "Write nodes in an order of computation, where the input does not",
    ),
];

/// A place in the JSON of a request.
enum Place {
    Field(&'static Field),
    Law,
    Family,
}

fn place(name: &str) -> Option<Place> {
    let field = FIELDS.iter().find(|field| field.name == name);
    let of_family = || family_params().any(|param| param.key() == name);
    match field {
        Some(field) => Some(Place::Field(field)),
        None if of_laws(name) => Some(Place::Law),
        None => of_family().then_some(Place::Family),
    }
}

/// Whether a keyword is a parameter of a law of RoPE.
fn of_laws(name: &str) -> bool {
    law_params().any(|param| param.key() == name)
}

/// The parameters of laws that are no fields of a request.
fn law_params() -> impl Iterator<Item = &'static Param> {
    let all = laws::params().into_iter().map(|(param, _)| param);
    all.filter(|param| FIELDS.iter().all(|field| field.name != param.key()))
}

/// The parameters of families; several families may share a name.
fn family_params() -> impl Iterator<Item = &'static Param> {
    let all = families::all().flat_map(|family| family.params);
    all.filter(|param| FIELDS.iter().all(|field| field.name != param.key()))
}

/// The request of a JSON object with a member for each keyword.
///
/// # Errors
/// With the first keyword that has another value than it takes. That every keyword is known is for
/// the caller to check.
pub(crate) fn request(keywords: &str) -> Result<Request> {
    let wrong = |name: &str, why: String| Failure::usage(format!("`{name}`: {why}"));
    let keywords: Map<String, Value> = serde_json::from_str(keywords)?;
    let mut all = json!({});
    for (name, value) in keywords {
        let path: Vec<&str> = match place(&name) {
            Some(Place::Field(field)) => match (field.on, value.as_bool()) {
                (Some(_), Some(false)) => continue,
                (Some(on), Some(true)) => {
                    put(&mut all, field.path, json!(on));
                    continue;
                }
                (Some(_), None) => {
                    let why = "it is either true or false".to_owned();
                    return Err(wrong(&name, why).into());
                }
                (None, _) => field.path.to_vec(),
            },
            Some(Place::Law) => vec!["parameters", "law", &name],
            Some(Place::Family) => vec!["parameters", "family", &name],
            None => return Err(wrong(&name, "there is no such keyword".to_owned()).into()),
        };
        // Alone first, so that an error names it.
        let mut alone = json!({});
        put(&mut alone, &path, value.clone());
        if let Err(why) = serde_json::from_value::<Request>(alone) {
            return Err(wrong(&name, why.to_string()).into());
        }
        put(&mut all, &path, value);
    }
    Ok(serde_json::from_value(all)?)
}

/// Puts a value at a place in nested objects.
fn put(object: &mut Value, path: &[&str], value: Value) {
    let place = path.iter().fold(object, |place, key| &mut place[*key]);
    *place = value;
}

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
    let fields = FIELDS.iter().map(|field| {
        let name = field.name.to_owned();
        let of_table = OF_TABLES.contains(&field.name);
        (name, (field.of)(), field.help.to_owned(), of_table)
    });
    let mut all: Vec<_> = fields.collect();
    for param in law_params().chain(family_params()) {
        if all.iter().any(|(name, ..)| *name == param.key()) {
            continue;
        }
        let of = match param.values {
            Values::Positive | Values::NotNegative => "float".to_owned(),
            Values::Count => "int".to_owned(),
            Values::Numbers => "Numbers".to_owned(),
            Values::Switch | Values::Bool => "bool".to_owned(),
            Values::Word(words) => literal(words),
        };
        let key = param.key();
        let of_table = of_laws(&key);
        all.push((key, of, param.help.to_owned(), of_table));
    }
    all
}

/// The words of a type, as a type of Python.
fn all<T: Word>() -> String {
    words(T::ALL.iter().copied())
}

fn words<T: Word>(words: impl Iterator<Item = T>) -> String {
    literal(&words.map(Word::name).collect::<Vec<_>>())
}

fn literal(words: &[&str]) -> String {
    format!("Literal[\"{}\"]", words.join("\", \""))
}

/// A sentence in which parameters and flags are written as keywords.
///
/// The library names them `` `max-length` ``, the command line `--max-length`.
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
    let names = options().into_iter().map(|(name, ..)| name);
    let mut names: Vec<String> = names.chain(own.map(str::to_owned)).collect();
    // `--max-length` before `--max`.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = output_as_keyword(sentence);
    for name in names {
        let hyphens = name.replace('_', "-");
        let keyword = format!("`{name}`");
        text = text.replace(&format!("`{hyphens}`"), &keyword);
        text = text.replace(&format!("--{hyphens}"), &keyword);
    }
    text
}

/// A sentence in which the flag `-o`, which is a word of its own, is the argument of `save`.
fn output_as_keyword(sentence: &str) -> String {
    let word = |word: &str| match word.trim_end_matches([',', ';']) {
        "-o" => word.replace("-o", "`path`"),
        _ => word.to_owned(),
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
