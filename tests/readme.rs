//! The README shows what the tool does.

use std::fs;

use posenc_encodings::laws::LawName;
use posenc_encodings::words::Word;
use posenc_tests::binary;
use posenc_tests::shared::root;

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// The lines of the README's fenced block in that language that contains `part`.
fn block(language: &str, part: &str) -> Vec<String> {
    let text = readme();
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1);
    let mut blocks = blocks.filter_map(|b| b.split("```").next());
    let found = blocks.find(|b| b.contains(part));
    let found = found.unwrap_or_else(|| panic!("no {language} block with {part}"));
    found.lines().map(str::to_owned).collect()
}

#[test]
fn the_first_command_writes_a_model() {
    let lines = block("sh", "cargo run");
    let arguments = lines[0].strip_prefix("cargo run --release -- ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.onnx");
    let out_text = out.display().to_string();
    let ran = binary::run(arguments.split(' ').chain(["-o", &out_text]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(out.is_file());
    assert_eq!(lines[1], "cargo xtask test");
}

#[test]
fn every_line_of_the_diff_is_what_the_tool_prints() {
    let text = readme();
    let command = text.split('`').find(|part| part.starts_with("rewrite "));
    let arguments = command.expect("the README names the command").split(' ');
    let ran = binary::run(arguments.chain(["--dry-run"]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let printed: Vec<&str> = ran.stdout.lines().collect();
    let block_lines = block("diff", "+++");
    for line in &block_lines {
        assert!(printed.contains(&&line[..]), "{line}");
    }
    // Only context and the metadata entry are left out.
    let changed = printed.iter().filter(|l| l.starts_with(['+', '-']));
    let left_out: Vec<&&str> = changed
        .filter(|l| !block_lines.contains(&(**l).to_owned()))
        .collect();
    assert_eq!(left_out.len(), 3, "{left_out:#?}");
}

#[test]
fn the_inspection_is_what_the_tool_prints() {
    let text = readme();
    let command = text
        .split('`')
        .find(|part| part.starts_with("inspect fixtures"));
    let ran = binary::run(command.expect("the README names the command").split(' '));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let block_lines = block("text", "Encodings").join("\n");
    assert!(
        ran.stdout.trim_end().ends_with(&block_lines),
        "{}",
        ran.stdout
    );
}

#[test]
fn every_scaling_of_rope_has_a_row() {
    let text = readme();
    let rows: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    for scale in LawName::ALL.iter().map(|law| law.name()) {
        let cell = format!("| `--scale {scale}` |");
        assert!(rows.iter().any(|row| row.contains(&cell)), "{scale}");
    }
}

#[test]
fn the_documents_keep_their_length() {
    for (file, most) in [("README.md", 125), ("ARCHITECTURE.md", 200)] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.lines().count() <= most, "{file}");
    }
}
