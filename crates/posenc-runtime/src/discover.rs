//! Where to look for the library of ONNX Runtime.
//!
//! In this order: the place that the user named, a folder `.onnxruntime` of the project, the
//! installed Python packages, the system's loader. A place that the user named is the only
//! candidate: where it is broken, nothing else is tried.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// The places to look at; the caller gathers them from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The library, or the folder that contains it, as the user named it (`ORT_DYLIB_PATH`).
    pub explicit: Option<PathBuf>,
    /// Folders that may contain a folder `.onnxruntime`, which is what
    /// `pip install --target .onnxruntime onnxruntime` writes: see [`upwards`].
    pub project: Vec<PathBuf>,
    /// Prefixes of Python installations (`VIRTUAL_ENV`, `CONDA_PREFIX`), or folders of the Python
    /// package `onnxruntime` itself.
    pub python: Vec<PathBuf>,
    /// Whether the loader of the operating system is tried with the library's bare name.
    pub system: System,
}

/// Whether the loader of the operating system is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum System {
    /// It is not tried.
    #[default]
    Skipped,
    /// It is tried last.
    Included,
}

/// Why a library is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user named it.
    Explicit,
    /// It is in a folder `.onnxruntime`.
    Project,
    /// It belongs to a Python package.
    Python,
    /// The loader of the operating system may find it.
    System,
}

/// A library to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file; a bare name for [`Source::System`].
    pub path: PathBuf,
    /// Why it is tried.
    pub source: Source,
}

/// The name of the project's own folder for the library.
pub const FOLDER: &str = ".onnxruntime";

/// `folder` and every folder above it.
pub fn upwards(folder: &Path) -> Vec<PathBuf> {
    folder.ancestors().map(Path::to_path_buf).collect()
}

/// The libraries to try, best first. Within a folder the newest version is first.
///
/// Folders that do not exist or cannot be read contain no candidate.
pub fn candidates(places: &Places) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut add = |source, paths: Vec<PathBuf>| {
        for path in paths {
            if !found.iter().any(|known: &Candidate| known.path == path) {
                found.push(Candidate { path, source });
            }
        }
    };
    if let Some(named) = &places.explicit {
        let inside = if named.is_dir() {
            installed(named)
        } else {
            Vec::new()
        };
        let paths = if inside.is_empty() {
            vec![named.clone()]
        } else {
            inside
        };
        add(Source::Explicit, paths);
        return found;
    }
    for folder in &places.project {
        add(Source::Project, installed(&folder.join(FOLDER)));
    }
    for prefix in &places.python {
        add(Source::Python, installed(prefix));
        for packages in site_packages(prefix) {
            add(Source::Python, installed(&packages));
        }
    }
    if places.system == System::Included {
        let names = if cfg!(windows) {
            ["onnxruntime.dll"].as_slice()
        } else if cfg!(target_os = "macos") {
            ["libonnxruntime.dylib", "libonnxruntime.1.dylib"].as_slice()
        } else {
            ["libonnxruntime.so.1", "libonnxruntime.so"].as_slice()
        };
        add(Source::System, names.iter().map(PathBuf::from).collect());
    }
    found
}

/// The libraries of an installation at `folder`: a folder of Python packages, the package
/// `onnxruntime` itself, an unpacked release archive, or the libraries themselves.
fn installed(folder: &Path) -> Vec<PathBuf> {
    ["onnxruntime/capi", "capi", "lib", ""]
        .iter()
        .flat_map(|inner| libraries(&folder.join(inner)))
        .collect()
}

/// The folders of Python packages under a prefix, those of the newest Python first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<(Reverse<Vec<u64>>, PathBuf)> = ["lib", "lib64"]
        .iter()
        .flat_map(|lib| entries(&prefix.join(lib)))
        .filter_map(|(name, path)| {
            let version = numbers(name.strip_prefix("python")?)?;
            Some((Reverse(version), path.join("site-packages")))
        })
        .collect();
    pythons.sort();
    let mut folders: Vec<PathBuf> = pythons.into_iter().map(|(_, path)| path).collect();
    folders.push(prefix.join("Lib").join("site-packages")); // Windows
    folders
}

/// The libraries in `folder`, newest first; one without a version in its name is last.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(Reverse<Vec<u64>>, PathBuf)> = entries(folder)
        .into_iter()
        .filter_map(|(name, path)| Some((Reverse(file_version(&name)?), path)))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The version in the name of a library file, empty where there is none; `None` where the name is
/// not that of the library.
pub(crate) fn file_version(name: &str) -> Option<Vec<u64>> {
    if name.eq_ignore_ascii_case("onnxruntime.dll") {
        return Some(Vec::new());
    }
    let rest = name.strip_prefix("libonnxruntime.")?;
    let version = if rest == "so" || rest == "dylib" {
        ""
    } else if let Some(version) = rest.strip_prefix("so.") {
        version
    } else {
        rest.strip_suffix(".dylib")?
    };
    if version.is_empty() {
        Some(Vec::new())
    } else {
        numbers(version)
    }
}

