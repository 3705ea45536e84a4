//! Every command that the help, README.md and docs/ show runs and ends as documented.

use std::fs;
use std::path::{Path, PathBuf};

use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::Fixture;
use posenc_tests::safetensors;
use posenc_tests::shared::root;
use serde_json::Value;
use tempfile::TempDir;

/// A command line in the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Example {
    /// Where it is documented.
    source: String,
    line: String,
}

impl Example {
    fn new(source: &str, line: &str) -> Self {
        let (source, line) = (source.to_owned(), line.trim().to_owned());
        Self { source, line }
    }
}

/// The examples of README.md, of docs/ and of the help of every subcommand.
fn examples() -> Vec<Example> {
    let mut found = vec![];
    for path in pages() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        found.extend(in_page(&text).iter().map(|line| Example::new(&name, line)));
    }
    let mut helps = vec![vec!["--help".to_owned()]];
    helps.extend(subcommands().map(|name| vec!["help".to_owned(), name]));
    for arguments in helps {
        let help = binary::run(&arguments);
        assert_eq!(help.code, 0, "{arguments:?}: {}", help.stderr);
        let source = format!("posenc-onnx {}", arguments.join(" "));
        let lines = in_help(&help.stdout);
        assert!(!lines.is_empty(), "{source} shows no example");
        found.extend(lines.iter().map(|line| Example::new(&source, line)));
    }
    found
}

fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    pages.push(root().join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages
}

/// The commands in the blocks and in the running text of a Markdown page, without comments.
fn in_page(text: &str) -> Vec<String> {
    let mut found = vec![];
    for (i, part) in text.split("```").enumerate() {
        let is_block = i % 2 == 1;
        let candidates: Vec<&str> = if is_block {
            part.lines().collect()
        } else {
            part.split('`').skip(1).step_by(2).collect()
        };
        for candidate in candidates {
            let line = candidate.strip_prefix("$ ").unwrap_or(candidate);
            if line.starts_with("posenc-onnx ") {
                let command = line.split(" #").next().unwrap_or(line);
                found.push(command.trim().to_owned());
            }
        }
    }
    found
}

/// The commands under `Examples:` in a help text.
fn in_help(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1);
    let section = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let commands = section.filter(|line| line.contains("posenc-onnx "));
    commands.map(|line| line.trim().to_owned()).collect()
}

/// The subcommands that the help lists.
fn subcommands() -> impl Iterator<Item = String> {
    let help = binary::run(["--help"]).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 5, "{names:?}");
    names.into_iter()
}

