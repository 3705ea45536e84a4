//! Loading and running a whole model in one runtime.

use std::path::Path;

use posenc_ir::{Model, Tensor};
use posenc_runtime::{
    Backend, Fallback, ModelSource, Optimization, Options, Placement, Provider, RuntimeError,
    Session,
};

use super::VerifyError;
use super::feeds::Padding;
use super::options::VerifyOptions;
use crate::graph::ports::Lengths;
use crate::report::Run;

/// A runtime with an execution provider.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeTarget<'a> {
    /// The runtime.
    pub backend: &'a dyn Backend,
    /// Its execution provider.
    pub provider: Provider,
    /// Whether nodes may run on another provider.
    pub fallback: Fallback,
}

impl RuntimeTarget<'_> {
    /// How messages name it.
    pub(crate) fn setting(&self, optimization: Optimization) -> String {
        let optimization = on_or_off(optimization);
        let (backend, provider) = (self.backend.name(), &self.provider);
        format!("{backend} on {provider}, optimization {optimization}")
    }

    /// What was compared of an output, as a row of this run.
    pub(super) fn row(
        &self,
        optimization: Optimization,
        (at, padding): (Lengths, Padding),
        output: String,
        compared: Run,
    ) -> Run {
        Run {
            runtime: self.backend.name().to_owned(),
            provider: self.provider.to_string(),
            optimization: on_or_off(optimization).to_owned(),
            length: at.sequence,
            batch: at.batch,
            padding: padding.to_string(),
            output,
            ..compared
        }
    }

    /// Loads a model; `None` if the runtime does not support this optimization setting.
    pub(crate) fn open(
        &self,
        model: &Source,
        optimization: Optimization,
    ) -> Result<Option<Box<dyn Session>>, VerifyError> {
        let options = Options {
            provider: self.provider.clone(),
            optimization,
            fallback: self.fallback,
            placement: Placement::Recorded,
        };
        match self.backend.load(model.source(), &options) {
            Ok(session) => Ok(Some(session)),
            Err(RuntimeError::Unsupported { .. }) if optimization == Optimization::Off => Ok(None),
            Err(error) => Err(VerifyError::runtime(self.setting(optimization), error)),
        }
    }
}

/// A runtime that runs everything on one provider.
impl Backend for RuntimeTarget<'_> {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn version(&self) -> String {
        self.backend.version()
    }

    fn load(
        &self,
        model: ModelSource<'_>,
        options: &Options,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        let options = Options {
            provider: self.provider.clone(),
            fallback: self.fallback,
            ..options.clone()
        };
        self.backend.load(model, &options)
    }
}

/// What is run on its own runs on the targets, too.
pub(super) fn as_backends<'a>(targets: &'a [RuntimeTarget<'a>]) -> Vec<&'a dyn Backend> {
    targets
        .iter()
        .map(|target| target as &dyn Backend)
        .collect()
}

/// The targets of the options; every runtime on the processor where none is named.
pub(super) fn targets<'a>(
    options: &VerifyOptions,
    backends: &'a [Box<dyn Backend>],
) -> Result<Vec<RuntimeTarget<'a>>, VerifyError> {
    let providers: Vec<(usize, Provider)> = if options.providers.is_empty() {
        (0..backends.len()).map(|i| (i, Provider::Cpu)).collect()
    } else {
        options.providers.clone()
    };
    let target = |(i, provider): (usize, Provider)| {
        let backend = backends.get(i).ok_or_else(|| {
            let why = format!("there are {} runtimes", backends.len());
            let missing = RuntimeError::unavailable(format!("runtime {i}"), why);
            VerifyError::runtime("verify", missing)
        })?;
        Ok(RuntimeTarget {
            backend: backend.as_ref(),
            provider,
            fallback: options.fallback,
        })
    };
    providers.into_iter().map(target).collect()
}

/// Loads a model with this optimization, or with all of it where the runtime has no other.
pub(crate) fn load(
    backend: &dyn Backend,
    model: ModelSource<'_>,
    optimization: Optimization,
) -> Result<Box<dyn Session>, RuntimeError> {
    let with = |optimization| Options {
        optimization,
        ..Options::default()
    };
    match backend.load(model, &with(optimization)) {
        Err(RuntimeError::Unsupported { .. }) if optimization == Optimization::Off => {
            backend.load(model, &with(Optimization::On))
        }
        loaded => loaded,
    }
}

/// `on` or `off`.
pub(crate) fn on_or_off(optimization: Optimization) -> &'static str {
    match optimization {
        Optimization::On => "on",
        Optimization::Off => "off",
    }
}

/// A model as a runtime loads it: its file, or its bytes where it has been changed.
#[derive(Debug)]
pub(crate) struct Source {
    bytes: bytes::Bytes,
    path: Option<std::path::PathBuf>,
    is_file: bool,
}

impl Source {
    pub(crate) fn of(model: &Model) -> Result<Self, VerifyError> {
        let bytes = model.to_bytes()?;
        // An unchanged model is loaded from its file, without a second copy in memory; one that was read
        // from memory may have the path of no file.
        let is_file = model.path().is_some_and(Path::is_file) && bytes == **model.source();
        Ok(Self {
            bytes: if is_file {
                bytes::Bytes::new()
            } else {
                bytes.into()
            },
            path: model.path().map(Path::to_owned),
            is_file,
        })
    }

    pub(crate) fn source(&self) -> ModelSource<'_> {
        match &self.path {
            Some(path) if self.is_file => ModelSource::File(path),
            path => ModelSource::Bytes {
                model: &self.bytes,
                folder: path.as_deref().and_then(Path::parent),
            },
        }
    }
}

/// Outputs by name, in the model's order.
pub(crate) type Outputs = Vec<(String, Tensor)>;

/// Runs a session with those of the feeds that are its inputs.
pub(crate) fn run(
    session: &mut dyn Session,
    feeds: &[(String, Tensor)],
    site: &str,
) -> Result<Outputs, VerifyError> {
    let inputs: Vec<&str> = session.inputs().iter().map(|p| p.name.as_str()).collect();
    let feeds: Vec<(&str, Tensor)> = feeds
        .iter()
        .filter(|(name, _)| inputs.contains(&name.as_str()))
        .map(|(name, tensor)| (name.as_str(), tensor.clone()))
        .collect();
    let outputs = session.run(&feeds, &[]);
    outputs.map_err(|e| VerifyError::runtime(site, e))
}
