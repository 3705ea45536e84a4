//! The flags that describe RoPE and its scaling, shared by `rewrite` and `table`.

use clap::ArgAction;

use posenc_encodings::kind::Layout;
use posenc_encodings::laws::RampBounds;
use posenc_onnx::request::{Parameters, ScaleType};

use crate::value::{self, List};

/// The scaling and the lengths.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scaling")]
pub(crate) struct ScalingArgs {
    /// Law by which the encoding is stretched
    ///
    /// linear, ntk, dynamic, yarn, longrope, llama3 and proportional are for RoPE; none is plain
    /// RoPE. linear, cubic, tile, hierarchical and truncate are for learned tables. linear also
    /// serves sinusoidal, ALiBi and T5.
    #[arg(long, value_name = "TYPE", value_parser = value::word::<ScaleType>(), hide_possible_values = true)]
    pub(crate) scale: Option<ScaleType>,

    /// Context extension s [default: maximum ÷ original length, else 4; llama3: 8]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) factor: Option<f64>,

    /// Length that the model was trained on, before any scaling
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) original_length: Option<usize>,

    /// Length that tables, caches and buffers must hold; never a parameter of a formula
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) max_length: Option<usize>,
}

/// The parameters of RoPE.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "RoPE parameters")]
pub(crate) struct RopeArgs {
    /// Base θ of the frequencies
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) theta: Option<f64>,

    /// Elements of a head that rotate
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) rotary_dim: Option<usize>,

    /// yarn: turns within the original length above which a pair stays [default: 32]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) beta_fast: Option<f64>,

    /// yarn: turns below which a pair is interpolated [default: 1]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) beta_slow: Option<f64>,

    /// yarn: weight of ln s in the numerator of the factor on cos and sin
    #[arg(long, value_name = "F", value_parser = value::not_negative)]
    pub(crate) mscale: Option<f64>,

    /// yarn: weight of ln s in its denominator
    #[arg(long, value_name = "F", value_parser = value::not_negative)]
    pub(crate) mscale_all_dim: Option<f64>,

    /// yarn, longrope: factor on cos and sin [default: computed]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) attention_factor: Option<f64>,

    /// yarn: do not round the ends of the ramp to whole pairs
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) no_truncate: bool,

    /// llama3: turns below which a pair is divided by s [default: 1]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) low_freq_factor: Option<f64>,

    /// llama3: turns above which a pair stays [default: 4]
    #[arg(long, value_name = "F", value_parser = value::positive)]
    pub(crate) high_freq_factor: Option<f64>,

    /// longrope: divisors up to the original length, one per pair
    #[arg(long, value_name = "LIST|FILE")]
    pub(crate) short_factor: Option<List>,

    /// longrope: divisors above it, one per pair
    #[arg(long, value_name = "LIST|FILE")]
    pub(crate) long_factor: Option<List>,
}

/// The parameters that these flags give.
pub(crate) fn parameters(
    scaling: &ScalingArgs,
    rope: &RopeArgs,
    layout: Option<Layout>,
) -> Parameters {
    let list = |list: &Option<List>| list.as_ref().map(|l| l.0.clone());
    Parameters {
        factor: scaling.factor,
        original_length: scaling.original_length,
        max_length: scaling.max_length,
        theta: rope.theta,
        rotary_dim: rope.rotary_dim,
        layout,
        beta_fast: rope.beta_fast,
        beta_slow: rope.beta_slow,
        mscale: rope.mscale,
        mscale_all_dim: rope.mscale_all_dim,
        attention_factor: rope.attention_factor,
        bounds: if rope.no_truncate {
            RampBounds::Exact
        } else {
            RampBounds::Truncated
        },
        low_freq_factor: rope.low_freq_factor,
        high_freq_factor: rope.high_freq_factor,
        short_factor: list(&rope.short_factor),
        long_factor: list(&rope.long_factor),
        ..Parameters::default()
    }
}
