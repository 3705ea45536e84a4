//! The flags of `rewrite`, and the request that they make.

use std::path::{Path, PathBuf};

use clap::ArgAction;
use glob::Pattern;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::words::Word;
use posenc_onnx::RewriteError;
use posenc_onnx::request::{
    Allowances, Antialias, Config, Corners, ImageSize, InputRole, Layers, Length, Parameters,
    Request, TablePrecision, Target, Tensors,
};

use super::external::ExternalData;
use super::family::FamilyArgs;
use crate::exit::Failure;
use crate::folder::Chosen;
use crate::rope::{self, RopeArgs, ScalingArgs};
use crate::value;

/// Swap, rescale or remove the positional encoding of a model
///
/// The input is not changed unless --in-place is given, and the output appears only when it is
/// complete. What is inserted is compared with its formula in f64 before anything is written.
///
/// Of a folder, all models are rewritten together into a new folder, or none is. The configurations that
/// govern them follow, graphs that cannot encode a position are copied, and so are all other files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to read, or folder of which all models are rewritten together
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,

    #[command(flatten, next_help_heading = "Models of a folder")]
    pub(crate) chosen: Chosen,

    /// Models of the folder that the new folder is not to have; repeatable
    #[arg(long, value_name = "GLOB", help_heading = "Models of a folder")]
    pub(crate) drop: Vec<Pattern>,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    scaling: ScalingArgs,

    #[command(flatten)]
    rope: RopeArgs,

    #[command(flatten)]
    tables: TableArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) checks: CheckArgs,
}

const EXAMPLES: &str = "\
Examples:
  Extend a RoPE model fourfold, and see what would change first:
    posenc-onnx rewrite model.onnx --scale yarn --factor 4 --diff --dry-run
    posenc-onnx rewrite model.onnx --scale yarn --factor 4 -o long.onnx --verify
  Follow a Hugging Face config:
    posenc-onnx rewrite model.onnx --hf-config config.json
  Rewrite every model of a folder, with its configurations:
    posenc-onnx rewrite folder --scale yarn --factor 4 -o folder-long
  Replace the encoding, with learned values from a file:
    posenc-onnx rewrite model.onnx --to t5-bias --params bias.safetensors

Exit codes:
  0  done, also where the model already is what was asked
  1  the check of the result failed, or the model has no attention to rewrite
  2  the command line is wrong, or a required value is missing
  3  the model cannot be read or is invalid
  4  the model or the request has a form that is not supported, or a part that matters was not read
  5  the requested runtime or execution provider is not available";

/// What the model is to become, and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Target")]
struct TargetArgs {
    /// Encoding afterwards [default: the one found]
    #[arg(long, value_name = "KIND", value_parser = value::one_of(Kind::targets()), hide_possible_values = true, long_help = kinds())]
    to: Option<Kind>,

    /// Hugging Face config that the graph is to follow
    #[arg(long, value_name = "FILE")]
    hf_config: Option<PathBuf>,

    /// Learned values, as safetensors
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,

    /// Attention sites to work on, counted within their stack, as 0-5,7 [default: all]
    #[arg(long, value_name = "LIST")]
    layers: Option<Layers>,

    /// Stack to work on [default: both]
    #[arg(long, value_name = "STACK", value_parser = value::word::<Stack>())]
    stack: Option<Stack>,

    /// Operators that rotations and fused T5 biases consist of afterwards [default: keep, or what the target takes]
    #[arg(long, value_name = "FORM", value_parser = form())]
    form: Option<FormWish>,

    /// Runtime that has to run the result [default: none is checked]
    #[arg(long, value_name = "TARGET", value_parser = value::word::<Target>())]
    target: Option<Target>,

    /// Role of an input that cannot be inferred
    #[arg(long, value_name = "NAME=ROLE", value_parser = value::named::<InputRole>)]
    input_role: Vec<(String, InputRole)>,
}

fn kinds() -> String {
    let words: Vec<&str> = Kind::targets().map(Word::name).collect();
    let words = words.join(", ");
    format!("Encoding afterwards [default: the one found]\n\n{words}")
}

/// A form, or the one found.
#[derive(Clone, Copy, Debug)]
struct FormWish(Option<Form>);

fn form() -> impl clap::builder::TypedValueParser<Value = FormWish> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let forms = Form::ALL
        .iter()
        .map(|f| PossibleValue::new(f.name()).help(f.about()));
    let keep = PossibleValue::new("keep").help("As it is found");
    PossibleValuesParser::new(forms.chain([keep])).map(|word| FormWish(word.parse().ok()))
}

/// The parameters of tables and biases.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Table and bias parameters")]
struct TableArgs {
    /// Pairs of RoPE, or the order within a sinusoidal row; given alone, weights follow the pairs and the model
    /// computes the same
    #[arg(long, value_name = "LAYOUT", value_parser = value::word::<Layout>())]
    layout: Option<Layout>,

    #[command(flatten)]
    family: FamilyArgs,

