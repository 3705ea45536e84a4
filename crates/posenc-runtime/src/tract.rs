//! tract, compiled in.
//!
//! Models run only after tract has optimized them at concrete shapes: un-optimized, it gives silently
//! wrong results for some models. A model that it cannot optimize is refused. Its panics become errors.

mod error;
mod guard;
mod refuse;
mod registers;
mod session;
mod value;

use std::path::Path;

use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::Framework;

use crate::backend::{Backend, ModelSource, Optimization, Options, Session};
use crate::error::{Result, RuntimeError};
use crate::provider::Provider;
use error::{NAME, refused};
use guard::guarded;

/// The version in the workspace's manifest; a test compares the two.
const VERSION: &str = "0.23.9";

/// tract, on the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct TractBackend {}

impl TractBackend {
    /// The runtime; there is nothing to open.
    pub fn new() -> Self {
        Self {}
    }
}

impl Backend for TractBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        VERSION.to_owned()
    }

    /// Loads a model. Its weights are copied: cut the nodes of interest out of a large model first.
    fn load(&self, model: ModelSource<'_>, options: &Options) -> Result<Box<dyn Session>> {
        if options.provider != Provider::Cpu {
            let why = "tract runs on the processor only";
            return Err(RuntimeError::unavailable(options.provider.to_string(), why));
        }
        if options.optimization == Optimization::Off {
            let why = "it gives wrong results for some models when it does not optimize them";
            return Err(RuntimeError::unsupported(NAME, why));
        }
        let framework = tract_onnx::onnx()
            // Declared shapes and types may be symbolic or wrong; those of the feeds are used.
            .with_ignore_output_shapes(true)
            .with_ignore_output_types(true)
            .with_ignore_value_info(true);
        let (proto, folder) = guarded(|| read(&framework, model))?;
        refuse::check(&framework, &proto)?;
        let folder = match folder.map(Path::to_str) {
            Some(None) => {
                let why = "the folder's name is not valid Unicode";
                return Err(RuntimeError::unsupported(NAME, why));
            }
            Some(folder) => folder,
            None => None,
        };
        let parsed = guarded(|| {
            let parsed = framework.parse(&proto, folder);
            parsed.map_err(|e| refused(&e))
        })?;
        if let Some(name) = parsed.unresolved_inputs.first() {
            let why = format!("nothing computes {name}");
            return Err(RuntimeError::unsupported(NAME, why));
        }
        let session = session::TractRun::new(&proto, parsed)?;
        Ok(Box::new(session))
    }
}

type Read<'a> = (ModelProto, Option<&'a Path>);

fn read<'a>(framework: &tract_onnx::Onnx, model: ModelSource<'a>) -> Result<Read<'a>> {
    let (proto, folder) = match model {
        ModelSource::File(path) => (framework.proto_model_for_path(path), path.parent()),
        ModelSource::Bytes { mut model, folder } => {
            (framework.proto_model_for_read(&mut model), folder)
        }
    };
    let proto = proto.map_err(|e| refused(&e))?;
    Ok((proto, folder))
}
