//! `table`: frequencies, multipliers and wavelengths of a scaling.

mod csv;
pub(crate) mod frequencies;
mod plot;
mod text;

use std::path::PathBuf;

use posenc_encodings::laws::Rope;
use posenc_onnx::report::Inferred;
use posenc_onnx::request::hf_config::HfConfig;
use posenc_onnx::request::{Parameters, ScaleType, rope_scaling};

use crate::exit::{Exit, Failure};
use crate::model;
use crate::rope::{RopeArgs, ScalingArgs, flag_error, law_error, parameters};
use crate::terminal::Terminal;
use crate::value;
use crate::words::plain;
pub use frequencies::Table;

/// Show the frequencies of a RoPE scaling: one row per rotated pair
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, next_help_heading = "Table")]
pub(crate) struct Args {
    /// How the table is written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Width of the whole head [default: the rotary width]
    #[arg(long, value_name = "N", value_parser = value::count)]
    head_dim: Option<usize>,

    /// Length at which the table is taken: the largest position plus one [default: original
    /// length × factor]
    #[arg(long, value_name = "N", value_parser = value::count)]
    length: Option<usize>,

    /// Hugging Face config to take the RoPE and its scaling from
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scale", "factor", "theta"])]
    hf_config: Option<PathBuf>,

    /// Layer of the config, from 0
    #[arg(long, value_name = "N", default_value_t = 0, requires = "hf_config")]
    layer: usize,

    #[command(flatten)]
    scaling: ScalingArgs,

    #[command(flatten)]
    rope: RopeArgs,
}

/// How the table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// Comma-separated values with a heading
    Csv,
    /// One object with the scaling and its rows
    Json,
    /// Bars: how much of its frequency each pair keeps
    Plot,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx table --scale yarn --theta 1e4 --rotary-dim 64 --factor 4 --original-length 4096
  posenc-onnx table --scale llama3 --theta 5e5 --rotary-dim 128 --original-length 8192 --format plot
  posenc-onnx table --hf-config config.json
  posenc-onnx table --theta 1e4 --rotary-dim 64 --format csv > plain.csv

Exit codes:
  0  done
  2  the command line or the config is wrong, or a required value is missing
  4  the config has a form that is not supported";

/// The base of most models.
const THETA: f64 = 10_000.0;

fn no_width() -> Failure {
    Failure::usage("cannot infer the width that rotates; give --rotary-dim")
}

/// Prints the table.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let table = table(args)?;
    for inferred in &table.inferred {
        let Inferred {
            name,
            value,
            source,
        } = inferred;
        terminal.note(format!("{name} {}: {source}", plain(value)));
    }
    match args.format {
        Format::Table => terminal.print(text::text(&table, terminal.out))?,
        Format::Csv => terminal.print(csv::csv(&table))?,
        Format::Json => terminal.print_json(&table.json())?,
        Format::Plot => terminal.print(plot::plot(&table, terminal.width(), terminal.out))?,
    }
    Ok(Exit::Done)
}

/// The table that the flags or a config describe.
fn table(args: &Args) -> anyhow::Result<Table> {
    let wanted = Wanted {
        scale: args.scaling.scale,
        given: parameters(&args.scaling, &args.rope, None),
        head_dim: args.head_dim,
        length: args.length,
    };
    match &args.hf_config {
        Some(path) => {
            let table = model::text_of(path).and_then(|text| wanted.of_config(&text, args.layer));
            model::named(path, table)
        }
        None => wanted.table(),
    }
}

/// What a table is of.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The scaling; `None`: none.
    pub scale: Option<ScaleType>,
    /// The values of the encoding and of its scaling.
    pub given: Parameters,
    /// The width of the whole head; `None`: the rotary width.
    pub head_dim: Option<usize>,
    /// The length at which it is taken; `None`: the original length × the factor.
    pub length: Option<usize>,
}

