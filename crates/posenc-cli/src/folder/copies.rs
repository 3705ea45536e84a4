//! Files that no rewrite changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::{Model, copy_to};

use super::Folder;
use crate::exit::Failure;
use crate::model::named;

/// The files that are copied: those of models that are kept, and all others but the data that only other
/// models read. That of models that are rewritten is written with them.
pub(super) fn files(
    folder: &Folder,
    rewritten: &[(PathBuf, &Model)],
    (kept, dropped): (&[PathBuf], &[PathBuf]),
) -> Vec<PathBuf> {
    let mut own: BTreeSet<PathBuf> = BTreeSet::new();
    for (path, model) in rewritten {
        own.extend(data(path, model).unwrap_or_default());
    }
    let opened = |path: &Path| data(path, &Model::open(folder.file(path)).ok()?);
    for path in dropped {
        own.extend(opened(path).unwrap_or_default());
    }
    for path in kept {
        match opened(path) {
            Some(shared) => own.retain(|file| !shared.contains(file)),
            // What it reads is not known.
            None => own.clear(),
        }
    }
    let others = folder.others.iter().filter(|file| !own.contains(*file));
    kept.iter().chain(others).cloned().collect()
}

/// The files of external data that a model names, relative to the folder; `None` where that is not known.
fn data(path: &Path, model: &Model) -> Option<BTreeSet<PathBuf>> {
    let at = path.parent()?;
    let all = model.external_data().ok()?;
    let relative = |external: &posenc_ir::External| {
        let location = Path::new(&external.location);
        let parts = location.components();
        let inner = parts.filter(|part| *part != std::path::Component::CurDir);
        at.join(inner.collect::<PathBuf>())
    };
    Some(all.iter().map(relative).collect())
}

/// Makes the folders of the input, and copies files into them.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn copy(folder: &Folder, files: &[PathBuf], to: &Path) -> anyhow::Result<()> {
    for inner in &folder.inner {
        let inner = to.join(inner);
        let made = fs::create_dir(&inner).map_err(|e| Failure::usage(e.to_string()));
        named(&inner, made)?;
    }
    for file in files {
        let (from, to) = (folder.file(file), to.join(file));
        let copied = copy_to(&from, &to).map_err(|e| Failure::usage(e.to_string()));
        named(&from, copied)?;
    }
    Ok(())
}
