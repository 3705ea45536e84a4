//! Why a runtime gave no result.

/// Why a runtime gave no result, as one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The runtime or the execution provider is not on this machine.
    #[error("{what} is not available: {why}")]
    Unavailable {
        /// The runtime or the provider.
        what: String,
        /// What was tried, and what to do.
        why: String,
    },
    /// The runtime refuses this model or these options.
    #[error("{runtime} cannot run this model: {why}")]
    Unsupported {
        /// The runtime.
        runtime: &'static str,
        /// The operator or form, with its node where there is one.
        why: String,
    },
    /// The runtime accepted the model and failed during a run.
    #[error("{runtime} failed: {why}")]
    Failed {
        /// The runtime.
        runtime: &'static str,
        /// The message of the runtime.
        why: String,
    },
    /// An input is missing, unknown, or has the wrong type or shape.
    #[error("input {name}: {why}")]
    Feed {
        /// The input.
        name: String,
        /// What is wrong with its feed.
        why: String,
    },
    /// The model has no output of this name.
    #[error("the model has no output {name}; it has {known}")]
    Output {
        /// The requested name.
        name: String,
        /// The names of the outputs.
        known: String,
    },
}

/// A result with [`RuntimeError`].
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

impl RuntimeError {
    /// The runtime or provider `what` is not available.
    pub fn unavailable(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Unavailable {
            what: what.into(),
            why: why.into(),
        }
    }

    /// `runtime` refuses the model; `why` is cut to one line.
    pub fn unsupported(runtime: &'static str, why: impl AsRef<str>) -> Self {
        Self::Unsupported {
            runtime,
            why: one_line(why.as_ref()),
        }
    }

    /// `runtime` failed during a run; `why` is cut to one line.
    pub fn failed(runtime: &'static str, why: impl AsRef<str>) -> Self {
        Self::Failed {
            runtime,
            why: one_line(why.as_ref()),
        }
    }

    /// The feed of input `name` does not fit.
    pub fn feed(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Feed {
            name: name.into(),
            why: why.into(),
        }
    }

    /// `name` is not among the outputs `known`.
    pub fn output(name: impl Into<String>, known: &[String]) -> Self {
        Self::Output {
            name: name.into(),
            known: known.join(", "),
        }
    }
}

/// The longest message of a runtime that is kept, in bytes.
const LONGEST: usize = 400;

/// A message of a runtime on one line: white space folded, cut at [`LONGEST`].
pub(crate) fn one_line(message: &str) -> String {
    let mut line = String::new();
    for word in message.split_whitespace() {
        if line.len() + word.len() > LONGEST {
            line.push_str(" …");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_runtime_become_one_short_line() {
        let long = "word ".repeat(1000);
        for (name, message) in [("lines", "a\n  b\tc"), ("long", &long), ("empty", "")] {
            let line = one_line(message);
            assert!(!line.contains('\n'), "{name}");
            assert!(line.len() <= LONGEST + 5, "{name}");
        }
        assert_eq!(one_line("a\n  b\tc"), "a b c");
    }
}