/// A folder with every file that an example names.
fn workplace(line: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let copy = |fixture: &str, name: &str| {
        fs::copy(Fixture::named(fixture).model(), at(name)).unwrap();
    };
    let model = Fixture::named("llama/dynamo");
    copy("llama/dynamo", "model.onnx");
    copy("llama/dynamo", "a.onnx");
    copy("llama/torchscript", "b.onnx");
    copy("bert/dynamo", "bert.onnx");
    copy("mini/rope", "small.onnx");
    let config = if line.contains("--hf-config") {
        model.oracle("yarn").config
    } else {
        model.config()
    };
    fs::write(at("config.json"), config.to_string()).unwrap();
    let heads = model.truth()["attention"]["heads"].as_u64().unwrap();
    let bias = at("bias.safetensors");
    safetensors::random(&bias, "relative_attention_bias", [32, heads]);
    if line.contains(" folder") {
        fs::create_dir_all(at("folder/onnx")).unwrap();
        copy("llama/dynamo", "folder/onnx/model.onnx");
        copy("llama/torchscript", "folder/b.onnx");
        fs::write(at("folder/config.json"), config.to_string()).unwrap();
    }
    if line.contains("folder-long") && !line.contains("-o folder-long") {
        let flags = "rewrite folder --scale yarn --factor 4 -o folder-long";
        let made = binary::run_in(folder.path(), &[], flags.split(' '));
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    if line.contains("--all") {
        fs::write(at("posenc.toml"), project()).unwrap();
    }
    let library = root().join(".onnxruntime");
    std::os::unix::fs::symlink(library, at(".onnxruntime")).unwrap();
    if !line.contains("-o long.onnx") {
        let flags = "rewrite model.onnx --scale yarn --factor 4 -o long.onnx";
        let made = binary::run_in(folder.path(), &[], flags.split(' '));
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    folder
}

/// The `posenc.toml` that the help of `verify` shows.
fn project() -> String {
    let help = binary::run(["help", "verify"]).stdout;
    let lines = help.lines().skip_while(|line| line.trim() != "[verify]");
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("  "));
    let lines: Vec<&str> = lines.map(str::trim).collect();
    assert!(lines.len() > 8, "{lines:?}");
    lines.join("\n")
}

/// What is wrong with how an example ends.
fn fault(line: &str) -> Result<(), String> {
    let folder = workplace(line);
    if let Some(commands) = line.strip_prefix("diff ") {
        // diff <(posenc-onnx …) <(posenc-onnx …)
        let mut commands = commands.split("<(").skip(1);
        return commands.try_for_each(|command| {
            let command = command.trim().trim_end_matches(')');
            ends_well(folder.path(), command).map(drop)
        });
    }
    let (command, consumer) = match line.split_once(" | ") {
        Some((command, consumer)) => (command, Some(consumer)),
        None => (line, None),
    };
    let (command, redirect) = match command.split_once(" > ") {
        Some((command, file)) => (command, Some(file)),
        None => (command, None),
    };
    let ran = ends_well(folder.path(), command.trim())?;
    if redirect.is_some() && ran.stdout.is_empty() {
        return Err("nothing is printed".into());
    }
    match consumer {
        None | Some("less") => Ok(()),
        Some(consumer) => {
            let filter = consumer.strip_prefix("jq '");
            let filter = filter.and_then(|filter| filter.strip_suffix('\''));
            let filter = filter.ok_or_else(|| format!("no test for `{consumer}`"))?;
            let report = serde_json::from_str(&ran.stdout).map_err(|e| e.to_string())?;
            select(&report, filter).map(drop)
        }
    }
}

/// Runs `[NAME=VALUE] posenc-onnx ARGUMENT …`.
fn ends_well(folder: &Path, command: &str) -> Result<Ran, String> {
    let (variable, arguments) = command
        .split_once("posenc-onnx ")
        .map_or((command, ""), |(variable, rest)| (variable.trim(), rest));
    // The path of an example is nobody's.
    let library = root().join(".onnxruntime/onnxruntime/capi");
    let library = library.display().to_string();
    let variables: &[(&str, &str)] = match variable.split_once('=') {
        None if variable.is_empty() => &[],
        Some(("ORT_DYLIB_PATH", _)) => &[("ORT_DYLIB_PATH", &library)],
        _ => return Err(format!("no test for `{variable}`")),
    };
    let words: Vec<&str> = arguments.split_whitespace().collect();
    // `diff` of models that differ.
    let want = i32::from(words.first() == Some(&"diff"));
    let ran = binary::run_in(folder, variables, words);
    if ran.code == want {
        Ok(ran)
    } else {
        Err(format!("exit {}: {}", ran.code, ran.stderr.trim()))
    }
}

/// The values that a filter of `jq` such as `.a.b[].c` selects; each step must exist.
fn select<'a>(value: &'a Value, filter: &str) -> Result<Vec<&'a Value>, String> {
    let mut found = vec![value];
    for step in filter.split('.').skip(1) {
        let name = step.trim_end_matches("[]");
        let members = found.iter().filter_map(|v| v.get(name));
        found = members.filter(|v| !v.is_null()).collect();
        if step.ends_with("[]") {
            let items = found.iter().filter_map(|v| v.as_array());
            found = items.flatten().collect();
        }
        if found.is_empty() {
            return Err(format!("{filter}: nothing is selected at {step}"));
        }
    }
    Ok(found)
}

#[test]
fn every_example_of_help_and_documents_ends_as_documented() {
    let examples = examples();
    assert!(examples.len() >= 30, "{} examples", examples.len());
    let mut bad = vec![];
    for Example { source, line } in &examples {
        if let Err(why) = fault(line) {
            bad.push(format!("{source}: {line}\n    {why}"));
        }
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}

#[test]
fn an_example_that_fails_is_noticed() {
    let cases = [
        ("posenc-onnx inspect absent.onnx", "absent.onnx"),
        ("posenc-onnx inspect model.onnx --no-such-flag", "exit 2"),
        (
            "posenc-onnx inspect model.onnx --json | jq '.encoding[].params'",
            "nothing is selected",
        ),
        (
            "posenc-onnx inspect model.onnx | jq '.encodings[].params'",
            "expected value",
        ),
        ("posenc-onnx inspect model.onnx | wc", "no test"),
        ("OTHER=1 posenc-onnx runtime", "no test"),
        ("posenc-onnx diff model.onnx model.onnx", "exit 0"),
        (
            "diff <(posenc-onnx print a.onnx) <(posenc-onnx print c.onnx)",
            "c.onnx",
        ),
    ];
    for (line, want) in cases {
        let why = fault(line).unwrap_err();
        assert!(why.contains(want), "{line}: {why}");
    }
}

#[test]
fn examples_are_found_in_pages_and_in_help() {
    let page = "Run `posenc-onnx runtime`, not `other`.\n\
                ```sh\n$ posenc-onnx inspect a.onnx   # see\nposenc-onnx print a.onnx\nls\n```\n";
    let want = [
        "posenc-onnx runtime",
        "posenc-onnx inspect a.onnx",
        "posenc-onnx print a.onnx",
    ];
    assert_eq!(in_page(page), want);
    let help = "Usage: posenc-onnx x\n\nExamples:\n  In words:\n    posenc-onnx x a\n\n  A=1 posenc-onnx x\n\
                Exit codes:\n  1  posenc-onnx found nothing\n";
    assert_eq!(in_help(help), ["posenc-onnx x a", "A=1 posenc-onnx x"]);
}
