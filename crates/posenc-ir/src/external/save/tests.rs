use std::fs;

use crate::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use prost::Message;
use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, Model) {
    folder_with("data/w.bin")
}

/// A folder with a model whose weights are stored in another file of it, and an empty folder `away`.
fn folder_with(location: &str) -> (TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    for inner in ["data", "away"] {
        fs::create_dir(dir.path().join(inner)).unwrap();
    }
    fs::write(dir.path().join(location), [7; 64]).unwrap();
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
    let path = dir.path().join("m.onnx");
    fs::write(&path, proto.encode_to_vec()).unwrap();
    let model = Model::open(&path).unwrap();
    (dir, model)
}

/// Puts the data in place for `output`; the locations that it names, and what was created.
fn prepared(
    model: &Model,
    output: &Path,
    policy: ExternalData,
) -> Result<(Vec<String>, Placed), SaveError> {
    let mut placed = Placed::default();
    let encoded = encode(model, output, policy, &mut placed);
    let locations = encoded.and_then(|encoded| {
        let used = model.external_in(&encoded)?;
        Ok(used.into_iter().map(|e| e.location).collect())
    });
    match locations {
        Ok(locations) => Ok((locations, placed)),
        Err(e) => {
            placed.remove();
            Err(e)
        }
    }
}

fn problem(error: SaveError) -> PlaceProblem {
    match error {
        SaveError::Place { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

const AWAY: [ExternalData; 3] = [ExternalData::Auto, ExternalData::Link, ExternalData::Copy];

#[test]
fn data_is_placed_next_to_the_model_in_another_folder_once() {
    for policy in AWAY {
        let (dir, model) = folder();
        let output = dir.path().join("away/out.onnx");
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        let data = dir.path().join("away/data/w.bin");
        assert_eq!(fs::read(&data).unwrap(), [7; 64], "{policy:?}");
        assert_eq!(locations, ["data/w.bin"; 2], "{policy:?}");
        assert_eq!(placed.created.len(), 2, "{policy:?}: a folder and a file");
        // The same data is there already.
        let (locations, nothing) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, ["data/w.bin"; 2], "{policy:?}");
        assert_eq!(nothing.created.len(), 0, "{policy:?}");
        placed.remove();
        let away = dir.path().join("away");
        assert!(fs::read_dir(away).unwrap().next().is_none(), "{policy:?}");
    }
}

#[test]
fn data_in_the_same_folder_stays_unless_it_is_to_be_copied() {
    for (policy, want) in [
        (ExternalData::Auto, "data/w.bin"),
        (ExternalData::Keep, "data/w.bin"),
        (ExternalData::Copy, "out.onnx.data"),
        (ExternalData::Link, "out.onnx.data"),
    ] {
        let (dir, model) = folder();
        let output = dir.path().join("out.onnx");
        let (locations, _) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, [want; 2], "{policy:?}");
        assert_eq!(fs::read(dir.path().join(want)).unwrap(), [7; 64]);
        // A model that is replaced keeps its data.
        let (locations, placed) = prepared(&model, &dir.path().join("m.onnx"), policy).unwrap();
        assert_eq!(locations, ["data/w.bin"; 2], "{policy:?}");
        assert_eq!(placed.created.len(), 0, "{policy:?}");
    }
}

#[test]
fn data_whose_name_is_taken_is_named_after_the_output() {
    for policy in AWAY {
        let (dir, model) = folder();
        let away = dir.path().join("away");
        let output = away.join("out.onnx");
        fs::create_dir(away.join("data")).unwrap();
        fs::write(away.join("data/w.bin"), [9; 64]).unwrap();
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, ["out.onnx.data"; 2], "{policy:?}");
        assert_eq!(placed.created.len(), 1, "{policy:?}");
        assert_eq!(fs::read(away.join("out.onnx.data")).unwrap(), [7; 64]);
        assert_eq!(fs::read(away.join("data/w.bin")).unwrap(), [9; 64]);
        // Again, with the files of the first time.
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        assert_eq!(
            (locations.len(), placed.created.len()),
            (2, 0),
            "{policy:?}"
        );
    }
}

#[test]
fn data_that_has_no_place_is_refused_and_nothing_is_overwritten() {
    let (dir, model) = folder();
    let away = dir.path().join("away");
    let output = away.join("out.onnx");
    let error = prepared(&model, &output, ExternalData::Keep).unwrap_err();
    assert_eq!(problem(error), PlaceProblem::OtherFolder);
    fs::create_dir(away.join("data")).unwrap();
    for other in ["data/w.bin", "out.onnx.data"] {
        fs::write(away.join(other), [9; 64]).unwrap();
    }
    for policy in AWAY {
        let error = prepared(&model, &output, policy).unwrap_err();
        let want = "out.onnx.data: already exists with different content";
        assert!(error.to_string().ends_with(want), "{error}");
        assert_eq!(problem(error), PlaceProblem::Exists);
    }
    for other in ["data/w.bin", "out.onnx.data"] {
        assert_eq!(fs::read(away.join(other)).unwrap(), [9; 64]);
    }
}

