//! The result of a rewrite.

#[cfg(not(target_family = "wasm"))]
use std::path::Path;

#[cfg(not(target_family = "wasm"))]
use posenc_ir::external::{ExternalData, SaveError, Saved};
use posenc_runtime::{Backend, Fallback, Provider};
use serde_json::Value;

use super::Verification;
use crate::config::ConfigChange;
use crate::detect::context::Context;
use crate::error::Refusal;
use crate::prove::run::RuntimeTarget;
use crate::prove::{VerifyError, bare, check_record, check_rope, expectations, respelled, whole};
use crate::record;
use crate::report::Rewrite;
use crate::rewrite;

/// A rewritten model. What is read from it matches the plan, and its structure is checked.
///
/// ```
/// # use posenc_onnx::{ExternalData, Model, Rescale};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Rescale::linear(2.0))?.apply()?;
/// let again = Model::from_bytes(done.to_bytes()?)?;
/// assert_eq!(again.inspect().encodings[0].params["scaling"]["type"], "linear");
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("long.onnx");
/// done.save(&path, ExternalData::Auto)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rewritten(pub(super) rewrite::Rewritten);

impl Rewritten {
    /// What was changed. The report is the JSON of `posenc-onnx rewrite` as a type, without the
    /// output and the check.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert_eq!(done.report().input.fingerprint, model.as_ir().fingerprint());
    /// assert_eq!(done.report().edits[0].from["kind"], "rope");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self) -> &Rewrite {
        &self.0.report
    }

    /// The graph and everything else of the model.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(2.0))?.apply()?;
    /// assert!(done.as_ir().check()?.is_empty());
    /// assert_eq!(done.as_ir().opsets(), model.as_ir().opsets());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_ir(&self) -> &posenc_ir::Model {
        &self.0.model
    }

    /// The rewritten model, without the report.
    ///
    /// ```
    /// # use posenc_onnx::{Alibi, Model, Rescale, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::to(Alibi::default()))?.apply()?;
    /// let model = Model::checked(done.into_ir())?; // to go on with
    /// let error = model.plan(Rescale::yarn(2.0)).unwrap_err();
    /// assert!(error.to_string().contains("no attention of the model is rotary"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_ir(self) -> posenc_ir::Model {
        self.0.model
    }

    /// The bytes of the model's file. Tensors in other files stay there.
    ///
    /// # Errors
    /// When the model is too large for one file.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::none().theta(5e5))?.apply()?;
    /// let again = Model::from_bytes(done.to_bytes()?)?;
    /// assert_eq!(again.inspect().encodings[0].params["theta"], 5e5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>, posenc_ir::Error> {
        self.0.model.to_bytes()
    }

    /// Writes the model to a file, which appears when it is complete.
    ///
    /// # Errors
    /// When the file cannot be written, or external data has no place there.
    ///
    /// ```
    /// # use posenc_onnx::{ExternalData, Model, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("none.onnx");
    /// done.save(&path, ExternalData::Auto)?;
    /// assert!(Model::open(&path)?.plan(Swap::remove())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(not(target_family = "wasm"))]
    pub fn save(
        &self,
        path: impl AsRef<Path>,
        external_data: ExternalData,
    ) -> Result<Saved, SaveError> {
        self.0.model.save(path, external_data)
    }

    /// The `config.json` of the model that was read, changed to match the result: rotary embeddings,
    /// lengths and the size of images. The rotations that it says are read back and compared with
    /// those of the result.
    ///
    /// # Errors
    /// JSON that is no object; another encoding, which no key describes; the config of another model,
    /// with another base or other widths of heads; rotations for which the config has no place, as
    /// several laws in a config with one scaling, or that would be read as others.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/llama/dynamo/model.onnx")?;
    /// let config = std::fs::read_to_string("../../fixtures/llama/dynamo/config.json")?;
    /// let config = serde_json::from_str(&config)?;
    /// let done = model.plan(Rescale::yarn(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&config)?;
    /// assert_eq!(change.changes()["max_position_embeddings"], json!([64, 256]));
    /// assert_eq!(change.value()["rope_scaling"]["original_max_position_embeddings"], 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn config(&self, config: &Value) -> Result<ConfigChange, Refusal> {
        self.0.told.config(&self.0.report.limits, config)
    }

    /// In what a config contradicts the rotations of the model that was read, as
    /// [`Model::contradiction`](crate::Model::contradiction) says it; it may also say what they became.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0))?.apply()?;
    /// let scaled = |factor| json!({"rope_scaling": {"rope_type": "linear", "factor": factor}});
    /// assert!(done.contradiction(&scaled(2.0)).is_some());
    /// assert!(done.contradiction(&scaled(4.0)).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contradiction(&self, config: &Value) -> Option<String> {
        self.0.told.contradiction(config)
    }

    /// Whether there is an encoding to compare with its formula.
    ///
    /// # Errors
    /// When the model's record of an earlier rewrite cannot be followed.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// assert!(model.plan(Rescale::linear(2.0))?.apply()?.is_verifiable()?);
    /// assert!(!model.plan(Swap::remove())?.apply()?.is_verifiable()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_verifiable(&self) -> Result<bool, VerifyError> {
        for found in self.found() {
            if !found.rotary.is_empty() {
                check_record(self.0.read(), found)?;
                return Ok(true);
            }
        }
        Ok(self.inserts_more_than_rope())
    }

    /// Runs rotations and inserted encodings with random queries and keys, and compares them with
    /// their formulas in f64, at positions up to the full length. Other parts of the model do not
    /// run.
    ///
    /// # Errors
    /// When the runtime is absent or refuses a part of the model. A difference is no error here;
    /// see [`Verification::ensure_ok`].
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Alibi, Model, Swap, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::to(Alibi::default()))?.apply()?;
    /// let verification = done.verify(&Tract::default())?;
    /// assert!(verification.checks().iter().any(|check| check.quantity == "scores"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self, backend: &dyn Backend) -> Result<Verification, VerifyError> {
        let model = self.0.read();
        let mut checks = vec![];
        for found in self.found() {
            if !found.rotary.is_empty() {
                let expected = expectations(model, found)?;
                checks.extend(check_rope(model, found, &expected, backend)?.checks);
            }
        }
        if let Some(proof) = &self.0.proof {
            checks.extend(proof.check(backend)?);
        }
        Ok(Verification {
            checks,
            is_expected: self.inserts_more_than_rope(),
            stood_in: 0,
            left_out: None,
        })
    }

    /// Whether [`positions_left`](Self::positions_left) has something to run: sites whose encodings
    /// were removed or replaced, that were to have none, or at which a rescale found none.
    pub fn is_without_positions(&self) -> bool {
        self.0.proof.is_some() || !self.0.bare.is_empty()
    }

    /// Runs the model without the encodings that were removed, before others are inserted, with the
    /// same content at every token, and compares queries, keys, values and scores of these tokens and
    /// the rows of the outputs. Where they differ, a position is left that was not read. Different
    /// tokens run in two orders besides, and everything must move with them. In place of what mixes
    /// tokens and is no attention, something runs that is computed from each token alone.
    ///
    /// A site is left out where equal tokens differ for another reason: behind random numbers, and in
    /// the bodies of an `If` or a loop.
    ///
    /// # Errors
    /// When the runtime is absent or refuses the model, or weights without a stand-in are too large to
    /// be run. A difference is no error here; see [`Verification::checks`].
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Swap, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert!(done.is_without_positions());
    /// let left = done.positions_left(&Tract::default())?;
    /// assert_eq!(left.checks()[0].quantity, "queries of equal tokens");
    /// left.ensure_ok()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn positions_left(&self, backend: &dyn Backend) -> Result<Verification, VerifyError> {
        let bare = match &self.0.proof {
            Some(proof) => proof.check_bare(backend)?,
            None => bare::check((self.0.read(), &self.0.found), &self.0.bare, backend)?,
        };
        Ok(Verification {
            checks: bare.checks,
            is_expected: false,
            stood_in: bare.stood_in,
            left_out: bare.left_out,
        })
    }

    /// Records in the metadata of the model that a position was left in it, in words;
    /// [`verify`](crate::verify::verify) repeats them. A model that is not changed stays as it is.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let mut done = model.plan(Swap::remove())?.apply()?;
    /// done.record_unread("a position is left");
    /// assert!(done.as_ir().metadata("posenc.unread").is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_unread(&mut self, why: &str) {
        if self.0.report.edits.is_empty() {
            return;
        }
        let mut unread = record::read_unread(&self.0.model);
        unread.push(why.to_owned());
        record::write_unread(&mut self.0.model, &unread);
        record::written::renew(&mut self.0.model);
    }

    /// Whether operators of the model were replaced by others that compute the same, so that it
    /// could be read, or features of queries and keys were put in another order.
    pub fn is_respelled(&self) -> bool {
        !self.0.respelled.is_empty()
    }

    /// Runs the model with its own operators and with those that replaced them, before anything else
    /// is edited, and with features of queries and keys in both orders, and compares the outputs.
    ///
    /// # Errors
    /// When the runtime is absent or refuses one of them. A difference is no error here; see
    /// [`Verification::ensure_ok`].
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Swap, Tract};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert!(!done.is_respelled()); // its operators are those that are read
    /// assert!(done.respelling(&Tract::default())?.checks().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn respelling(&self, backend: &dyn Backend) -> Result<Verification, VerifyError> {
        let mut checks = vec![];
        for own in &self.0.respelled {
            let context = Context {
                model: &own.of,
                found: &own.found,
            };
            let models = own.models.each_ref();
            checks.extend(respelled::check(models, &context, &own.moved, backend)?);
        }
        Ok(Verification {
            checks,
            is_expected: false,
            stood_in: 0,
            left_out: None,
        })
    }

    /// Runs the result with random inputs, as the runtime that it is for has to: without earlier tokens, and
    /// for one token behind some where the model takes them. `Some` says why it runs for one sequence only, where that is so.
    ///
    /// # Errors
    /// When the runtime is absent or does not run it, or no inputs can be made for it.
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Tract, request::{Request, Target}, runtime::Provider};
    /// let model = Model::open("../../fixtures/llama/dynamo23/model.onnx")?;
    /// let request = Request { target: Some(Target::Tract), ..Request::default() };
    /// let done = model.plan(request)?.apply()?;
    /// assert!(done.run(&Tract::default(), Provider::Cpu)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(
        &self,
        backend: &dyn Backend,
        provider: Provider,
    ) -> Result<Option<VerifyError>, VerifyError> {
        let read = Context {
            model: self.0.read(),
            found: &self.0.found,
        };
        let target = RuntimeTarget {
            backend,
            provider,
            fallback: Fallback::Allowed,
        };
        whole::check(&self.0.model, &read, &target)
    }

    fn found(&self) -> impl Iterator<Item = &crate::detect::Found> {
        std::iter::once(&self.0.found).chain(&self.0.other_branches)
    }

    fn inserts_more_than_rope(&self) -> bool {
        self.0.proof.as_ref().is_some_and(|proof| !proof.is_empty())
    }
}
