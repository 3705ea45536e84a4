//! `diff`: the differences between two models.

use std::path::{Path, PathBuf};

use posenc_ir::Model;
use posenc_ir::diff::{Change, Delta, Diff, Entry, Part};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::model;
use crate::rewrite::diff::diff;
use crate::terminal::Terminal;

/// Show what changed from one model to another, independent of names
///
/// Nodes and inner values are matched by structure: their names and the order of nodes and
/// initializers are ignored. Names and order of inputs and outputs are compared. The model's
/// producer_name, producer_version, domain, model_version and doc_string are ignored. The text is a
/// unified diff in the ONNX text syntax, in which B is printed with A's names.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model before
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Model after
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Print the differences as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx diff model.onnx long.onnx
  posenc-onnx diff model.onnx long.onnx --json | jq '.nodes.added[].text'

JSON:
  {\"schema\": 1, \"equal\": BOOL, \"a\": PATH, \"b\": PATH,
   \"nodes\": DELTA, \"initializers\": DELTA, \"inputs\": DELTA, \"outputs\": DELTA, \"functions\": DELTA,
   \"order\": [ENTRY], \"opsets\": [ENTRY], \"metadata\": [ENTRY], \"model\": [ENTRY]}
  DELTA  {\"added\": [PART], \"removed\": [PART],
          \"changed\": [{\"what\": [\"attributes\", …], \"a\": PART, \"b\": PART}]}
  PART   {\"place\": NAME, \"text\": LINE, \"read_by\": [PLACE]}   read_by: added and removed nodes only
  ENTRY  {\"key\": KEY, \"a\": VALUE OR null, \"b\": VALUE OR null}
  what: attributes inputs outputs body type name value

Exit codes:
  0  the models are equal except for names
  1  they differ
  3  a model cannot be read or is invalid";

/// Compares and prints.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let (a, b) = (open(&args.a, terminal)?, open(&args.b, terminal)?);
    let found = Diff::between(&a, &b)?;
    let names = [&args.a, &args.b].map(|p| p.display().to_string());
    if args.json {
        terminal.print_json(&report(&found, &names))?;
    } else if !found.is_empty() {
        let [before, after] = found.texts(&a, &b);
        let [from, to] = &names;
        terminal.print(diff(&before, &after, [from, to], terminal.out))?;
        terminal.note(summary(&found));
    }
    Ok(if found.is_empty() {
        Exit::Done
    } else {
        Exit::Difference
    })
}

/// Reads and checks a model; warns about unusual properties and about data that cannot be compared.
fn open(path: &Path, terminal: &Terminal) -> anyhow::Result<Model> {
    if path.is_dir() {
        let why = "is a folder, and models are compared one by one; give a model of it";
        return model::named(path, Err(Failure::usage(why)));
    }
    let (model, warnings) = model::open_checked(path)?;
    model::warn(terminal, path, &warnings);
    let absent = model::absence(path, &model)?;
    let absent = absent.map(|absent| format!("{absent} (compared by location only)"));
    model::warn(terminal, path, absent.as_slice());
    Ok(model)
}

fn report(found: &Diff, [a, b]: &[String; 2]) -> Value {
    json!({
        "schema": 1,
        "equal": found.is_empty(),
        "a": a,
        "b": b,
        "nodes": delta(&found.nodes, true),
        "initializers": delta(&found.initializers, false),
        "inputs": delta(&found.inputs, false),
        "outputs": delta(&found.outputs, false),
        "functions": delta(&found.functions, false),
        "order": entries(&found.order),
        "opsets": entries(&found.opsets),
        "metadata": entries(&found.metadata),
        "model": entries(&found.model),
    })
}

fn delta(delta: &Delta<Part>, readers: bool) -> Value {
    let with_readers = |p: &Part| {
        let mut value = part(p);
        if readers {
            value["read_by"] = json!(p.read_by);
        }
        value
    };
    let change = |c: &Change<Part>| {
        let what: Vec<&str> = c.what.iter().map(|w| w.word()).collect();
        json!({"what": what, "a": part(&c.a), "b": part(&c.b)})
    };
    json!({
        "added": delta.added.iter().map(with_readers).collect::<Vec<_>>(),
        "removed": delta.removed.iter().map(with_readers).collect::<Vec<_>>(),
        "changed": delta.changed.iter().map(change).collect::<Vec<_>>(),
    })
}

fn part(part: &Part) -> Value {
    json!({"place": part.place, "text": part.text})
}

fn entries(entries: &[Entry]) -> Value {
    let entry = |e: &Entry| json!({"key": e.key, "a": e.a, "b": e.b});
    entries.iter().map(entry).collect()
}

/// `nodes: 2 added, 1 changed; metadata: 1 changed`
fn summary(found: &Diff) -> String {
    let deltas = [
        ("nodes", &found.nodes),
        ("initializers", &found.initializers),
        ("inputs", &found.inputs),
        ("outputs", &found.outputs),
        ("functions", &found.functions),
    ];
    let entries = [
        ("order", &found.order),
        ("operator sets", &found.opsets),
        ("metadata", &found.metadata),
        ("model", &found.model),
    ];
    let count = |entries: &[Entry]| {
        let is = |a: bool, b: bool| {
            let has = |e: &&Entry| e.a.is_some() == a && e.b.is_some() == b;
            entries.iter().filter(has).count()
        };
        [is(false, true), is(true, false), is(true, true)]
    };
    let parts = deltas
        .map(|(name, d)| (name, [d.added.len(), d.removed.len(), d.changed.len()]))
        .into_iter()
        .chain(entries.map(|(name, e)| (name, count(e))));
    let mut sentences = vec![];
    for (name, counts) in parts {
        let words = ["added", "removed", "changed"].into_iter().zip(counts);
        let words: Vec<String> = words
            .filter(|(_, n)| *n > 0)
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        if !words.is_empty() {
            sentences.push(format!("{name}: {}", words.join(", ")));
        }
    }
    sentences.join("; ")
}
