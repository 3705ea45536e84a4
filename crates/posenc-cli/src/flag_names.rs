//! Names of parameters in the sentences of the library, as flags of the command line.

use std::collections::BTreeSet;

use clap::Command;

/// The names of all flags of a command line, without hyphens.
pub(crate) fn names(command: &Command) -> BTreeSet<String> {
    let commands = command.get_subcommands().chain([command]);
    commands
        .flat_map(Command::get_arguments)
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect()
}

/// The sentence with every `` `name` `` of a flag written as `--name`; a name may have underscores instead of
/// hyphens.
pub(crate) fn as_flags(sentence: &str, names: &BTreeSet<String>) -> String {
    let mut text = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once('`') {
        text.push_str(before);
        rest = match after.split_once('`') {
            Some((name, after)) if names.contains(&name.replace('_', "-")) => {
                text.push_str("--");
                text.push_str(&name.replace('_', "-"));
                after
            }
            _ => {
                text.push('`');
                after
            }
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn names_of_flags_become_flags() {
        let command =
            Command::new("a").subcommand(Command::new("b").arg(Arg::new("n").long("max-length")));
        let names = names(&command);
        let of = |sentence| as_flags(sentence, &names);
        assert_eq!(
            of("no length: give `max-length`"),
            "no length: give --max-length"
        );
        assert_eq!(of("`max-length` is 3"), "--max-length is 3");
        assert_eq!(of("`max_length` is 3"), "--max-length is 3");
        for other in [
            "get it with `git lfs pull`",
            "a ` alone",
            "`theta` is 3",
            "",
        ] {
            assert_eq!(of(other), other);
        }
        assert_eq!(of("`x` and `max-length`"), "`x` and --max-length");
    }
}