impl Wanted {
    /// The table of these values.
    ///
    /// # Errors
    /// When a value is missing, out of range or without effect.
    pub fn table(&self) -> anyhow::Result<Table> {
        let given = &self.given;
        let scale = self.scale.unwrap_or(ScaleType::None);
        scale.check(given).map_err(|e| flag_error(&e))?;
        let mut inferred = vec![];
        let theta = given.theta.unwrap_or_else(|| {
            inferred.push(Inferred::new("theta", THETA, "the default"));
            THETA
        });
        let rotary_dim = given.rotary_dim.or(self.head_dim).ok_or_else(no_width)?;
        let rope = Rope::new(theta, rotary_dim, self.head_dim.unwrap_or(rotary_dim))?;
        let (scaling, more) = rope_scaling(scale, given, &rope).map_err(law_error)?;
        let factor = given.factor.or_else(|| more.first()?.value.as_f64());
        inferred.extend(more);
        let stretched = given.original_length.map(|length| {
            let length = length as f64 * factor.unwrap_or(1.0);
            length.round() as usize
        });
        let length = self.length.or(given.max_length).or(stretched);
        Ok(Table::new(rope, scaling, length, given, inferred))
    }

    /// The table of a layer of a Hugging Face config, whose text this is.
    ///
    /// # Errors
    /// When the config cannot be read, or the layer has no rotary embedding.
    pub fn of_config(&self, text: &str, layer: usize) -> anyhow::Result<Table> {
        let given = &self.given;
        let request = HfConfig::parse(text)?.rope_for(layer)?.ok_or_else(|| {
            Failure::usage(format!(
                "layer {layer} has no rotary embedding; give another --layer"
            ))
        })?;
        let rotary_dim = request
            .rotary_dim
            .or(given.rotary_dim)
            .ok_or_else(no_width)?;
        let rope = request.rope(rotary_dim, self.head_dim.unwrap_or(rotary_dim))?;
        let length = self.length.or(given.max_length).or(request.max_position);
        Ok(Table::new(
            rope,
            request.scaling,
            length,
            given,
            request.inferred,
        ))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn table(line: &str) -> anyhow::Result<Table> {
        let words = std::iter::once("table").chain(line.split_whitespace());
        super::table(&Line::try_parse_from(words)?.args)
    }

    #[test]
    fn the_length_follows_from_what_is_given() {
        let yarn = "--scale yarn --rotary-dim 16 --original-length 64";
        let cases = [
            (yarn.to_owned(), 256),
            (format!("{yarn} --factor 2"), 128),
            (format!("{yarn} --max-length 512"), 512),
            (format!("{yarn} --max-length 512 --length 32"), 32),
            ("--rotary-dim 16".to_owned(), 4096),
        ];
        for (line, want) in cases {
            assert_eq!(table(&line).unwrap().length, want, "{line}");
        }
    }

    #[test]
    fn what_makes_no_table_is_a_wrong_command_line() {
        let cases = [
            ("--scale linear", "--rotary-dim"),
            ("--scale yarn --rotary-dim 16", "--original-length"),
            ("--scale linear --rotary-dim 15", "even"),
            ("--scale linear --rotary-dim 16 --head-dim 8", "at most"),
            ("--scale linear --rotary-dim 16 --factor 0.5", "factor"),
            ("--scale tile --rotary-dim 16", "tile"),
            (
                "--scale longrope --rotary-dim 16 --original-length 64 --short-factor 1 --long-factor 1",
                "one entry per rotated pair",
            ),
        ];
        for (line, want) in cases {
            let error = table(line).unwrap_err();
            assert!(error.to_string().contains(want), "{line}: {error}");
            assert_eq!(Exit::of(&error), Exit::Usage, "{line}");
        }
    }

    #[test]
    fn json_has_no_infinite_numbers() {
        let table = table("--scale proportional --rotary-dim 8 --head-dim 16 --factor 1").unwrap();
        let json = table.json();
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 8);
        assert!(rows[0]["wavelength"].is_f64());
        assert!(rows[7]["wavelength"].is_null());
    }
}
