//! The one library of the process.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;

use crate::discover::{Candidate, Places, Source, candidates, file_version};
use crate::error::{Result, RuntimeError};

/// A loaded library.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) environment: Environment,
    /// The plugins that were loaded: the name of a provider, and the file.
    pub(super) plugins: Mutex<BTreeSet<(String, PathBuf)>>,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();
/// Locked while a library is loaded, so that two threads do not load two.
static LOADING: Mutex<()> = Mutex::new(());

/// The library of the process, loaded from the first candidate that is a library of ONNX Runtime.
///
/// Nothing else of `ort` may be called before this succeeds: it would load a library by itself, and
/// panic where it finds none.
pub(super) fn open(places: &Places) -> Result<&'static Library> {
    let _guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tried = Vec::new();
    for candidate in candidates(places) {
        match load(&candidate) {
            Ok(library) => return Ok(library),
            Err(why) => tried.push(format!("{} ({why})", candidate.path.display())),
        }
    }
    let tried = if tried.is_empty() {
        "no library was found".to_owned()
    } else {
        format!("tried {}", tried.join(", "))
    };
    let hint = "run `pip install onnxruntime`, or set ORT_DYLIB_PATH to the library";
    let why = format!("{tried}; {hint}");
    Err(RuntimeError::unavailable("ONNX Runtime", why))
}

fn load(candidate: &Candidate) -> Result<&'static Library, String> {
    let path = match candidate.source {
        Source::System => candidate.path.clone(),
        // An absolute path: a relative one is looked up in the folder of the executable first.
        _ => (candidate.path.canonicalize()).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => e.to_string(),
        })?,
    };
    if path.is_dir() {
        return Err("there is no library in this folder".to_owned());
    }
    if let Some(loaded) = LIBRARY.get() {
        if loaded.path == path {
            return Ok(loaded);
        }
        let used = loaded.path.display();
        return Err(format!("this process already uses {used}"));
    }
    let environment = catch_unwind(AssertUnwindSafe(|| initialize(&path)))
        .unwrap_or_else(|_| Err("it panicked while it was loaded".to_owned()))?;
    // Errors are returned; the library must not print them too.
    environment.set_log_level(LogLevel::Fatal);
    let version = version(&path);
    Ok(LIBRARY.get_or_init(|| Library {
        path,
        version,
        environment,
        plugins: Mutex::default(),
    }))
}

fn initialize(path: &Path) -> Result<Environment, String> {
    let builder = ort::init_from(path).map_err(|e| match e {
        LoadDynamicError::Dlopen { .. } => {
            "it is not a library that this machine can load".to_owned()
        }
        LoadDynamicError::MissingApi { .. } => "it is not a library of ONNX Runtime".to_owned(),
        LoadDynamicError::InvalidVersionString => "its version cannot be read".to_owned(),
        LoadDynamicError::BadVersion { version_str, .. } => {
            let oldest = ort::MINOR_VERSION;
            format!("it is version {version_str}, and 1.{oldest} or newer is needed")
        }
    })?;
    builder
        .with_name("posenc-onnx")
        .with_telemetry(false)
        .build()
        .map_err(|e| e.message().to_owned())
}

/// The version in the name of the file that `path` resolves to, else of the Python package around it.
fn version(path: &Path) -> String {
    let of_file = || {
        let file = path.canonicalize().ok()?;
        let numbers = file_version(file.file_name()?.to_str()?)?;
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        Some(numbers.join(".")).filter(|version| !version.is_empty())
    };
    let of_package = || {
        // <packages>/onnxruntime/capi/<library> and <packages>/onnxruntime*-<version>.dist-info
        let packages = path.ancestors().nth(3)?;
        packages.read_dir().ok()?.flatten().find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let stem = name.strip_suffix(".dist-info")?;
            let (package, version) = stem.rsplit_once('-')?;
            package
                .starts_with("onnxruntime")
                .then(|| version.to_owned())
        })
    };
    of_file()
        .or_else(of_package)
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of opening; no test of this process loads a library.
    fn error(places: &Places) -> String {
        let error = open(places).unwrap_err();
        assert!(matches!(error, RuntimeError::Unavailable { .. }));
        error.to_string()
    }

    #[test]
    fn the_error_lists_every_library_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let capi = root.path().join(".onnxruntime/onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        for name in ["libonnxruntime.so.1.31.1", "libonnxruntime.so.1.30.0"] {
            std::fs::write(capi.join(name), "not a library").unwrap();
        }
        let places = Places {
            project: vec![root.path().to_path_buf()],
            ..Places::default()
        };
        let text = error(&places);
        for part in [
            "so.1.31.1 (it is not a library that this machine can load)",
            "so.1.30.0 (it is not a library that this machine can load)",
            "pip install",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_error_says_what_is_wrong_with_an_explicit_place() {
        let root = tempfile::tempdir().unwrap();
        let cases = [
            ("missing.so", "there is no such file"),
            ("", "there is no library in this folder"),
        ];
        for (name, want) in cases {
            let places = Places {
                explicit: Some(root.path().join(name)),
                ..Places::default()
            };
            let text = error(&places);
            assert!(text.contains(want), "{name}: {text}");
        }
    }

    #[test]
    fn without_places_the_error_says_how_to_get_the_library() {
        let text = error(&Places::default());
        for part in [
            "no library was found",
            "pip install onnxruntime",
            "ORT_DYLIB_PATH",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_version_is_read_from_the_file_name_or_the_package() {
        let root = tempfile::tempdir().unwrap();
        let capi = root.path().join("onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        let (plain, numbered) = (
            capi.join("libonnxruntime.so"),
            capi.join("libonnxruntime.so.1.30.2"),
        );
        std::fs::write(&plain, "").unwrap();
        std::fs::write(&numbered, "").unwrap();
        assert_eq!(version(&numbered), "1.30.2");
        assert_eq!(version(&plain), "unknown");
        std::fs::create_dir(root.path().join("numpy-2.0.0.dist-info")).unwrap();
        assert_eq!(version(&plain), "unknown");
        std::fs::create_dir(root.path().join("onnxruntime_gpu-1.29.0.dist-info")).unwrap();
        assert_eq!(version(&plain), "1.29.0");
    }
}
