//! Why a request is refused.

use std::fmt;

use posenc_encodings::param::ParameterError;
use posenc_ir::ErrorKind;

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
    /// The error of an edit: that a patch cannot be applied says that the form of the model is not
    /// supported, as the model itself was found to be valid.
    pub(crate) fn of_edit(self) -> Self {
        match self {
            Self::Model(error)
                if matches!(error.kind(), ErrorKind::Invalid(_) | ErrorKind::Patch(_)) =>
            {
                let why = format!("the edit cannot be made: {}", error.kind());
                let refusal = Refusal::unsupported(why);
                Self::Refused(match error.place() {
                    Some(node) => refusal.at(node),
                    None => refusal,
                })
            }
            other => other,
        }
    }

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

    /// The same with advice behind the reason.
    pub(crate) fn with(self, advice: &str) -> Self {
        Self {
            reason: self.reason + advice,
            ..self
        }
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
    pub fn kind(&self) -> &RefusalKind {
        &self.kind
    }

    /// The reason as a sentence, without the node.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The node that the reason is about, by its place in the graph.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The attention site that the reason is about, by its name in reports.
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

    #[test]
    fn an_edit_that_cannot_be_made_is_a_refusal_and_other_errors_stay() {
        use posenc_ir::Error;
        let cycle = Error::invalid("the node depends on its own output").at("g/Add_3");
        for error in [cycle, Error::patch("it has another type").at("g/Add_3")] {
            let sentence = error.kind().to_string();
            let done = RewriteError::Model(error).of_edit();
            let refusal = done.refusal().expect("it is a refusal");
            assert_eq!(refusal.kind(), &RefusalKind::Unsupported);
            assert_eq!(refusal.node(), Some("g/Add_3"));
            let want = format!("the edit cannot be made: {sentence}");
            assert_eq!(refusal.reason(), want);
        }
        let absent = std::io::Error::from(std::io::ErrorKind::NotFound);
        for error in [Error::io("m.data", absent), Error::decode("truncated")] {
            assert_eq!(RewriteError::Model(error).of_edit().refusal(), None);
        }
        let invalid = RewriteError::Result(Error::invalid("a name is used twice"));
        assert_eq!(invalid.of_edit().refusal(), None);
    }
}
