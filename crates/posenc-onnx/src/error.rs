//! Why a request is refused.

use std::fmt;

use posenc_encodings::param::ParameterError;

/// Why a model is not rewritten.
///
/// ```
/// # use posenc_onnx::{Model, Rescale, RewriteError};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// match model.plan(Rescale::yarn(4.0)) {
///     Err(RewriteError::Refused(why)) => assert!(why.reason().contains("`original-length`")),
///     other => panic!("the original length is unknown: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The request does not fit the model, or is not supported.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model is invalid.
    #[error(transparent)]
    Model(#[from] posenc_ir::Error),
    /// The result is invalid: a fault of this library.
    #[error("the result is invalid: {0}")]
    Result(posenc_ir::Error),
}

impl RewriteError {
    /// The refusal, unless the model itself is invalid.
    ///
    /// ```
    /// # use posenc_onnx::{Model, RefusalKind, Rescale};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let error = model.plan(Rescale::yarn(4.0)).unwrap_err();
    /// assert_eq!(error.refusal().unwrap().kind(), &RefusalKind::Unsupported);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Model(_) | Self::Result(_) => None,
        }
    }
}

/// A request that is refused: why, and where in the model.
///
/// The reason is a sentence for people. It names options in backticks and with hyphens:
/// `` `max-length` `` is the field `max_length` of [`Parameters`](crate::request::Parameters).
///
/// ```
/// # use posenc_onnx::{Model, RefusalKind, Rescale};
/// let model = Model::open("../../fixtures/llama-yarn/torchscript/model.onnx")?;
/// let error = model.plan(Rescale::linear(2.0)).unwrap_err();
/// let refusal = error.refusal().unwrap();
/// assert_eq!(refusal.kind(), &RefusalKind::AlreadyScaled);
/// assert!(refusal.reason().contains("give `allow-rescale`"));
/// assert!(refusal.node().is_some_and(|node| node.contains("layers.0/self_attn")));
/// assert_eq!(refusal.site(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    kind: RefusalKind,
    reason: String,
    node: Option<String>,
    site: Option<String>,
}

/// What kind of reason a [`Refusal`] has. Names of parameters have hyphens, as in
/// reasons.
///
/// ```
/// # use posenc_onnx::{Model, RefusalKind, Rescale};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let error = model.plan(Rescale::yarn(4.0)).unwrap_err();
/// let kind = error.refusal().unwrap().kind();
/// assert_eq!(kind, &RefusalKind::MissingParameter("original-length"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The model has no attention to work on.
    NoSite,
    /// The parameter is not given, and cannot be inferred from the model.
    MissingParameter(&'static str),
    /// The value of a parameter is out of range, or contradicts the model.
    InvalidParameter,
    /// The parameter has no effect on what is requested.
    NoEffect(&'static str),
    /// The model is scaled already, and the request does not allow to replace that.
    AlreadyScaled,
    /// The option is not supported yet.
    UnsupportedOption(&'static str),
    /// Something in the model that may encode position was not read.
    Unread,
    /// The model has a form that is not supported.
    Unsupported,
}

impl Refusal {
    /// A refusal of this kind, without a place.
    ///
    /// ```
    /// use posenc_onnx::{Refusal, RefusalKind};
    ///
    /// let refusal = Refusal::new(RefusalKind::NoSite, "the model has no attention");
    /// assert_eq!(refusal.to_string(), "the model has no attention");
    /// ```
    pub fn new(kind: RefusalKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            node: None,
            site: None,
        }
    }

    /// The model has nothing to work on.
    pub(crate) fn no_site(reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::NoSite, reason)
    }

    /// A parameter that is needed is unknown.
    pub(crate) fn missing(name: &'static str, reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::MissingParameter(name), reason)
    }

    /// A value is out of range or contradicts the model.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidParameter, reason)
    }

    /// A form of the model is not supported.
    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::Unsupported, reason)
    }

    /// The same at a node, by its place in the graph.
    pub(crate) fn at(self, node: impl Into<String>) -> Self {
        Self {
            node: Some(node.into()),
            ..self
        }
    }

    /// The same at an attention site, by its name.
    pub(crate) fn in_site(self, site: impl Into<String>) -> Self {
        Self {
            site: Some(site.into()),
            ..self
        }
    }

    /// What kind of reason it is.
    ///
    /// The example of [`Refusal`] calls it.
    pub fn kind(&self) -> &RefusalKind {
        &self.kind
    }

    /// The reason as a sentence, without the node.
    ///
    /// The example of [`Refusal`] calls it.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The node that the reason is about, by its place in the graph.
    ///
    /// The example of [`Refusal`] calls it.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The attention site that the reason is about, by its name in reports.
    ///
    /// The example of [`Refusal`] calls it.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }
}

impl From<ParameterError> for Refusal {
    fn from(error: ParameterError) -> Self {
        match error {
            ParameterError::Missing {
                parameter,
                help,
                of,
            } => Self::missing(parameter, format!("{of} needs `{parameter}`: {help}")),
            ParameterError::Ineffective { parameter, of } => Self::new(
                RefusalKind::NoEffect(parameter),
                format!("`{parameter}` has no effect on {of}; remove it"),
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "{node}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_named_first() {
        let refusal = Refusal::missing("theta", "cannot infer the base: give `theta`");
        assert_eq!(refusal.to_string(), "cannot infer the base: give `theta`");
        assert_eq!((refusal.node(), refusal.site()), (None, None));
        let refusal = refusal.at("layers.0/Mul").in_site("layers.0");
        let want = "layers.0/Mul: cannot infer the base: give `theta`";
        assert_eq!(refusal.to_string(), want);
        assert_eq!(refusal.reason(), "cannot infer the base: give `theta`");
        assert_eq!(refusal.node(), Some("layers.0/Mul"));
        assert_eq!(refusal.site(), Some("layers.0"));
        assert_eq!(refusal.kind(), &RefusalKind::MissingParameter("theta"));
    }
}
