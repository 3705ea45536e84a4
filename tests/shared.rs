//! The models in the workspace, and the larger collections beside it where they are there.
//!
//! The tests of several crates include this file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The workspace.
pub fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = crates.filter(|folder| folder.join("fixtures").is_dir());
    folders.next().expect("tests stand in the workspace")
}

/// A folder of the collections beside the workspace. Where it is not there, the test that asks for
/// it has nothing to do and a line on stderr says so, past the runner's capture.
pub fn shared(part: &str) -> Option<PathBuf> {
    let folder = root().parent()?.join("shared").join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    let test = std::thread::current();
    let (test, folder) = (test.name().unwrap_or("a test"), folder.display());
    // Whether anybody reads it changes nothing.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: there is no {folder}");
    None
}

/// Every `model.onnx` under a folder, in order.
///
/// # Panics
/// When a folder cannot be read.
pub fn models_under(folder: &Path) -> Vec<PathBuf> {
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
