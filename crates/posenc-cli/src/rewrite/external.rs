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
    let lands_on_output = |e: &&External| {
        Path::new(&e.location).file_name() == output.file_name()
            && folder(&away.join(&e.location)).canonicalize().ok() == away.canonicalize().ok()
    };
    if locations.iter().any(lands_on_output) {
        let sentence = format!(
            "{}: is where the model's external data belongs; give another -o",
            output.display()
        );
        return Err(Failure::usage(sentence).into());
    }
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

#[cfg(test)]
mod tests {
    use posenc_ir::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
    use prost::Message;
    use tempfile::TempDir;

    use super::*;
    use crate::exit::Exit;

    fn home() -> (TempDir, Model) {
        home_with("data/w.bin")
    }

    /// A folder with a model whose weights stand in a file of it, and an empty folder `away`.
    fn home_with(location: &str) -> (TempDir, Model) {
        let folder = tempfile::tempdir().unwrap();
        for inner in ["data", "away"] {
            fs::create_dir(folder.path().join(inner)).unwrap();
        }
        fs::write(folder.path().join(location), [7; 64]).unwrap();
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value.into()),
        };
        let weight = |name: &str, offset: &str| TensorProto {
            name: Some(name.into()),
            dims: vec![8],
            data_type: Some(1),
            data_location: Some(1),
            external_data: vec![
                entry("location", location),
                entry("offset", offset),
                entry("length", "32"),
            ],
            ..Default::default()
        };
        let proto = ModelProto {
            ir_version: Some(8),
            graph: Some(GraphProto {
                initializer: vec![weight("v", "0"), weight("w", "32")],
                ..Default::default()
            }),
            ..Default::default()
        };
        let path = folder.path().join("m.onnx");
        fs::write(&path, proto.encode_to_vec()).unwrap();
        let model = Model::open(&path).unwrap();
        (folder, model)
    }

    #[test]
    fn data_follows_the_model_to_another_folder_once() {
        for mode in [ExternalData::Auto, ExternalData::Link, ExternalData::Copy] {
            let (folder, model) = home();
            let output = folder.path().join("away/out.onnx");
            let placed = place(&model, &output, mode).unwrap();
            let data = folder.path().join("away/data/w.bin");
            assert_eq!(fs::read(&data).unwrap(), [7; 64], "{mode}");
            assert_eq!(placed.0.len(), 1, "{mode}");
            // What is there already is what is wanted.
            assert_eq!(place(&model, &output, mode).unwrap().0.len(), 0, "{mode}");
            placed.undo();
            assert!(!data.exists(), "{mode}");
        }
    }

    #[test]
    fn data_in_the_same_folder_stays_where_it_is() {
        let (folder, model) = home();
        let output = folder.path().join("out.onnx");
        let modes = [ExternalData::Auto, ExternalData::Keep, ExternalData::Copy];
        for mode in modes {
            assert_eq!(place(&model, &output, mode).unwrap().0.len(), 0, "{mode}");
        }
    }

    #[test]
    fn what_cannot_be_placed_is_refused_and_nothing_is_overwritten() {
        let (folder, model) = home();
        let output = folder.path().join("away/out.onnx");
        let refused = |mode, want| {
            let error = place(&model, &output, mode).unwrap_err();
            assert_eq!(Exit::of(&error), want, "{error}");
            error.to_string()
        };
        assert!(refused(ExternalData::Keep, Exit::Usage).contains("link or copy"));
        assert!(refused(ExternalData::Inline, Exit::Unsupported).contains("inline"));
        fs::create_dir(folder.path().join("away/data")).unwrap();
        let other = folder.path().join("away/data/w.bin");
        fs::write(&other, [9; 64]).unwrap();
        assert!(refused(ExternalData::Auto, Exit::Usage).contains("with other data"));
        assert_eq!(fs::read(&other).unwrap(), [9; 64]);
    }

    #[test]
    fn the_output_may_not_stand_where_the_data_does() {
        for (location, output, refused) in [
            ("w.bin", "w.bin", true),
            ("./w.bin", "away/w.bin", true),
            ("data/w.bin", "w.bin", false),
        ] {
            let (folder, model) = home_with(location);
            let error = place(&model, &folder.path().join(output), ExternalData::Auto).err();
            assert_eq!(error.is_some(), refused, "{location} and {output}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_folder_is_not_followed() {
        let (folder, model) = home();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        fs::write(elsewhere.path(), [7; 64]).unwrap();
        let data = folder.path().join("data/w.bin");
        fs::remove_file(&data).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &data).unwrap();
        let output = folder.path().join("away/out.onnx");
        let error = place(&model, &output, ExternalData::Auto).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Model, "{error}");
        assert!(!folder.path().join("away/data/w.bin").exists());
    }

    #[test]
    fn absent_data_is_an_error_of_the_model() {
        let (folder, model) = home();
        fs::remove_file(folder.path().join("data/w.bin")).unwrap();
        let output = folder.path().join("away/out.onnx");
        let error = place(&model, &output, ExternalData::Copy).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Model, "{error}");
    }
}