/// Numbers separated by dots.
fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Names and paths of the entries of `folder`, in the order of the names.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(listing) = folder.read_dir() else {
        return Vec::new();
    };
    let mut found: Vec<(String, PathBuf)> = listing
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these empty files.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        root
    }

    /// The candidates, relative to the root.
    fn found(root: &Path, places: &Places) -> Vec<(String, Source)> {
        candidates(places)
            .into_iter()
            .map(|c| {
                let path = c.path.strip_prefix(root).unwrap_or(&c.path);
                (path.to_str().unwrap().replace('\\', "/"), c.source)
            })
            .collect()
    }

    #[test]
    fn the_newest_version_in_a_folder_is_first() {
        let root = tree(&[
            ".onnxruntime/onnxruntime/capi/libonnxruntime.so",
            ".onnxruntime/onnxruntime/capi/libonnxruntime.so.1.9.2",
            ".onnxruntime/onnxruntime/capi/libonnxruntime.so.1.31.1",
            ".onnxruntime/onnxruntime/capi/libonnxruntime.1.30.0.dylib",
            ".onnxruntime/onnxruntime/capi/libonnxruntime_providers_shared.so",
            ".onnxruntime/onnxruntime/capi/onnxruntime_pybind11_state.so",
        ]);
        let places = Places {
            project: vec![root.path().to_path_buf()],
            ..Places::default()
        };
        let capi = ".onnxruntime/onnxruntime/capi";
        let want = [
            "libonnxruntime.so.1.31.1",
            "libonnxruntime.1.30.0.dylib",
            "libonnxruntime.so.1.9.2",
            "libonnxruntime.so",
        ]
        .map(|name| (format!("{capi}/{name}"), Source::Project));
        assert_eq!(found(root.path(), &places), want);
    }

    #[test]
    fn files_with_other_names_are_not_candidates() {
        for name in [
            "libonnxruntime_providers_cuda.so",
            "libonnxruntime.so.txt",
            "libonnxruntime.so.1.x",
            "libonnxruntime.a",
            "libonnxruntime4j_jni.so",
            "onnxruntime.lib",
            "xlibonnxruntime.so",
        ] {
            assert_eq!(file_version(name), None, "{name}");
        }
        for name in [
            "onnxruntime.dll",
            "libonnxruntime.so",
            "libonnxruntime.dylib",
        ] {
            assert_eq!(file_version(name), Some(vec![]), "{name}");
        }
    }

    #[test]
    fn a_place_that_the_user_named_is_the_only_candidate() {
        let root = tree(&[
            ".onnxruntime/onnxruntime/capi/libonnxruntime.so.1.31.1",
            "mine/lib/libonnxruntime.so.1.30.0",
            "empty/readme",
        ]);
        let at = |path: &str| Places {
            explicit: Some(root.path().join(path)),
            project: vec![root.path().to_path_buf()],
            python: vec![],
            system: System::Included,
        };
        let cases = [
            (
                "a file",
                "mine/lib/libonnxruntime.so.1.30.0",
                "mine/lib/libonnxruntime.so.1.30.0",
            ),
            ("a folder", "mine", "mine/lib/libonnxruntime.so.1.30.0"),
            (
                "a missing file",
                "mine/libonnxruntime.so",
                "mine/libonnxruntime.so",
            ),
            ("a folder without one", "empty", "empty"),
        ];
        for (name, path, want) in cases {
            let want = [(want.to_owned(), Source::Explicit)];
            assert_eq!(found(root.path(), &at(path)), want, "{name}");
        }
    }

    #[test]
    fn the_project_is_before_python_and_python_before_the_system() {
        let root = tree(&[
            "venv/lib/python3.9/site-packages/onnxruntime/capi/libonnxruntime.so.1.29.0",
            "venv/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.28.0",
            "venv/lib/node/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.0",
            "win/Lib/site-packages/onnxruntime/capi/onnxruntime.dll",
            "package/onnxruntime/capi/libonnxruntime.so.1.27.0",
            "a/.onnxruntime/lib/libonnxruntime.so.1.26.0",
        ]);
        let places = Places {
            explicit: None,
            project: upwards(&root.path().join("a/b/c")),
            python: ["venv", "missing", "win", "package/onnxruntime", "venv"]
                .map(|p| root.path().join(p))
                .to_vec(),
            system: System::Included,
        };
        let found = found(root.path(), &places);
        let want = [
            (
                "a/.onnxruntime/lib/libonnxruntime.so.1.26.0",
                Source::Project,
            ),
            (
                "venv/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.28.0",
                Source::Python,
            ),
            (
                "venv/lib/python3.9/site-packages/onnxruntime/capi/libonnxruntime.so.1.29.0",
                Source::Python,
            ),
            (
                "win/Lib/site-packages/onnxruntime/capi/onnxruntime.dll",
                Source::Python,
            ),
            (
                "package/onnxruntime/capi/libonnxruntime.so.1.27.0",
                Source::Python,
            ),
        ];
        let got: Vec<(&str, Source)> = found.iter().map(|(p, s)| (p.as_str(), *s)).collect();
        assert_eq!(got[..want.len()], want);
        assert!(got[want.len()..].iter().all(|(_, s)| *s == Source::System));
        assert!(got.len() > want.len());
    }

    #[test]
    fn places_without_libraries_give_no_candidate() {
        let root = tree(&["notes/readme"]);
        let places = Places {
            project: vec![root.path().to_path_buf(), "/nonexistent".into()],
            python: vec![root.path().join("notes/readme")],
            ..Places::default()
        };
        assert_eq!(candidates(&places), []);
        assert_eq!(candidates(&Places::default()), []);
    }
}
