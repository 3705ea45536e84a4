//! Flags for the parameters of families, as these declare them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use posenc_encodings::families;
use posenc_encodings::param::{Given, Param, Value, Values};

use crate::value::{self, List};

/// The parameters of families that were given.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyArgs(pub(super) Given);

/// A parameter of one name, with the words of the families that have it.
struct Shared {
    param: &'static Param,
    families: Vec<(&'static str, &'static Param)>,
}

impl Shared {
    /// Every parameter, in the order of the families.
    fn all() -> Vec<Self> {
        let mut all: Vec<Self> = vec![];
        for family in families::all() {
            for param in family.params {
                let own = (family.word, param);
                match all.iter_mut().find(|s| s.param.name == param.name) {
                    Some(shared) => shared.families.push(own),
                    None => all.push(Self {
                        param,
                        families: vec![own],
                    }),
                }
            }
        }
        all
    }

    /// `t5-bias, shaw: distance … [default: 128; shaw: 16]`.
    fn help(&self) -> String {
        let words: Vec<&str> = self.families.iter().map(|(word, _)| *word).collect();
        let first = self.param.default;
        let mut defaults = vec![first.to_owned()];
        for (word, param) in &self.families {
            if param.default != first {
                defaults.push(format!("{word}: {}", param.default));
            }
        }
        let default = match defaults.join("; ") {
            none if none.is_empty() => none,
            given => format!(" [default: {given}]"),
        };
        format!("{}: {}{default}", words.join(", "), self.param.help)
    }

    fn arg(&self) -> Arg {
        let arg = Arg::new(self.param.name)
            .long(self.param.name)
            .help(self.help());
        match self.param.values {
            Values::Positive => arg.value_name("F").value_parser(value::positive),
            Values::NotNegative => arg.value_name("F").value_parser(value::not_negative),
            Values::Count => arg.value_name("N").value_parser(value::count),
            Values::Numbers => arg
                .value_name("LIST|FILE")
                .value_parser(clap::value_parser!(List)),
            Values::Switch => arg.action(ArgAction::SetTrue),
            Values::Bool => arg
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(clap::value_parser!(bool)),
            Values::Word(words) => arg.value_name("WORD").value_parser(
                PossibleValuesParser::new(words.iter().copied()).map(move |given| {
                    let mut all = words.iter().copied();
                    all.find(|word| *word == given).unwrap_or_default()
                }),
            ),
        }
    }

    fn value(&self, matches: &ArgMatches) -> Option<Value> {
        let name = self.param.name;
        Some(match self.param.values {
            Values::Positive | Values::NotNegative => Value::Number(*matches.get_one(name)?),
            Values::Count => Value::Count(*matches.get_one(name)?),
            Values::Numbers => Value::Numbers(matches.get_one::<List>(name)?.0.clone()),
            Values::Switch => Value::Bool(matches.get_flag(name).then_some(true)?),
            Values::Bool => Value::Bool(*matches.get_one(name)?),
            Values::Word(_) => Value::Word(matches.get_one::<&'static str>(name)?),
        })
    }
}

impl clap::Args for FamilyArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("Table and bias parameters");
        command.args(Shared::all().iter().map(Shared::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for FamilyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = Self::default();
        all.update_from_arg_matches(matches)?;
        Ok(all)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for shared in Shared::all() {
            if let Some(value) = shared.value(matches) {
                self.0.set(shared.param, value);
            }
        }
        Ok(())
    }
}
