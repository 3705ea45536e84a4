//! `posenc.toml`: the models of a project, their rewrites and what they may differ by.
//!
//! ```toml
//! [verify]
//! provider = ["tract", "cpu"]
//! lengths = [1, 64, 128]
//!
//! [[model]]
//! path = "llama.onnx"
//!
//! [[model.rewrite]]
//! output = "llama.yarn.onnx"
//! scale = "yarn"
//! factor = 4
//! ```

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use clap::{ArgAction, Command, CommandFactory, Parser};
use posenc_onnx::verify::{Bisect, VerifyOptions};
use posenc_runtime::Fallback;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::runtimes::Runtimes;
use crate::backend::Choice;
use crate::exit::Failure;
use crate::{model, rewrite, value};

/// The file that `--all` reads.
pub(super) const FILE: &str = "posenc.toml";

/// A project.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Project {
    /// What holds for every model that says nothing else.
    #[serde(default)]
    pub(super) verify: Settings,
    /// The models.
    #[serde(default, rename = "model")]
    pub(super) models: Vec<Entry>,
}

/// How models are run, and what they may differ by.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// Where to run, as `--provider` takes it.
    #[serde(default, deserialize_with = "choices")]
    pub(super) provider: Vec<Choice>,
    #[serde(default)]
    pub(super) no_fallback: bool,
    #[serde(default, deserialize_with = "lengths")]
    pub(super) lengths: Vec<usize>,
    #[serde(default, deserialize_with = "tolerance")]
    pub(super) atol: Option<f64>,
    #[serde(default, deserialize_with = "tolerance")]
    pub(super) rtol: Option<f64>,
}

/// Lengths as the flag takes them.
fn lengths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    let numbers = Vec::<i64>::deserialize(from)?;
    let counted = numbers.iter().map(|n| value::count(&n.to_string()));
    counted.collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// A tolerance as the flag takes it.
fn tolerance<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(from)?;
    let number = value::not_negative(&number.to_string());
    number.map(Some).map_err(D::Error::custom)
}

/// Providers by their names.
fn choices<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Choice>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    let choice = |word: &String| word.parse().map_err(D::Error::custom);
    words.iter().map(choice).collect()
}

impl Settings {
    /// The same with what flags say instead.
    pub(super) fn or(self, flags: Self) -> Self {
        let first = |a: Vec<Choice>, b: Vec<Choice>| if a.is_empty() { b } else { a };
        Self {
            provider: first(flags.provider, self.provider),
            no_fallback: flags.no_fallback || self.no_fallback,
            lengths: if flags.lengths.is_empty() {
                self.lengths
            } else {
                flags.lengths
            },
            atol: flags.atol.or(self.atol),
            rtol: flags.rtol.or(self.rtol),
        }
    }
}

impl Settings {
    /// The options of the library.
    pub(super) fn options(&self, runtimes: &Runtimes, bisect: Bisect) -> VerifyOptions {
        VerifyOptions {
            providers: runtimes.providers.clone(),
            fallback: if self.no_fallback {
                Fallback::Refused
            } else {
                Fallback::Allowed
            },
            lengths: self.lengths.clone(),
            atol: self.atol,
            rtol: self.rtol,
            bisect,
            ..VerifyOptions::default()
        }
    }
}

/// A model, and what it is rewritten to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// What holds for this model and its rewrites instead.
    pub(super) verify: Option<Settings>,
    /// Flags of `rewrite` by their names, `output`, and `verify` with settings of its own.
    #[serde(default)]
    rewrite: Vec<Table>,
}

/// The keys of a rewrite that are no flags.
const OWN: [&str; 2] = ["output", "verify"];

/// A rewrite of a model.
pub(super) struct Wanted {
    /// The file, which is compared where it exists.
    pub(super) output: PathBuf,
    /// What is asked for.
    pub(super) args: rewrite::Args,
    /// What holds for this rewrite instead.
    pub(super) verify: Option<Settings>,
}

impl Project {
    /// Reads the file of this folder.
    pub(super) fn read() -> anyhow::Result<Self> {
        let path = Path::new(FILE);
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::usage(
                "is not in this folder; run --all where it is, or write it (verify --help says what it contains)",
            ),
            _ => Failure::usage(e.to_string()),
        });
        let text = model::named(path, text)?;
        let read = toml::from_str(&text).map_err(|e| Failure::usage(in_words(&e, &text)));
        let read: Self = model::named(path, read)?;
        if read.models.is_empty() {
            let none = Failure::usage("no [[model]] is given");
            return model::named(path, Err(none));
        }
        Ok(read)
    }

    /// The files of all models and rewrites.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.models.iter().flat_map(|entry| {
            let outputs = entry
                .rewrite
                .iter()
                .filter_map(|table| table.get("output")?.as_str());
            std::iter::once(&*entry.path).chain(outputs.map(Path::new))
        })
    }
}

