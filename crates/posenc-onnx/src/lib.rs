//! Find, rescale, swap and prove the positional encodings of ONNX transformer models.
//!
#![cfg_attr(feature = "tract", doc = "```")]
#![cfg_attr(not(feature = "tract"), doc = "```ignore")]
//! use posenc_onnx::{ExternalData, Rescale, Tract};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::copy("../../fixtures/gptj/torchscript/model.onnx", folder.path().join("model.onnx"))?;
//! # std::env::set_current_dir(&folder)?;
//! let model = posenc_onnx::Model::open("model.onnx")?;
//! let plan = model.plan(Rescale::yarn(4.0))?; // or Swap::to(Alibi::default()), or a Request
//! println!("{plan}");
//! let done = plan.apply()?; // a typed refusal, or a checked result
//! done.verify(&Tract::default())?.ensure_ok()?;
//! done.save("long.onnx", ExternalData::Auto)?;
//! # Ok(())
//! # }
//! ```
//!
//! | step | what happens |
//! |---|---|
//! | [`Model::open`], [`Model::from_bytes`] | a model is read and checked |
//! | [`Model::inspect`] | its encodings, attention sites and limits, as a [`report`] |
//! | [`Model::plan`] | a [`Rescale`], a [`Resize`], a [`Swap`] or a [`Request`](request::Request) becomes a [`Plan`], which prints itself; nothing is edited |
//! | [`Plan::apply`] | a copy is edited, read again and compared with the plan |
//! | [`Rewritten::verify`] | a runtime runs the encodings, compared with formulas in f64 |
//! | [`Rewritten::save`], [`Rewritten::to_bytes`] | the result is written |
//! | [`Rewritten::config`] | the `config.json` that matches it |
//!
//! Nothing is printed, and nothing is read but what is named: the `config.json` next to a model is
//! read by [`Config::next_to`](request::Config::next_to) alone. A request that is refused says why
//! with a [`Refusal`].
//!
//! The features `tract` and `ort` link the runtime of that name; without them, models are
//! inspected and rewritten all the same, and compared by an evaluator in f64.

mod attention;
mod config;
mod detect;
mod edit;
mod error;
mod facade;
mod graph;
mod inspect;
mod plan;
mod prove;
mod record;
pub mod report;
pub mod request;
mod rewrite;
mod spelling;

pub use config::ConfigChange;
pub use error::{Refusal, RefusalKind, RewriteError};
pub use facade::{
    Alibi, Learned, Model, Plan, PlannedEdit, RelativeBias, Rescale, Resize, Rewritten, Rope, Shaw,
    Sinusoidal, Swap, T5Bias, Unverified, Verification,
};
pub use posenc_encodings as encodings;
pub use posenc_encodings::kind::Kind;
pub use posenc_encodings::param::Value;
pub use posenc_ir as ir;
#[cfg(not(target_family = "wasm"))]
pub use posenc_ir::external::{ExternalData, SaveError, Saved};
pub use posenc_runtime as runtime;
#[cfg(feature = "ort")]
pub use posenc_runtime::OrtBackend as Ort;
#[cfg(feature = "tract")]
pub use posenc_runtime::TractBackend as Tract;

/// Whole models against each other, and rotations against their formula, in a runtime.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let report = verify(model.as_ir(), None, &options, &[Box::new(Tract::default())])?;
/// assert!(report.ok && !report.sites.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod verify {
    pub use crate::facade::verify;
    pub use crate::prove::{Bisect, Reason, VerifyError, VerifyOptions};
}