    /// Interpolated tables: the first row and the last one stay, as align_corners does in PyTorch
    #[arg(long, action = ArgAction::SetTrue)]
    align_corners: bool,

    /// Image size: tables of patches are interpolated, and every size in the graph follows
    #[arg(long, value_name = "HxW")]
    image_size: Option<ImageSize>,

    /// Tables of patches: interpolate with antialiasing, as `antialias=True` in PyTorch
    #[arg(long, action = ArgAction::SetTrue)]
    antialias: bool,

    /// Images of any height and width: the graph resizes its table of patches when it runs; with
    /// --image-size, the result is compared at that size too
    #[arg(long, action = ArgAction::SetTrue)]
    dynamic: bool,

    /// Type in which tables are computed before they are stored
    #[arg(long, value_name = "TYPE", value_parser = value::word::<TablePrecision>())]
    table_precision: Option<TablePrecision>,

    /// Seed of tables that are filled at random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What is written, and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    #[arg(
        short,
        long,
        value_name = "OUT",
        help = "File to write [default: <stem>.<kind>[-<scale>].onnx next to the input]; of a folder, a new folder"
    )]
    pub(crate) output: Option<PathBuf>,

    /// Allow the output to replace the input
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) in_place: bool,

    /// What becomes of tensors in other files
    #[arg(long, value_name = "MODE", value_parser = value::word::<ExternalData>(), default_value = "auto")]
    pub(crate) external_data: ExternalData,

    /// Write nothing
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) dry_run: bool,

    /// Print the change of the graph as a diff of its text
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "json")]
    pub(crate) diff: bool,

    /// Add an input with position ids
    #[arg(long, action = ArgAction::SetTrue)]
    add_position_ids: bool,

    /// Write the config.json that matches the result next to it, and update the lengths in
    /// genai_config.json and tokenizer_config.json there; the configurations of a folder follow without it, and with it, what none can say is
    /// refused
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) write_config: bool,

    /// Write nodes in an order of computation, where the input does not
    #[arg(long, action = ArgAction::SetTrue)]
    sort: bool,

    /// Write JSON to stdout
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

/// What is checked.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Checks")]
pub(crate) struct CheckArgs {
    /// Fail if no runtime can compare what was inserted with its formula; none inserts nothing
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) verify: bool,

    /// Scale what is already scaled, or undo a scaling
    #[arg(long, action = ArgAction::SetTrue)]
    allow_rescale: bool,

    /// Rewrite a model of which something was not read; the output records what
    #[arg(long, action = ArgAction::SetTrue)]
    allow_unread: bool,
}

impl Args {
    /// The files that the command reads besides the model.
    pub(super) fn files(&self) -> Vec<&Path> {
        let files = self.target.hf_config.iter().chain(&self.target.params);
        files.map(PathBuf::as_path).collect()
    }