/// What is wrong with a file, and in which line. Keys are quoted, since names in backticks stand for flags.
fn in_words(error: &toml::de::Error, text: &str) -> String {
    let why = error.message().replace('`', "\"");
    let before = error.span().and_then(|at| text.get(..at.start));
    match before.map(|before| before.matches('\n').count() + 1) {
        Some(line) => format!("line {line}: {why}"),
        None => why,
    }
}

/// Whether two paths are one, however they are spelled.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    spelled(a) == spelled(b)
}

/// A path of this folder without `.`, and without a folder that is left at once.
fn spelled(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path);
    let mut plain = PathBuf::new();
    for part in absolute.as_deref().unwrap_or(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

impl Entry {
    /// The rewrites of this model.
    pub(super) fn rewrites(&self) -> anyhow::Result<Vec<Wanted>> {
        let all = self.rewrite.iter().map(|table| self.wanted(table));
        all.map(|wanted| model::named(Path::new(FILE), wanted))
            .collect()
    }

    fn wanted(&self, table: &Table) -> Result<Wanted, Failure> {
        let of = self.path.display();
        let output = table.get("output").and_then(Value::as_str);
        let output = output.filter(|path| !path.is_empty());
        let output = output.map(PathBuf::from).ok_or_else(|| {
            Failure::usage(format!(
                "a rewrite of {of} has no output, the path of its file"
            ))
        })?;
        let verify = table.get("verify").cloned().map(Settings::deserialize);
        let verify = verify.transpose().map_err(|error| {
            let error = error.to_string();
            Failure::usage(format!("verify of a rewrite of {of}: {}", error.trim_end()))
        })?;
        let command = Line::command();
        let mut line = vec!["rewrite".to_owned()];
        for (key, value) in table.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
            let flags = flags(&command, key, value);
            let wrong = |why: &str| Failure::usage(format!("{key} of a rewrite of {of} {why}"));
            line.extend(flags.map_err(wrong)?);
        }
        line.extend(["--".to_owned(), self.path.display().to_string()]);
        let parsed = Line::try_parse_from(line).map_err(|error| {
            // The first line says what is wrong, the others how the command is used.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Failure::usage(format!("a rewrite of {of}: {first}"))
        })?;
        if let Some(flag) = parsed.args.beside_the_rewrite() {
            let why =
                format!("{flag} of a rewrite of {of} does not say what it makes: leave it out");
            return Err(Failure::usage(why));
        }
        Ok(Wanted {
            output,
            args: parsed.args,
            verify,
        })
    }
}

/// A key and its value as flags of the command line.
///
/// # Errors
/// With what is wrong with them.
fn flags(command: &Command, key: &str, value: &Value) -> Result<Vec<String>, &'static str> {
    let mut known = command.get_arguments();
    let known = known.find(|flag| flag.get_long() == Some(key));
    let known = known.ok_or("is no flag of rewrite")?;
    let flag = |word: String| format!("--{key}={word}");
    let wrong = "is no number, word or list of them";
    Ok(match (known.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(true)) => vec![format!("--{key}")],
        (ArgAction::SetTrue, Value::Boolean(false)) => vec![],
        (ArgAction::SetTrue, _) => return Err("is either true or false"),
        (ArgAction::Append, Value::Array(all)) => {
            let words = all.iter().map(|one| word(one).map(flag));
            words.collect::<Option<_>>().ok_or(wrong)?
        }
        _ => vec![flag(word(value).ok_or(wrong)?)],
    })
}

fn word(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Boolean(is_so) => is_so.to_string(),
        Value::Array(all) => {
            let all: Option<Vec<String>> = all.iter().map(word).collect();
            all?.join(",")
        }
        _ => return None,
    })
}

/// `rewrite` as a command of its own.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: rewrite::Args,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_its_line_and_names_keys_as_the_file_has_them() {
        let text =
            "[verify]\n\n[[model]]\npath = \"a.onnx\"\n\n[[model.rewrit]]\noutput = \"b.onnx\"\n";
        let error = toml::from_str::<Project>(text).unwrap_err();
        let why =
            "line 6: unknown field \"rewrit\", expected one of \"path\", \"verify\", \"rewrite\"";
        assert_eq!(in_words(&error, text), why);
    }
}
