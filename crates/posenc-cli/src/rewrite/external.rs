//! External data of a rewritten model: kept, linked or copied beside the output.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use posenc_ir::{External, Model, Payload};
use posenc_onnx::request::ExternalData;

use crate::exit::Failure;

/// Files that were put beside an output.
#[derive(Debug, Default)]
pub(super) struct Placed(Vec<PathBuf>);

impl Placed {
    /// Takes the files away again.
    pub(super) fn undo(&self) {
        for path in &self.0 {
            // Nothing better can be done about one that does not go.
            let _ = fs::remove_file(path);
        }
    }
}

/// Puts the files that the model's tensors stand in where `output` will look for them.
///
/// # Errors
/// When a file is absent, is another file than the one already there, or would have to be kept in
/// another folder; nothing is left behind then.
pub(super) fn place(model: &Model, output: &Path, mode: ExternalData) -> anyhow::Result<Placed> {
    let mut placed = Placed::default();
    let done = place_each(model, output, mode, &mut placed);
    if done.is_err() {
        placed.undo();
    }
    done.map(|()| placed)
}

fn place_each(
    model: &Model,
    output: &Path,
    mode: ExternalData,
    placed: &mut Placed,
) -> anyhow::Result<()> {
    let mut locations: Vec<&External> = external(model).collect();
    locations.sort_by_key(|e| &e.location);
    locations.dedup_by_key(|e| &e.location);
    if locations.is_empty() {
        return Ok(());
    }
    if mode == ExternalData::Inline {
        let sentence = "--external-data inline is not supported: give keep, link or copy";
        return Err(Failure::unsupported(sentence).into());
    }
    let home = folder(model.path().unwrap_or(Path::new("")));
    let away = folder(output);
    if home.canonicalize().ok() == away.canonicalize().ok() {
        return Ok(());
    }
    if mode == ExternalData::Keep {
        let sentence = format!(
            "{}: --external-data keep works in the model's own folder only; give link or copy",
            output.display()
        );
        return Err(Failure::usage(sentence).into());
    }
    for external in locations {
        let from = source(model, external)?;
        let to = away.join(&external.location);
        if let Some(inner) = to.parent() {
            fs::create_dir_all(inner).map_err(|e| failed(inner, &e))?;
        }
        if to.symlink_metadata().is_ok() {
            if is_same(&from, &to).map_err(|e| failed(&to, &e))? {
                continue;
            }
            let sentence = format!(
                "{}: is there already, with other data; remove it first",
                to.display()
            );
            return Err(Failure::usage(sentence).into());
        }
        if mode != ExternalData::Copy && fs::hard_link(&from, &to).is_ok() {
            placed.0.push(to);
            continue;
        }
        if mode == ExternalData::Link {
            let sentence = format!(
                "{}: cannot be linked to there; give --external-data copy",
                from.display()
            );
            return Err(Failure::usage(sentence).into());
        }
        // Shares the blocks where the file system can.
        placed.0.push(to.clone());
        fs::copy(&from, &to).map_err(|e| failed(&to, &e))?;
    }
    Ok(())
}

/// The tensors of the model that stand in other files.
fn external(model: &Model) -> impl Iterator<Item = &External> {
    let graph = model.graph();
    graph
        .values()
        .filter_map(|v| match &graph.stored(v)?.payload {
            Payload::External(external) => Some(external),
            _ => None,
        })
}

/// The file behind a location, which must not lead out of the model's folder by a link either.
fn source(model: &Model, external: &External) -> anyhow::Result<PathBuf> {
    // Loading maps the file, and refuses what is no regular file or too short.
    model.load(external)?;
    let real = model
        .external_path(external)
        .and_then(|p| p.canonicalize().ok());
    let home = folder(model.path().unwrap_or(Path::new(""))).canonicalize();
    match (real, home) {
        (Some(real), Ok(home)) if real.starts_with(&home) => Ok(real),
        _ => {
            let location = &external.location;
            let sentence = format!("external data {location} leads out of the model's folder");
            Err(posenc_ir::Error::invalid(sentence).into())
        }
    }
}

/// The folder that a file stands in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn failed(path: &Path, why: &io::Error) -> Failure {
    Failure::usage(format!("{}: {why}", path.display()))
}

/// Whether two files hold the same bytes.
fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (BufReader::new(a), BufReader::new(b));
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut left)?;
        if n == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
    }
}