    /// The first flag that is about the file or what is printed, and not about the rewrite.
    pub(crate) fn beside_the_rewrite(&self) -> Option<&'static str> {
        let Self { output, checks, .. } = self;
        let given = [
            ("in-place", output.in_place),
            ("external-data", output.external_data != ExternalData::Auto),
            ("dry-run", output.dry_run),
            ("diff", output.diff),
            ("write-config", output.write_config),
            ("json", output.json),
            ("verify", checks.verify),
            ("drop", !self.drop.is_empty()),
        ];
        let mut given = given.into_iter();
        given
            .find_map(|(flag, is_given)| is_given.then_some(flag))
            .or(self.chosen.flag())
    }

    /// What the flags request.
    ///
    /// # Errors
    /// When a file that they name cannot be read.
    pub(crate) fn request(&self) -> anyhow::Result<Request> {
        let Self { target, tables, .. } = self;
        if target.target.is_some() && matches!(target.form, Some(FormWish(None))) {
            let why = "--form keep leaves every rotation as it is, and --target changes those that the runtime \
                       lacks: leave out one of the two";
            return Err(Failure::usage(why).into());
        }
        let parameters = Parameters {
            family: tables.family.0.clone(),
            image_size: tables.image_size,
            corners: if tables.align_corners {
                Corners::Aligned
            } else {
                Corners::HalfPixel
            },
            antialias: if tables.antialias {
                Antialias::On
            } else {
                Antialias::Off
            },
            length: if tables.dynamic {
                Length::Dynamic
            } else {
                Length::AsFound
            },
            table_precision: tables.table_precision,
            seed: tables.seed,
            ..rope::parameters(&self.scaling, &self.rope, tables.layout)
        };
        let config = target.hf_config.as_ref().map(Config::open).transpose();
        let params = target.params.as_ref().map(Tensors::open).transpose();
        Ok(Request {
            to: target.to,
            scale: self.scaling.scale,
            parameters,
            hf_config: config.map_err(RewriteError::from)?,
            model_config: Config::next_to(&self.model),
            params: params.map_err(RewriteError::from)?,
            layers: target.layers.clone(),
            stack: target.stack,
            form: target.form.and_then(|wish| wish.0),
            target: target.target,
            input_roles: target.input_role.iter().cloned().collect(),
            allowances: Allowances {
                add_position_ids: self.output.add_position_ids,
                allow_rescale: self.checks.allow_rescale,
                allow_unread: self.checks.allow_unread,
                write_config: self.output.write_config,
                sort: self.output.sort,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use posenc_encodings::families::alibi;
    use posenc_encodings::param::{Given, Value};
    use posenc_onnx::request::LawName;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn request(line: &str) -> Result<Request, clap::Error> {
        let words = ["rewrite", "m.onnx"]
            .into_iter()
            .chain(line.split_whitespace());
        Line::try_parse_from(words).map(|l| l.args.request().unwrap())
    }

    /// What the line of the next test gives.
    fn family() -> Given {
        let counts = [("num-buckets", 16), ("max-distance", 64)];
        let counts = counts.map(|(name, count)| (name, Value::Count(count)));
        let mut given = Given::from_iter(counts);
        let [slopes, bidirectional] = [0, 1].map(|i| &alibi::FAMILY.params[i]);
        given.set(bidirectional, Value::Bool(true));
        given.set(slopes, Value::Numbers(vec![0.5, 0.25]));
        given
    }

    #[test]
    fn no_flag_is_no_request() {
        assert_eq!(request("").unwrap(), Request::default());
        assert_eq!(request("--form keep").unwrap(), Request::default());
    }

    #[test]
    fn every_flag_of_the_contract_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let [config, params] = ["c.json", "p.safetensors"].map(|name| folder.path().join(name));
        fs::write(&config, "{}").unwrap();
        fs::write(&params, "p").unwrap();
        let files = format!(
            "--hf-config {} --params {}",
            config.display(),
            params.display()
        );
        let got = request(
            &(files
                + " --to t5-bias --scale yarn --layers 0-5,7 \
             --stack encoder --form onnx --target ort-cuda --external-data link --factor 4 \
             --original-length 64 --max-length 256 --theta 1e4 --rotary-dim 8 --layout half \
             --beta-fast 31 --no-truncate --short-factor 1,2 --num-buckets 16 --max-distance 64 \
             --bidirectional --slopes 0.5,0.25 --align-corners --image-size 384x512 --antialias \
             --dynamic --table-precision f32 --add-position-ids --allow-rescale --allow-unread --write-config \
             --sort --seed 7 --input-role pos=position --input-role mask=padding"),
        );
        let want = Request {
            to: Some(Kind::T5Bias),
            scale: Some(LawName::Yarn.into()),
            hf_config: Some(Config::open(&config).unwrap()),
            model_config: None,
            params: Some(Tensors::open(&params).unwrap()),
            layers: Some(Layers::of([0, 1, 2, 3, 4, 5, 7])),
            stack: Some(Stack::Encoder),
            form: Some(Form::Onnx),
            target: Some(Target::OrtCuda),
            parameters: Parameters {
                factor: Some(4.0),
                original_length: Some(64),
                max_length: Some(256),
                theta: Some(1e4),
                rotary_dim: Some(8),
                layout: Some(Layout::Half),
                law: Given::from_iter([
                    ("beta-fast", Value::Number(31.0)),
                    ("no-truncate", Value::Bool(true)),
                    ("short-factor", Value::Numbers(vec![1.0, 2.0])),
                ]),
                family: family(),
                image_size: Some(ImageSize {
                    height: 384,
                    width: 512,
                }),
                corners: Corners::Aligned,
                antialias: Antialias::On,
                length: Length::Dynamic,
                table_precision: Some(TablePrecision::F32),
                seed: Some(7),
            },
            allowances: Allowances {
                add_position_ids: true,
                allow_rescale: true,
                allow_unread: true,
                write_config: true,
                sort: true,
            },
            input_roles: [
                ("pos".to_owned(), InputRole::Position),
                ("mask".to_owned(), InputRole::Padding),
            ]
            .into(),
        };
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn bidirectional_takes_a_value_only_after_an_equals_sign() {
        let of = |line| {
            request(line)
                .unwrap()
                .parameters
                .family
                .bool("bidirectional")
        };
        assert_eq!(of("--bidirectional=false"), Some(false));
        assert_eq!(of("--bidirectional --dynamic"), Some(true));
        assert!(request("--bidirectional=maybe").is_err());
        assert!(request("--bidirectional false").is_err());
    }

    #[test]
    fn wrong_values_are_refused() {
        for line in [
            "--to yarn",
            "--to unknown",
            "--to disentangled",
            "--scale rope",
            "--form fused",
            "--layers 5-3",
            "--layers all",
            "--factor -1",
            "--factor x",
            "--max-length 0",
            "--image-size 384",
            "--input-role pos",
            "--input-role pos=mask",
            "--slopes a,b",
            "--table-precision f16",
            "--diff --json",
            "extra.onnx",
        ] {
            let error = request(line).unwrap_err();
            assert!(error.use_stderr(), "{line}");
        }
    }
}
