//! Files that are written beside models.

use std::path::Path;

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

/// Writes a report.
pub(crate) fn write_report(report: &Path, text: &str) -> anyhow::Result<()> {
    let written = std::fs::write(report, text);
    named(report, written.map_err(|e| Failure::usage(e.to_string())))
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
