//! The flags that describe RoPE and its scaling, shared by `rewrite` and `table`.

use clap::{ArgMatches, Command};
use posenc_encodings::kind::Layout;

use posenc_encodings::laws::shared::{FACTOR, ORIGINAL_LENGTH};
use posenc_encodings::laws::{self, LawError, LawName};
use posenc_encodings::param::{Given, Param, ParameterError};
use posenc_encodings::resize::Resizing;
use posenc_encodings::words::Word;
use posenc_onnx::request::{Parameters, RopeScalingError, ScaleType};

use crate::exit::Failure;
use crate::{param, value};

/// The scaling and the lengths.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scaling")]
pub(crate) struct ScalingArgs {
    /// How the encoding is stretched
    #[arg(long, value_name = "TYPE", value_parser = value::word::<ScaleType>(), hide_possible_values = true, long_help = scale_help())]
    pub(crate) scale: Option<ScaleType>,

    #[arg(long, value_name = "F", allow_negative_numbers = true, value_parser = value::positive, help = factor_help())]
    pub(crate) factor: Option<f64>,

    /// Length that the model was trained on, before any scaling
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    pub(crate) original_length: Option<usize>,

    /// Length that tables, caches and buffers must hold, and for which a graph of one length is opened;
    /// never a parameter of a formula
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    pub(crate) max_length: Option<usize>,
}

/// The parameters of RoPE.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "RoPE parameters")]
pub(crate) struct RopeArgs {
    /// Base θ of the frequencies
    #[arg(long, value_name = "F", allow_negative_numbers = true, value_parser = value::positive)]
    pub(crate) theta: Option<f64>,

    /// Elements of a head that rotate
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::count)]
    pub(crate) rotary_dim: Option<usize>,

    #[command(flatten)]
    law: LawArgs,
}

/// The parameters that laws declare, as flags.
#[derive(Clone, Debug, Default, PartialEq)]
struct LawArgs(Given);

/// What laws declare and no other flag gives already.
fn params() -> impl Iterator<Item = (&'static Param, Vec<LawName>)> {
    let is_shared = |param: &Param| [FACTOR.name, ORIGINAL_LENGTH.name].contains(&param.name);
    let all = laws::params().into_iter();
    all.filter(move |(param, _)| !is_shared(param))
}

impl clap::Args for LawArgs {
    fn augment_args(command: Command) -> Command {
        command.args(params().map(|(param, laws)| {
            let laws: Vec<_> = laws.into_iter().map(|law| (law.name(), param)).collect();
            param::flag(param, &laws)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for LawArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (param, _) in params() {
            if let Some(value) = param::value(param, matches) {
                self.0.set(param, value);
            }
        }
        Ok(())
    }
}

/// The words of `--scale` by what they are for.
fn scale_help() -> String {
    let laws: Vec<&str> = LawName::ALL.iter().copied().map(Word::name).collect();
    let tables: Vec<&str> = Resizing::ALL.iter().copied().map(Word::name).collect();
    format!(
        "How the encoding is stretched\n\n{} are for RoPE; none is plain RoPE. {} are for learned \
         tables, linear for sinusoidal ones, ALiBi and T5 too. Of other encodings, no scaling is \
         supported yet.",
        listed(&laws),
        listed(&tables),
    )
}

/// `a, b and c`.
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// The defaults of the factor, the most frequent one first.
fn factor_help() -> String {
    const USUAL: f64 = 4.0;
    let other = |law: &LawName| {
        law.facts()
            .factor
            .filter(|f| *f != USUAL)
            .map(|f| (*law, f))
    };
    let others = LawName::ALL.iter().filter_map(other);
    let others: String = others.map(|(law, f)| format!("; {law}: {f}")).collect();
    format!("Context extension s [default: maximum ÷ original length, else {USUAL}{others}]")
}

/// The parameters that these flags give.
pub(crate) fn parameters(
    scaling: &ScalingArgs,
    rope: &RopeArgs,
    layout: Option<Layout>,
) -> Parameters {
    Parameters {
        factor: scaling.factor,
        original_length: scaling.original_length,
        max_length: scaling.max_length,
        theta: rope.theta,
        rotary_dim: rope.rotary_dim,
        layout,
        law: rope.law.0.clone(),
        ..Parameters::default()
    }
}

/// An error about a parameter with its flag.
pub(crate) fn flag_error(error: &ParameterError) -> Failure {
    Failure::usage(match error {
        ParameterError::Missing {
            parameter,
            help,
            of,
        } => format!("{of} needs --{parameter}: {help}"),
        ParameterError::Ineffective { parameter, of } => {
            format!("--{parameter} has no effect on {of}; remove it")
        }
    })
}

/// The error of a law, with flags for parameters.
pub(crate) fn law_error(error: RopeScalingError) -> anyhow::Error {
    match error {
        RopeScalingError::Law(LawError::Parameter(error)) => flag_error(&error).into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::param::Value;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        rope: RopeArgs,
    }

    fn given(line: &str) -> Result<Given, clap::Error> {
        let words = std::iter::once("table").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.rope.law.0)
    }

    #[test]
    fn every_parameter_of_a_law_is_a_flag() {
        assert_eq!(given("").unwrap(), Given::default());
        for (param, _) in params() {
            let (text, value) = match param.values {
                posenc_encodings::param::Values::Numbers => {
                    ("1,2.5", Value::Numbers(vec![1.0, 2.5]))
                }
                posenc_encodings::param::Values::Switch => ("", Value::Bool(true)),
                _ => ("1.5", Value::Number(1.5)),
            };
            let got = given(&format!("--{} {text}", param.name)).unwrap();
            assert_eq!(
                got,
                Given::from_iter([(param.name, value)]),
                "{}",
                param.name
            );
        }
        for line in [
            "--beta-fast 0",
            "--mscale -1",
            "--short-factor a",
            "--no-truncate=4",
        ] {
            assert!(given(line).unwrap_err().use_stderr(), "{line}");
        }
    }

    #[test]
    fn help_names_the_laws_and_their_defaults() {
        let want = "Context extension s [default: maximum ÷ original length, else 4; llama3: 8]";
        assert_eq!(factor_help(), want);
        let help = scale_help();
        assert!(
            help.contains("linear, ntk, dynamic, yarn, longrope, llama3"),
            "{help}"
        );
        for scale in ScaleType::ALL {
            assert!(help.contains(scale.name()), "{scale}: {help}");
        }
    }
}
