//! A model to inspect or rewrite.

use std::collections::BTreeMap;
use std::path::Path;

use posenc_encodings::family::Family;
use posenc_ir::Warning;

use super::Plan;
use crate::config::contradiction;
use crate::detect::Options;
use crate::error::{Refusal, RewriteError};
use crate::graph::ports::given;
use crate::inspect::figures::figures;
use crate::inspect::inspect;
use crate::inspect::positionless;
use crate::report::{Figure, Inspect};
use crate::request::{InputRole, Request, check_custom, roles};
use crate::rewrite;

/// An ONNX model that was read and checked.
///
/// Nothing changes it: a rewrite makes another model.
///
/// ```
/// # use posenc_onnx::{Model, Swap};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Swap::remove())?.apply()?;
/// assert_ne!(done.to_bytes()?, model.as_ir().to_bytes()?);
/// assert_eq!(model.inspect().encodings[0].kind.to_string(), "rope");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    model: posenc_ir::Model,
    warnings: Vec<Warning>,
    /// Families of score biases outside of the registry.
    custom: Vec<&'static Family>,
    /// What inputs mean, by name.
    roles: BTreeMap<String, InputRole>,
}

impl Model {
    /// Reads and checks a file. Tensors in other files are looked for next to it, when they are
    /// needed.
    ///
    /// # Errors
    /// When the file cannot be read, or is no valid ONNX model.
    ///
    /// ```
    /// let model = posenc_onnx::Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// assert_eq!(model.inspect().attention.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, posenc_ir::Error> {
        Self::checked(posenc_ir::Model::open(path)?)
    }

    /// Reads and checks the bytes of a file. The model must hold its tensors itself.
    ///
    /// # Errors
    /// When the bytes are no valid ONNX model.
    ///
    /// ```
    /// let bytes = std::fs::read("../../fixtures/mini/alibi/model.onnx")?;
    /// let model = posenc_onnx::Model::from_bytes(bytes)?;
    /// assert_eq!(model.inspect().encodings[0].kind.to_string(), "alibi");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, posenc_ir::Error> {
        Self::checked(posenc_ir::Model::from_bytes(bytes.into())?)
    }

    /// Checks a model that was read before.
    ///
    /// # Errors
    /// When it is not valid.
    ///
    /// ```
    /// let read = posenc_ir::Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let model = posenc_onnx::Model::checked(read)?;
    /// assert!(model.warnings().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checked(model: posenc_ir::Model) -> Result<Self, posenc_ir::Error> {
        let warnings = model.check()?;
        Ok(Self {
            model,
            warnings,
            custom: vec![],
            roles: BTreeMap::new(),
        })
    }

    /// Recognizes score biases of this family too, besides those that this crate knows. It must be
    /// a family of [`Entry::ScoreBias`](crate::encodings::family::Entry::ScoreBias) with a word of
    /// its own; `examples/custom.rs` has one.
    ///
    /// # Errors
    /// When the family enters in another way, or its word is taken.
    ///
    /// ```
    /// use posenc_onnx::{Model, encodings::families::alibi};
    ///
    /// let model = Model::open("../../fixtures/mini/alibi/model.onnx")?;
    /// let refusal = model.with_family(&alibi::FAMILY).unwrap_err();
    /// assert_eq!(refusal.reason(), "a family named alibi exists already");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_family(mut self, family: &'static Family) -> Result<Self, Refusal> {
        check_custom(family)?;
        self.custom.push(family);
        Ok(self)
    }

    /// Gives inputs their roles by name, where neither the name nor the use tells them. These replace roles given
    /// before; a role in a request counts more.
    ///
    /// # Errors
    /// When a name is no input, or the type, the rank or the use of one contradicts its role.
    ///
    /// ```
    /// use posenc_onnx::{Model, request::InputRole};
    ///
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let roles = [("where".to_owned(), InputRole::Position)].into();
    /// let refusal = model.with_input_roles(roles).unwrap_err();
    /// assert!(refusal.reason().contains("no input of the model"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_input_roles(mut self, given: BTreeMap<String, InputRole>) -> Result<Self, Refusal> {
        given::check(self.model.graph(), &roles(&given))?;
        self.roles = given;
        Ok(self)
    }

    /// What is unusual about the file, though valid.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The graph and everything else of the file.
    pub fn as_ir(&self) -> &posenc_ir::Model {
        &self.model
    }

    /// What the model encodes positions with, at which sites, and what limits its length. The
    /// report is the JSON of `posenc-onnx inspect` as a type.
    ///
    /// ```
    /// let model = posenc_onnx::Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let json = serde_json::to_value(model.inspect())?;
    /// assert_eq!(json["encodings"][0]["params"]["theta"], 10000.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(&self) -> Inspect {
        inspect(&self.model, &self.options())
    }

    /// What the encodings compute, as numbers to draw: wavelengths and frequencies of rotations, their cosines
    /// and sines, and the similarity of equal vectors over their distance; biases over distance or over the
    /// offset in a window; tables, and how similar their rows are, as pictures.
    pub fn figures(&self) -> Vec<Figure> {
        figures(&self.model, &self.options())
    }

    /// Whether nothing in the graph can encode a position, as in one that only looks up embeddings. It is
    /// `false` where something that may do so was not read.
    ///
    /// ```
    /// # use posenc_onnx::Model;
    /// let is_without = |name| -> Result<bool, Box<dyn std::error::Error>> {
    ///     Ok(Model::open(format!("../../fixtures/mini/{name}/model.onnx"))?.encodes_no_position())
    /// };
    /// assert!(is_without("none")? && !is_without("rope")? && !is_without("conv")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encodes_no_position(&self) -> bool {
        positionless::encodes_no_position(&self.model, &self.options())
    }

    /// In what a Hugging Face config contradicts the graph, in words: the law, the base or the widths of
    /// rotations, and the rows of a learned table. `None` where it does not, where it says nothing of them,
    /// and where it may be that of another model or cannot be compared.
    ///
    /// ```
    /// # use posenc_onnx::Model;
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let why = model.contradiction(&json!({"rope_theta": 5e5})).unwrap();
    /// assert_eq!(why, "layer 0 has the base 500000 in the config (rope_theta) and 10000 in the graph");
    /// assert_eq!(model.contradiction(&json!({"rope_theta": 1e4})), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contradiction(&self, config: &serde_json::Value) -> Option<String> {
        contradiction(&self.model, &self.options(), config)
    }

    /// How the model is detected.
    fn options(&self) -> Options {
        Options {
            custom: self.custom.clone(),
            roles: roles(&self.roles),
            ..Options::default()
        }
    }

    /// Decides what a request changes; nothing is edited yet. The request is a
    /// [`Rescale`](crate::Rescale), a [`Swap`](crate::Swap), or a [`Request`] with every option
    /// there is.
    ///
    /// # Errors
    /// When an option is not supported or has no effect, the request does not fit the model, or a
    /// needed value is unknown.
    ///
    /// ```
    /// use posenc_onnx::request::Request;
    ///
    /// let model = posenc_onnx::Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let request = r#"{"scale": "linear", "parameters": {"factor": 2.0}}"#;
    /// let request: Request = serde_json::from_str(request)?;
    /// let plan = model.plan(request)?;
    /// assert!(plan.to_string().contains("linear"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(&self, request: impl Into<Request>) -> Result<Plan<'_>, RewriteError> {
        let mut request = request.into();
        for (name, role) in &self.roles {
            let own = request.input_roles.entry(name.clone());
            own.or_insert(*role);
        }
        rewrite::plan(&self.model, request, &self.custom).map(Plan::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rescale;

    #[test]
    fn a_role_in_a_request_counts_more_than_that_of_the_model() {
        let model = || Model::open("../../fixtures/llama-posids/torchscript/model.onnx").unwrap();
        let roles = |role| BTreeMap::from([("position_ids".to_owned(), role)]);
        let content = model().with_input_roles(roles(InputRole::Content)).unwrap();
        assert_ne!(content.inspect().encodings, model().inspect().encodings);
        assert!(content.plan(Rescale::linear(2.0)).is_err());
        let request = Request {
            input_roles: roles(InputRole::Position),
            ..Rescale::linear(2.0).into()
        };
        assert!(content.plan(request).is_ok());
        // What is given again replaces what was given before.
        let again = content.with_input_roles(BTreeMap::new()).unwrap();
        assert_eq!(again.inspect().encodings, model().inspect().encodings);
    }
}
