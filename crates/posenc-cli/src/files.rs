//! Files that are written beside models.

use std::io::Write;
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

/// Writes a report, which appears when it is complete.
pub(crate) fn write_report(report: &Path, text: &str) -> anyhow::Result<()> {
    // A pipe or a device takes what is written to it.
    let is_stream = report.exists() && !report.is_file();
    let written = match is_stream {
        true => std::fs::write(report, text),
        false => replace(report, text),
    };
    named(report, written.map_err(|e| Failure::usage(e.to_string())))
}

/// Puts a text in place of a file, through a temporary one next to it.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
    let mut whole = tempfile::Builder::new();
    whole.prefix(".posenc-onnx-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        whole.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut whole = whole.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    whole.write_all(text.as_bytes())?;
    whole.persist(file).map_err(|e| e.error)?;
    Ok(())
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