#[test]
fn embedded_data_needs_no_place() {
    let (dir, model) = folder();
    for output in ["out.onnx", "away/out.onnx", "away/w.bin", "m.onnx"] {
        let output = dir.path().join(output);
        let (locations, placed) = prepared(&model, &output, ExternalData::Inline).unwrap();
        assert_eq!((locations.len(), placed.created.len()), (0, 0));
    }
}

#[test]
fn the_output_may_not_replace_external_data() {
    for (location, output, refused) in [
        ("w.bin", "w.bin", true),
        ("./w.bin", "away/w.bin", true),
        ("data/w.bin", "data/w.bin", true),
        ("data/w.bin", "w.bin", false),
    ] {
        let (dir, model) = folder_with(location);
        let output = dir.path().join(output);
        let error = prepared(&model, &output, ExternalData::Auto).err();
        let want = refused.then_some(PlaceProblem::IsExternalData);
        assert_eq!(error.map(problem), want, "{location} and {output:?}");
        if output == dir.path().join(location) {
            let error = prepared(&model, &output, ExternalData::Inline).unwrap_err();
            assert_eq!(problem(error), PlaceProblem::IsExternalData);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_either_folder_is_not_followed() {
    let (dir, model) = folder();
    let elsewhere = tempfile::tempdir().unwrap();
    let away = dir.path().join("away");
    std::os::unix::fs::symlink(elsewhere.path(), away.join("data")).unwrap();
    let output = away.join("out.onnx");
    let error = prepared(&model, &output, ExternalData::Auto).unwrap_err();
    assert_eq!(problem(error), PlaceProblem::OutsideFolder);
    assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    fs::remove_file(away.join("data")).unwrap();
    let outside = elsewhere.path().join("w.bin");
    fs::write(&outside, [7; 64]).unwrap();
    let data = dir.path().join("data/w.bin");
    fs::remove_file(&data).unwrap();
    std::os::unix::fs::symlink(&outside, &data).unwrap();
    for policy in [ExternalData::Auto, ExternalData::Inline] {
        let error = prepared(&model, &output, policy).unwrap_err();
        assert!(matches!(error, SaveError::Model(_)), "{error}");
        assert!(!away.join("data").exists());
    }
}

#[test]
fn absent_data_is_an_error_where_it_must_be_copied() {
    let (dir, model) = folder();
    fs::remove_file(dir.path().join("data/w.bin")).unwrap();
    let away = dir.path().join("away/out.onnx");
    let sibling = dir.path().join("out.onnx");
    for (output, policy) in [
        (&away, ExternalData::Copy),
        (&away, ExternalData::Auto),
        (&sibling, ExternalData::Inline),
        (&sibling, ExternalData::Copy),
    ] {
        let error = prepared(&model, output, policy).unwrap_err();
        assert!(matches!(error, SaveError::Model(_)), "{error}");
        assert!(error.to_string().contains("w.bin"), "{error}");
    }
    for policy in [ExternalData::Auto, ExternalData::Keep] {
        assert!(prepared(&model, &sibling, policy).is_ok(), "{policy:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_output_never_relies_on_a_link_out_of_its_folder() {
    use std::os::unix::fs::symlink;
    // A cache: links in one folder, files under other names in another.
    let (cache, _) = folder_with("w.bin");
    let folder = cache.path();
    for (file, link) in [("m.onnx", "away/m.onnx"), ("w.bin", "away/w.bin")] {
        symlink(folder.join(file), folder.join(link)).unwrap();
    }
    let model = Model::open(folder.join("away/m.onnx")).unwrap();
    let output = folder.join("away/out.onnx");
    let error = prepared(&model, &output, ExternalData::Keep).unwrap_err();
    assert_eq!(problem(error), PlaceProblem::OtherFolder);
    for policy in AWAY {
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, ["out.onnx.data"; 2], "{policy:?}");
        let data = folder.join("away/out.onnx.data");
        assert!(data.symlink_metadata().unwrap().is_file(), "{policy:?}");
        assert_eq!(fs::read(&data).unwrap(), [7; 64], "{policy:?}");
        placed.remove();
    }
    // A link at the place of the data is not taken for the data either.
    let model = Model::open(folder.join("m.onnx")).unwrap();
    let (locations, _) = prepared(&model, &output, ExternalData::Auto).unwrap();
    assert_eq!(locations, ["out.onnx.data"; 2]);
}

#[test]
fn data_that_an_edit_no_longer_uses_is_not_overwritten() {
    let (dir, mut model) = folder();
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "test");
    for name in ["v", "w"] {
        let value = graph.find(graph.main(), name).unwrap();
        let ones = crate::Tensor::from_f32(&[8], &[1.0; 8]);
        out.replace_constant(value, graph.uses(value), ones)
            .unwrap();
    }
    let patch = out.finish();
    model.commit(patch).unwrap();
    let data = dir.path().join("data/w.bin");
    let error = prepared(&model, &data, ExternalData::Auto).unwrap_err();
    assert_eq!(problem(error), PlaceProblem::IsExternalData);
    let other = dir.path().join("data/other.onnx");
    assert!(
        prepared(&model, &other, ExternalData::Auto)
            .unwrap()
            .0
            .is_empty()
    );
}

#[test]
fn a_model_is_saved_with_its_data_and_a_failure_leaves_nothing() {
    let (dir, model) = folder();
    let output = dir.path().join("away/out.onnx");
    let saved = model.save(&output, ExternalData::Copy).unwrap();
    let away = dir.path().join("away").canonicalize().unwrap();
    assert_eq!(saved.created, [away.join("data"), away.join("data/w.bin")]);
    let copy = Model::open(&output).unwrap();
    let value = copy.graph().find(copy.graph().main(), "w").unwrap();
    assert_eq!(copy.graph().constant(value).unwrap().bytes()[..], [7; 32]);
    let again = model.save(&output, ExternalData::Copy).unwrap();
    assert_eq!(again, Saved::default());
    // The name of the output is taken by a folder, which no file replaces.
    let other = dir.path().join("away/other.onnx");
    fs::create_dir(&other).unwrap();
    fs::remove_dir_all(away.join("data")).unwrap();
    let error = model.save(&other, ExternalData::Copy).unwrap_err();
    assert!(matches!(error, SaveError::Write(_)), "{error}");
    assert!(!away.join("data").exists());
}

/// The number of names of a file.
#[cfg(unix)]
fn names_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().unwrap().nlink()
}

#[cfg(unix)]
#[test]
fn only_the_policy_of_that_name_makes_hard_links() {
    for policy in AWAY {
        let (dir, model) = folder();
        let output = dir.path().join("away/out.onnx");
        let away = dir.path().join("away").canonicalize().unwrap();
        let data = away.join("data/w.bin");
        let linked = policy == ExternalData::Link;
        for _ in 0..2 {
            let saved = model.save(&output, policy).unwrap();
            let want: &[PathBuf] = if linked {
                std::slice::from_ref(&data)
            } else {
                &[]
            };
            assert_eq!(saved.linked, want, "{policy:?}");
            assert_eq!(names_of(&data), 1 + u64::from(linked), "{policy:?}");
        }
        assert_eq!(fs::read(&data).unwrap(), [7; 64], "{policy:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_with_a_second_name_is_taken_for_a_link_and_for_no_copy() {
    let (dir, model) = folder();
    let output = dir.path().join("away/out.onnx");
    model.save(&output, ExternalData::Link).unwrap();
    let (locations, placed) = prepared(&model, &output, ExternalData::Link).unwrap();
    assert_eq!(locations, ["data/w.bin"; 2]);
    assert!(placed.created.is_empty());
    for policy in [ExternalData::Auto, ExternalData::Copy] {
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, ["out.onnx.data"; 2], "{policy:?}");
        let copy = dir.path().join("away/out.onnx.data");
        assert_eq!(names_of(&copy), 1, "{policy:?}");
        placed.remove();
    }
}

#[cfg(unix)]
#[test]
fn data_behind_a_link_within_the_folder_is_copied_unless_it_is_to_be_kept() {
    let (dir, model) = folder();
    let data = dir.path().join("data/w.bin");
    fs::rename(&data, dir.path().join("data/real.bin")).unwrap();
    std::os::unix::fs::symlink("real.bin", &data).unwrap();
    for (output, policy, want) in [
        ("out.onnx", ExternalData::Auto, "out.onnx.data"),
        ("out.onnx", ExternalData::Keep, "data/w.bin"),
        ("m.onnx", ExternalData::Keep, "data/w.bin"),
    ] {
        let output = dir.path().join(output);
        let (locations, placed) = prepared(&model, &output, policy).unwrap();
        assert_eq!(locations, [want; 2], "{policy:?}");
        placed.remove();
    }
    assert!(data.symlink_metadata().unwrap().is_symlink());
}

#[cfg(unix)]
#[test]
fn an_output_that_links_into_another_folder_is_refused_with_data_elsewhere() {
    let (cache, _) = folder_with("w.bin");
    let folder = cache.path();
    for (file, link) in [("m.onnx", "away/m.onnx"), ("w.bin", "away/w.bin")] {
        std::os::unix::fs::symlink(folder.join(file), folder.join(link)).unwrap();
    }
    let output = folder.join("away/m.onnx");
    let model = Model::open(&output).unwrap();
    let before = fs::read(folder.join("m.onnx")).unwrap();
    for policy in AWAY {
        let error = model.save(&output, policy).unwrap_err();
        assert_eq!(problem(error), PlaceProblem::LinkedOutput, "{policy:?}");
        assert_eq!(fs::read(folder.join("m.onnx")).unwrap(), before);
        let names = fs::read_dir(folder).unwrap().count();
        assert_eq!(names, 4, "{policy:?}: two folders, a model and its data");
    }
    model.save(&output, ExternalData::Inline).unwrap();
    assert!(fs::read(folder.join("m.onnx")).unwrap() != before);
}
