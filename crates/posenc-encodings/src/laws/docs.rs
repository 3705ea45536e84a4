//! The table of laws in the documentation is what the laws say.

use super::LawName;
use crate::param::Param;
use crate::words::Word;

fn parameter(param: &Param) -> String {
    let notes = [("", param.unit), ("default: ", param.default)];
    let notes: Vec<String> = notes
        .into_iter()
        .filter(|(_, note)| !note.is_empty())
        .map(|(what, note)| format!("{what}{note}"))
        .collect();
    let notes = if notes.is_empty() {
        String::new()
    } else {
        format!(" ({})", notes.join("; "))
    };
    format!("`{}`: {}{notes}", param.name, param.help)
}

/// A row for each law, and a line for each parameter.
fn table() -> String {
    let mut text = "| law | what it does | parameters | `rope_type` in configs | source |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for law in LawName::ALL {
        let facts = law.facts();
        let own = facts.params.iter().map(|param| format!("`{}`", param.name));
        let types = facts.hf_types.iter().map(|hf| {
            let keys: Vec<String> = hf.with.iter().map(|key| format!("`{key}`")).collect();
            if keys.is_empty() {
                format!("`{}`", hf.word)
            } else {
                format!("`{}` with {}", hf.word, keys.join(" and "))
            }
        });
        text += &format!(
            "| `{}` | {} | {} | {} | {} |\n",
            facts.word,
            facts.about,
            own.collect::<Vec<_>>().join(", "),
            types.collect::<Vec<_>>().join(", "),
            facts.source,
        );
    }
    text += "\n";
    for (param, _) in super::params() {
        text += &format!("- {}\n", parameter(param));
    }
    text
}

#[test]
fn the_table_in_the_documentation_is_what_the_laws_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/encodings.md");
    let text = std::fs::read_to_string(path).unwrap();
    let between = text.split("<!-- laws -->\n").nth(1);
    let between = between.and_then(|rest| rest.split("<!-- /laws -->").next());
    let want = table();
    assert_eq!(
        between,
        Some(&*want),
        "write this between the marks:\n{want}"
    );
}
