//! ONNX Runtime, loaded from a library file at run time.

mod crash;
mod error;
mod library;
mod placement;
mod provider;
mod session;
mod value;

use ::ort::session::Session as OrtSession;
use ::ort::session::builder::{AutoDevicePolicy, GraphOptimizationLevel, SessionBuilder};

use crate::backend::{Backend, Fallback, ModelSource, Optimization, Options, Placement, Session};
use crate::discover::Places;
use crate::error::{Result, RuntimeError};
use crate::provider::Provider;
use error::{NAME, refused};
use library::Library;
use placement::Recorder;

/// ONNX Runtime 1.24 or newer.
///
/// A process has one library: the first that is opened stays, and opening a library at another
/// path fails.
#[derive(Clone, Copy, Debug)]
pub struct OrtBackend {
    library: &'static Library,
}

impl OrtBackend {
    /// Loads the first candidate at `places` that is a library of ONNX Runtime.
    ///
    /// # Errors
    /// `Unavailable` with every library that was tried, and why it is not used.
    pub fn open(places: &Places) -> Result<Self> {
        library::open(places).map(|library| Self { library })
    }

    /// The library's file; a bare name where the system's loader found it.
    pub fn path(&self) -> &std::path::Path {
        &self.library.path
    }

    /// Whether a session can run on this provider.
    ///
    /// # Errors
    /// `Unavailable` with the message of the runtime.
    pub fn probe(&self, provider: &Provider) -> Result<()> {
        let builder = self.builder()?;
        self.register(builder, provider).map(|_| ())
    }

    /// The names of the providers of the devices of this machine, sorted.
    pub fn device_providers(&self) -> Vec<String> {
        self.library.device_providers()
    }

    fn builder(&self) -> Result<SessionBuilder> {
        OrtSession::builder(&self.library.environment)
            // By default the runtime may pick a device that was not requested.
            .and_then(|b| Ok(b.with_auto_device(AutoDevicePolicy::PreferCPU)?))
            .map_err(refused)
    }

    fn register(&self, builder: SessionBuilder, provider: &Provider) -> Result<SessionBuilder> {
        match provider {
            Provider::Cpu => self.library.with_processor(builder),
            Provider::Other(provider) => self.library.with_provider(builder, provider),
        }
    }
}

impl Backend for OrtBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        self.library.version.clone()
    }

    fn load(&self, model: ModelSource<'_>, options: &Options) -> Result<Box<dyn Session>> {
        if options.provider == Provider::Cpu {
            crash::check(&model)?;
        }
        let level = match options.optimization {
            Optimization::Off => GraphOptimizationLevel::Disable,
            Optimization::On => GraphOptimizationLevel::All,
        };
        let builder = self.builder()?.with_optimization_level(level);
        let mut builder = self.register(builder.map_err(refused)?, &options.provider)?;
        // The processor is no fallback where it is the provider.
        if options.fallback == Fallback::Refused && options.provider != Provider::Cpu {
            builder = builder.with_disable_cpu_fallback().map_err(refused)?;
        }
        let recorder = match options.placement {
            Placement::Ignored => None,
            Placement::Recorded => Some(Recorder::new()?),
        };
        if let Some(recorder) = &recorder {
            builder = builder.with_profiling(recorder.prefix()).map_err(refused)?;
        }
        let session = match model {
            ModelSource::File(path) => builder.commit_from_file(path),
            ModelSource::Bytes { model, folder } => {
                if let Some(folder) = folder {
                    let folder = folder.to_str().ok_or_else(|| {
                        RuntimeError::unsupported(NAME, "the folder's name is not valid Unicode")
                    })?;
                    let key = "session.model_external_initializers_file_folder_path";
                    builder = builder.with_config_entry(key, folder).map_err(refused)?;
                }
                builder.commit_from_memory(model)
            }
        };
        let session = session::OrtRun::new(session.map_err(refused)?, recorder);
        Ok(Box::new(session))
    }
}
