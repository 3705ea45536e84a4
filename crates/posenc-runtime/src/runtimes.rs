//! The available runtimes and execution providers.

use std::path::PathBuf;

use crate::discover::Places;

/// One runtime.
#[derive(Clone, Debug)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: &'static str,
    /// Its version; `None` where it is not available.
    pub version: Option<String>,
    /// The library's file; `None` for a compiled-in runtime.
    pub path: Option<PathBuf>,
    /// Why it is not available; `None` where it is.
    pub missing: Option<String>,
    /// Its execution providers, including those that do not work.
    pub providers: Vec<ProviderState>,
}

/// One execution provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderState {
    /// The name that selects it.
    pub name: String,
    /// Why it does not work; `None` where it does.
    pub missing: Option<String>,
}

/// Why a provider does not work that the library was not built with.
pub const NOT_BUILT: &str = "this library was not built with it";

/// Every runtime of this build. A provider works where a session accepts it; that the library was
/// compiled with it is not enough.
pub fn runtimes(places: &Places) -> Vec<RuntimeInfo> {
    [tract(), onnxruntime(places)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(not(feature = "tract"))]
fn tract() -> Option<RuntimeInfo> {
    None
}

#[cfg(feature = "tract")]
fn tract() -> Option<RuntimeInfo> {
    use crate::backend::Backend;
    let tract = crate::tract::TractBackend::new();
    Some(RuntimeInfo {
        name: tract.name(),
        version: Some(tract.version()),
        path: None,
        missing: None,
        providers: vec![working("cpu")],
    })
}

#[cfg(not(feature = "ort"))]
fn onnxruntime(_places: &Places) -> Option<RuntimeInfo> {
    None
}

#[cfg(feature = "ort")]
fn is_known(name: &str) -> bool {
    let mut known = crate::provider::WORDS.iter();
    known.any(|(_, own)| *own == name)
}

#[cfg(any(feature = "tract", feature = "ort"))]
fn working(name: impl Into<String>) -> ProviderState {
    ProviderState {
        name: name.into(),
        missing: None,
    }
}

#[cfg(feature = "ort")]
fn onnxruntime(places: &Places) -> Option<RuntimeInfo> {
    use crate::backend::Backend;
    use crate::error::RuntimeError;
    use crate::provider::{ExecutionProvider, Provider, WORDS};
    let name = "onnxruntime";
    let ort = match crate::ort::OrtBackend::open(places) {
        Ok(ort) => ort,
        Err(error) => {
            return Some(RuntimeInfo {
                name,
                version: None,
                path: None,
                missing: Some(error.to_string()),
                providers: Vec::new(),
            });
        }
    };
    let mut providers = vec![working("cpu")];
    let of_devices = ort.device_providers();
    let mut names: Vec<&str> = WORDS.iter().map(|(_, name)| *name).collect();
    let others = of_devices.iter().map(|name| &**name);
    names.extend(others.filter(|name| *name != "CPUExecutionProvider" && !is_known(name)));
    for name in names {
        let provider = ExecutionProvider::named(name);
        let word = provider.word().to_owned();
        let missing = match ort.probe(&Provider::Other(provider)) {
            Ok(()) => None,
            Err(RuntimeError::Unavailable { why, .. }) if why.starts_with(NOT_BUILT) => {
                Some(NOT_BUILT.to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        providers.push(ProviderState {
            name: word,
            missing,
        });
    }
    // Those of this library first.
    providers.sort_by_key(|own| own.missing.as_deref() == Some(NOT_BUILT));
    Some(RuntimeInfo {
        name,
        version: Some(ort.version()),
        path: Some(ort.path().to_path_buf()),
        missing: None,
        providers,
    })
}
