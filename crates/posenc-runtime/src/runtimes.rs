//! Which runtimes and execution providers there are.

use std::path::PathBuf;

use crate::discover::Places;

/// One runtime.
#[derive(Clone, Debug)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: &'static str,
    /// Its version; `None` where it cannot be had.
    pub version: Option<String>,
    /// The library's file; `None` for what is compiled in.
    pub path: Option<PathBuf>,
    /// Why it cannot be had; `None` where it can.
    pub missing: Option<String>,
    /// Its execution providers, those that do not work included.
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

/// Every runtime that this build knows. A provider counts as working when a session accepts it,
/// not when the library says that it was compiled in.
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
    let tract = crate::TractBackend::new();
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

#[cfg(any(feature = "tract", feature = "ort"))]
fn working(name: impl Into<String>) -> ProviderState {
    ProviderState {
        name: name.into(),
        missing: None,
    }
}

#[cfg(feature = "ort")]
fn onnxruntime(places: &Places) -> Option<RuntimeInfo> {
    use crate::backend::{Backend, Provider};
    let name = "onnxruntime";
    let ort = match crate::OrtBackend::open(places) {
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
    let cuda = Provider::Cuda { device: 0 };
    providers.push(ProviderState {
        name: cuda.to_string(),
        missing: ort.probe(&cuda).err().map(|e| e.to_string()),
    });
    let own = ["CPUExecutionProvider", "CUDAExecutionProvider"];
    for name in ort.device_providers() {
        if !own.contains(&name.as_str()) {
            let missing = ort.probe(&Provider::Other(name.clone())).err();
            providers.push(ProviderState {
                name,
                missing: missing.map(|e| e.to_string()),
            });
        }
    }
    Some(RuntimeInfo {
        name,
        version: Some(ort.version()),
        path: Some(ort.path().to_path_buf()),
        missing: None,
        providers,
    })
}
