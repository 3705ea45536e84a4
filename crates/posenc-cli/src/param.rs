//! Flags from parameters that are described as data.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use posenc_encodings::param::{Param, Value, Values};

use crate::value::{self, List};

/// The flag of a parameter: `users` have it under this name, and the help names them.
pub(crate) fn flag(param: &Param, users: &[(&str, &Param)]) -> Arg {
    let arg = Arg::new(param.name)
        .long(param.name)
        .help(help(param, users));
    // A negative number is a value that is out of range, and no flag.
    let number = |arg: Arg, name| arg.value_name(name).allow_negative_numbers(true);
    match param.values {
        Values::Positive => number(arg, "F").value_parser(value::positive),
        Values::NotNegative => number(arg, "F").value_parser(value::not_negative),
        Values::Count => number(arg, "N").value_parser(value::count),
        Values::Numbers => arg
            .value_name("LIST|FILE")
            .value_parser(value_parser!(List)),
        Values::Switch => arg.action(ArgAction::SetTrue),
        Values::Bool => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(value_parser!(bool)),
        Values::Word(words) => arg.value_name("WORD").value_parser(
            PossibleValuesParser::new(words.iter().copied()).map(move |given| {
                let mut all = words.iter().copied();
                all.find(|word| *word == given).unwrap_or_default()
            }),
        ),
    }
}

/// `t5-bias, shaw: distance … [default: 128; shaw: 16]`.
fn help(param: &Param, users: &[(&str, &Param)]) -> String {
    let words: Vec<&str> = users.iter().map(|(word, _)| *word).collect();
    let mut defaults = vec![param.default.to_owned()];
    for (word, own) in users {
        if own.default != param.default {
            defaults.push(format!("{word}: {}", own.default));
        }
    }
    let default = match defaults.join("; ") {
        none if none.is_empty() => none,
        given => format!(" [default: {given}]"),
    };
    format!("{}: {}{default}", words.join(", "), param.help)
}

/// The value that the flag of a parameter has, where it is given.
pub(crate) fn value(param: &Param, matches: &ArgMatches) -> Option<Value> {
    let name = param.name;
    Some(match param.values {
        Values::Positive | Values::NotNegative => Value::Number(*matches.get_one(name)?),
        Values::Count => Value::Count(*matches.get_one(name)?),
        Values::Numbers => Value::Numbers(matches.get_one::<List>(name)?.0.clone()),
        Values::Switch => matches.get_flag(name).then_some(Value::Bool(true))?,
        Values::Bool => Value::Bool(*matches.get_one(name)?),
        Values::Word(_) => Value::Word(matches.get_one::<&'static str>(name)?),
    })
}
