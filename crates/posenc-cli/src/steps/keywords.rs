//! Options of a rewrite by name, for front ends without flags: every option of `rewrite`, under the
//! name of its flag with underscores, and the request that named values make.
//!
//! Parameters of laws and families come from their declarations; what else a request has, and how it
//! is spelled, is in one table.

use anyhow::Result;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::param::{Param, Values};
use posenc_encodings::words::Word;
use posenc_encodings::{families, laws};
use posenc_onnx::request::{InputRole, Request, ScaleType, TablePrecision, Target};
use serde_json::{Map, Value, json};

use crate::exit::Failure;

/// An option.
#[derive(Clone, Debug)]
pub struct Keyword {
    /// Its name.
    pub name: String,
    /// The values that it takes.
    pub takes: Takes,
    /// What it means, as a phrase without a full stop.
    pub help: String,
    /// The value where none is given, in words; empty where the help says it.
    pub default: &'static str,
    /// What it is for.
    pub of: Of,
}

/// What an option is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// Requests of several kinds.
    Any,
    /// These laws of RoPE, by their words.
    Laws(Vec<&'static str>),
    /// These families, by their words.
    Families(Vec<&'static str>),
}

/// The values of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One of these words.
    Words(Vec<[&'static str; 2]>),
    /// A number.
    Number,
    /// A whole number.
    Count,
    /// A list of numbers.
    Numbers,
    /// Given or not.
    Switch,
    /// True or false, where leaving it out is neither.
    Bool,
    /// Height and width.
    Size,
    /// Layers, as numbers and ranges.
    Layers,
    /// Names of inputs, each with one of these words.
    Roles(Vec<[&'static str; 2]>),
    /// A Hugging Face config.
    Config,
    /// Learned values.
    Params,
}

/// An option that is a field of a request.
struct Field {
    name: &'static str,
    /// The place in the JSON of a request.
    path: &'static [&'static str],
    /// The word that stands for true, where the option is true or false and the field is no boolean.
    on: Option<&'static str>,
    takes: fn() -> Takes,
    help: &'static str,
}

const fn field(
    name: &'static str,
    path: &'static [&'static str],
    takes: fn() -> Takes,
    help: &'static str,
) -> Field {
    Field {
        name,
        path,
        on: None,
        takes,
        help,
    }
}

const FIELDS: &[Field] = &[
    field(
        "to",
        &["to"],
        || Takes::Words(words(Kind::targets())),
        "Encoding afterwards; the one found where left out",
    ),
    field(
        "scale",
        &["scale"],
        words_of::<ScaleType>,
        "How the encoding is stretched",
    ),
    field(
        "hf_config",
        &["hf_config"],
        || Takes::Config,
        "Hugging Face config that the graph is to follow",
    ),
    field(
        "model_config",
        &["model_config"],
        || Takes::Config,
        "Config of the model as it is; the `config.json` next to its file where left out",
    ),
    field(
        "params",
        &["params"],
        || Takes::Params,
        "Learned values: arrays by name, or a safetensors file",
    ),
    field(
        "layers",
        &["layers"],
        || Takes::Layers,
        "Attention sites to work on, counted within their stack; all where left out",
    ),
    field(
        "stack",
        &["stack"],
        words_of::<Stack>,
        "Stack to work on; both where left out",
    ),
    field(
        "form",
        &["form"],
        words_of::<Form>,
        "Operators that rotations and fused T5 biases consist of afterwards; as they are where left out",
    ),
    field(
        "target",
        &["target"],
        words_of::<Target>,
        "Runtime that has to run the result; none is checked where left out",
    ),
    field(
        "input_role",
        &["input_roles"],
        || Takes::Roles(words(InputRole::ALL.iter().copied())),
        "Roles of inputs that cannot be inferred, by name",
    ),
    field(
        "factor",
        &["parameters", "factor"],
        || Takes::Number,
        "Context extension; maximum ÷ original length where left out, else 4 (Llama 3: 8)",
    ),
    field(
        "original_length",
        &["parameters", "original_length"],
        || Takes::Count,
        "Length that the model was trained on, before any scaling, in tokens",
    ),
    field(
        "max_length",
        &["parameters", "max_length"],
        || Takes::Count,
        "Length that tables, caches and buffers must hold, in tokens; never a parameter of a formula",
    ),
    field(
        "theta",
        &["parameters", "theta"],
        || Takes::Number,
        "Base θ of the frequencies",
    ),
    field(
        "rotary_dim",
        &["parameters", "rotary_dim"],
        || Takes::Count,
        "Elements of a head that rotate",
    ),
    field(
        "layout",
        &["parameters", "layout"],
        words_of::<Layout>,
        "Pairs of RoPE, or the order within a sinusoidal row",
    ),
    field(
        "image_size",
        &["parameters", "image_size"],
        || Takes::Size,
        "Image size in pixels, height and width",
    ),
    Field {
        name: "align_corners",
        path: &["parameters", "corners"],
        on: Some("aligned"),
        takes: || Takes::Switch,
        help: "Interpolated tables: the first row and the last one stay, as align_corners does in PyTorch",
    },
    Field {
        name: "antialias",
        path: &["parameters", "antialias"],
        on: Some("on"),
        takes: || Takes::Switch,
        help: "Tables of patches: interpolate with antialiasing, as PyTorch does",
    },
    Field {
        name: "dynamic",
        path: &["parameters", "length"],
        on: Some("dynamic"),
        takes: || Takes::Switch,
        help: "Images of any height and width: the graph resizes its table of patches when it runs",
    },
    field(
        "table_precision",
        &["parameters", "table_precision"],
        words_of::<TablePrecision>,
        "Type in which tables are computed before they are stored",
    ),
    field(
        "seed",
        &["parameters", "seed"],
        || Takes::Count,
        "Seed of tables that are filled at random",
    ),
    field(
        "add_position_ids",
        &["allowances", "add_position_ids"],
        || Takes::Switch,
        "Add an input with position ids",
    ),
    field(
        "allow_rescale",
        &["allowances", "allow_rescale"],
        || Takes::Switch,
        "Scale what is already scaled, or undo a scaling",
    ),
    field(
        "allow_unread",
        &["allowances", "allow_unread"],
        || Takes::Switch,
        "Rewrite a model of which something was not read; the output records what",
    ),
    field(
        "write_config",
        &["allowances", "write_config"],
        || Takes::Switch,
        "Write the `config.json` that matches the result next to it when it is saved",
    ),
    field(
        "sort",
        &["allowances", "sort"],
        || Takes::Switch,
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
pub fn request(keywords: &str) -> Result<Request> {
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

/// Every option of a request, those of requests of several kinds first.
pub fn all() -> Vec<Keyword> {
    let fields = FIELDS.iter().map(|field| Keyword {
        name: field.name.to_owned(),
        takes: (field.takes)(),
        help: field.help.to_owned(),
        default: "",
        of: Of::Any,
    });
    let mut all: Vec<Keyword> = fields.collect();
    for (param, laws) in laws::params() {
        add(
            &mut all,
            param,
            Of::Laws(laws.into_iter().map(Word::name).collect()),
        );
    }
    for family in families::all() {
        for param in family.params {
            add(&mut all, param, Of::Families(vec![family.word]));
        }
    }
    all
}

/// Adds the option of a parameter, or what it is for to the one that is there.
fn add(all: &mut Vec<Keyword>, param: &Param, of: Of) {
    let key = param.key();
    let known = all.iter_mut().find(|keyword| keyword.name == key);
    match (known.map(|keyword| &mut keyword.of), of) {
        (Some(Of::Families(all)), Of::Families(more)) => all.extend(more),
        (Some(_), _) => {}
        (None, of) => all.push(Keyword {
            takes: match param.values {
                Values::Positive | Values::NotNegative => Takes::Number,
                Values::Count => Takes::Count,
                Values::Numbers => Takes::Numbers,
                Values::Switch => Takes::Switch,
                Values::Bool => Takes::Bool,
                Values::Word(words) => Takes::Words(words.iter().map(|word| [*word, ""]).collect()),
            },
            name: key,
            help: param.help.to_owned(),
            default: param.default,
            of,
        }),
    }
}

/// The words of a type, each with what it means.
fn words_of<T: Word>() -> Takes {
    Takes::Words(words(T::ALL.iter().copied()))
}

fn words<T: Word>(words: impl Iterator<Item = T>) -> Vec<[&'static str; 2]> {
    words.map(|word| [word.name(), word.about()]).collect()
}

/// A sentence in which parameters and flags are written as the options of a front end: `spell` makes
/// the text from the name of an option. `more` are names of options besides those of a request.
///
/// The library names them `` `max-length` ``, the command line `--max-length`.
pub fn respelled(sentence: &str, more: &[&str], spell: impl Fn(&str) -> String) -> String {
    let names = all().into_iter().map(|keyword| keyword.name);
    let mut names: Vec<String> = names.chain(more.iter().map(|n| (*n).to_owned())).collect();
    // `--max-length` before `--max`.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = sentence.to_owned();
    for name in names {
        let hyphens = name.replace('_', "-");
        let spelled = spell(&name);
        text = text.replace(&format!("`{hyphens}`"), &spelled);
        text = text.replace(&format!("--{hyphens}"), &spelled);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_makes_a_request_and_an_unknown_one_does_not() {
        for keyword in all() {
            let value = match &keyword.takes {
                Takes::Words(words) => json!(words[0][0]),
                Takes::Number => json!(2.0),
                Takes::Count => json!(2),
                Takes::Numbers => json!([2.0]),
                Takes::Switch | Takes::Bool => json!(true),
                Takes::Size => json!("2x2"),
                Takes::Layers => json!("0-1"),
                Takes::Roles(words) => json!({"x": words[0][0]}),
                // Texts and files, which no keyword carries.
                Takes::Config | Takes::Params => continue,
            };
            let name = &keyword.name;
            let made = request(&json!({name: value}).to_string());
            assert_ne!(made.unwrap(), Request::default(), "{name}");
            let of_another_type = request(&json!({name: [[]]}).to_string());
            let error = of_another_type.unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}`: ")), "{error}");
        }
        let error = request(r#"{"hea": 2}"#).unwrap_err().to_string();
        assert_eq!(error, "`hea`: there is no such keyword");
    }

    #[test]
    fn options_are_named_as_the_front_end_spells_them() {
        let spelled = |sentence| respelled(sentence, &["lengths"], |name| format!("<{name}>"));
        assert_eq!(
            spelled("give `max-length` or --lengths, not --max"),
            "give <max_length> or <lengths>, not --max"
        );
    }
}
