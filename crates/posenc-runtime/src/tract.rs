//! tract, compiled in.
//!
//! tract runs only what it has optimized at concrete shapes: un-optimized, it gives silently wrong
//! results for some models. A model that it cannot optimize is refused. Its panics become errors.

mod guard;
mod refuse;
mod session;
mod value;

use std::path::Path;

use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::Framework;

use crate::backend::{Backend, ModelSource, Optimization, Options, Provider, Session};
use crate::error::{Result, RuntimeError};
use guard::guarded;

/// The name of the runtime.
const NAME: &str = "tract";

/// The version that this crate is built with; a test holds it against the workspace's manifest.
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

    /// Loads a model; the weights in it are copied, so cut a large model down first.
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
            // Declared shapes and types may be symbolic or wrong; what is fed decides.
            .with_ignore_output_shapes(true)
            .with_ignore_output_types(true)
            .with_ignore_value_info(true);
        let (proto, folder) = guarded(|| read(&framework, model))?;
        refuse::check(&framework, &proto)?;
        let folder = match folder.map(Path::to_str) {
            Some(None) => {
                let why = "the folder's name is no valid Unicode";
                return Err(RuntimeError::unsupported(NAME, why));
            }
            Some(folder) => folder,
            None => None,
        };
        let parsed = guarded(|| {
            framework
                .parse(&proto, folder)
                .map_err(|e| RuntimeError::unsupported(NAME, chain(&e)))
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
    let proto = proto.map_err(|e| RuntimeError::unsupported(NAME, chain(&e)))?;
    Ok((proto, folder))
}

/// An error with its causes, outermost first.
fn chain(error: &tract_onnx::prelude::TractError) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_manifest() {
        let manifest = include_str!("../../../Cargo.toml");
        assert!(manifest.contains(&format!("tract-onnx = \"={VERSION}\"")));
    }
}
