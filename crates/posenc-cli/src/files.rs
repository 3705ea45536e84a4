//! Files that are written beside models.

use std::path::Path;

use posenc_ir::write_file;

use crate::exit::Failure;
use crate::model::named;

/// Refuses to write a report in place of a file that the command reads.
pub(crate) fn check_report(report: &Path, read: &[&Path]) -> anyhow::Result<()> {
    match read.iter().any(|path| is_same(path, report)) {
        true => {
            let why = "is read by this command; give another file for the report";
            named(report, Err(Failure::usage(why)))
        }
        false => Ok(()),
    }
}

/// Writes a report, which appears when it is complete.
pub(crate) fn write_report(report: &Path, text: &str) -> anyhow::Result<()> {
    // A pipe or a device takes what is written to it, and a link leads to the file.
    let is_file = report.symlink_metadata().is_ok_and(|m| m.is_file());
    let folder = report
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return named(report, Err(Failure::usage(no_folder(folder))));
    }
    if is_file || !report.exists() {
        let written = write_file(report, text.as_bytes());
        return written.map_err(|e| Failure::usage(e.to_string()).into());
    }
    let written = std::fs::write(report, text);
    named(report, written.map_err(|e| Failure::usage(e.to_string())))
}

/// Why nothing can be written to a folder that is none.
pub(crate) fn no_folder(folder: &Path) -> String {
    let folder_name = folder.display();
    match folder.exists() {
        true => format!("{folder_name} is a file and no folder; give another one"),
        false => format!("there is no folder {folder_name}; make it first"),
    }
}

/// Whether two paths lead to one file: through links, or as two names of it.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    if let (Ok(a), Ok(b)) = (a.canonicalize(), b.canonicalize()) {
        return a == b || is_same_file(&a, &b);
    }
    false
}

#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}
