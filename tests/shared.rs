//! The models under `fixtures/`, and the larger collections in `../shared` where they are present.
//!
//! The tests of several crates include this file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The collections of models, with the least number of models in each.
const COLLECTIONS: [(&str, usize); 3] = [("zoo", 100), ("mini", 25), ("forms", 80)];

/// The workspace.
pub fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = crates.filter(|folder| folder.join("fixtures").is_dir());
    folders.next().expect("tests are in the workspace")
}

/// A folder of `../shared`. Where it is absent, a line on stderr says so, outside of the runner's
/// capture; the test must make the same assertions on `fixtures/`.
pub fn shared(part: &str) -> Option<PathBuf> {
    let folder = root().parent()?.join("shared").join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    let test = std::thread::current();
    let (test, folder) = (test.name().unwrap_or("a test"), folder.display());
    // The result of the test does not depend on this line.
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {test}: {folder} is absent, only fixtures/ is tested"
    );
    None
}

/// Every model under `fixtures/`.
///
/// # Panics
/// When models are missing.
pub fn fixtures() -> Vec<PathBuf> {
    let models = models_under(&root().join("fixtures"));
    assert!(models.len() >= 56, "{} fixtures", models.len());
    models
}

/// Every model of a collection; none where the collection is absent.
///
/// # Panics
/// When models are missing.
pub fn collection(name: &str) -> Vec<PathBuf> {
    let known = COLLECTIONS.iter().find(|(known, _)| *known == name);
    let (_, at_least) = known.unwrap_or_else(|| panic!("there is no collection {name}"));
    let Some(folder) = shared(name) else {
        return vec![];
    };
    let models = models_under(&folder);
    assert!(models.len() >= *at_least, "{} in {name}", models.len());
    models
}

/// Every model of every collection that is present.
///
/// # Panics
/// When models are missing.
pub fn collections() -> Vec<PathBuf> {
    let names = COLLECTIONS.iter().map(|(name, _)| *name);
    names.flat_map(collection).collect()
}

/// Every `model.onnx` under a folder, in order.
fn models_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder);
        let entries = entries.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.ends_with("model.onnx") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
