use std::fs;

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

/// Prepares `output` as a rewrite does; the locations that it names, and what was put there.
fn prepared(
    model: &Model,
    output: &Path,
    mode: ExternalData,
) -> anyhow::Result<(Vec<String>, Placed)> {
    let mut placed = Placed::default();
    let input = model.path().unwrap();
    let encoded = prepare(model, input, output, mode, &mut placed);
    let locations = encoded.and_then(|encoded| {
        let used = model.external_in(&encoded)?;
        Ok(used.into_iter().map(|e| e.location).collect())
    });
    match locations {
        Ok(locations) => Ok((locations, placed)),
        Err(e) => {
            placed.undo();
            Err(e)
        }
    }
}

const AWAY: [ExternalData; 3] = [ExternalData::Auto, ExternalData::Link, ExternalData::Copy];

#[test]
fn data_follows_the_model_to_another_folder_once() {
    for mode in AWAY {
        let (folder, model) = home();
        let output = folder.path().join("away/out.onnx");
        let (locations, placed) = prepared(&model, &output, mode).unwrap();
        let data = folder.path().join("away/data/w.bin");
        assert_eq!(fs::read(&data).unwrap(), [7; 64], "{mode}");
        assert_eq!(locations, ["data/w.bin"; 2], "{mode}");
        assert_eq!(placed.len(), 2, "{mode}: a folder and a file");
        // What is there already is what is wanted.
        let (locations, nothing) = prepared(&model, &output, mode).unwrap();
        assert_eq!(locations, ["data/w.bin"; 2], "{mode}");
        assert_eq!(nothing.len(), 0, "{mode}");
        placed.undo();
        let away = folder.path().join("away");
        assert!(fs::read_dir(away).unwrap().next().is_none(), "{mode}");
    }
}

#[test]
fn data_in_the_same_folder_stays_where_it_is_unless_a_copy_is_asked_for() {
    for (mode, want) in [
        (ExternalData::Auto, "data/w.bin"),
        (ExternalData::Keep, "data/w.bin"),
        (ExternalData::Copy, "out.onnx.data"),
        (ExternalData::Link, "out.onnx.data"),
    ] {
        let (folder, model) = home();
        let output = folder.path().join("out.onnx");
        let (locations, _) = prepared(&model, &output, mode).unwrap();
        assert_eq!(locations, [want; 2], "{mode}");
        assert_eq!(fs::read(folder.path().join(want)).unwrap(), [7; 64]);
        // A model that is replaced keeps its data.
        let (locations, placed) = prepared(&model, &folder.path().join("m.onnx"), mode).unwrap();
        assert_eq!(locations, ["data/w.bin"; 2], "{mode}");
        assert_eq!(placed.len(), 0, "{mode}");
    }
}

#[test]
fn data_whose_name_is_taken_goes_by_the_name_of_the_output() {
    for mode in AWAY {
        let (folder, model) = home();
        let away = folder.path().join("away");
        let output = away.join("out.onnx");
        fs::create_dir(away.join("data")).unwrap();
        fs::write(away.join("data/w.bin"), [9; 64]).unwrap();
        let (locations, placed) = prepared(&model, &output, mode).unwrap();
        assert_eq!(locations, ["out.onnx.data"; 2], "{mode}");
        assert_eq!(placed.len(), 1, "{mode}");
        assert_eq!(fs::read(away.join("out.onnx.data")).unwrap(), [7; 64]);
        assert_eq!(fs::read(away.join("data/w.bin")).unwrap(), [9; 64]);
        // Again, with what is there now.
        let (locations, placed) = prepared(&model, &output, mode).unwrap();
        assert_eq!((locations.len(), placed.len()), (2, 0), "{mode}");
    }
}

#[test]
fn what_cannot_be_placed_is_refused_and_nothing_is_overwritten() {
    let (folder, model) = home();
    let away = folder.path().join("away");
    let output = away.join("out.onnx");
    let refused = |mode, want| {
        let error = prepared(&model, &output, mode).unwrap_err();
        assert_eq!(Exit::of(&error), want, "{error}");
        error.to_string()
    };
    assert!(refused(ExternalData::Keep, Exit::Usage).contains("link, copy or inline"));
    fs::create_dir(away.join("data")).unwrap();
    for other in ["data/w.bin", "out.onnx.data"] {
        fs::write(away.join(other), [9; 64]).unwrap();
    }
    for mode in AWAY {
        let error = refused(mode, Exit::Usage);
        assert!(
            error.contains("out.onnx.data: is there already, with other data"),
            "{error}"
        );
    }
    for other in ["data/w.bin", "out.onnx.data"] {
        assert_eq!(fs::read(away.join(other)).unwrap(), [9; 64]);
    }
}

#[test]
fn embedded_data_needs_no_place() {
    let (folder, model) = home();
    for output in ["out.onnx", "away/out.onnx", "away/w.bin", "m.onnx"] {
        let output = folder.path().join(output);
        let (locations, placed) = prepared(&model, &output, ExternalData::Inline).unwrap();
        assert_eq!((locations.len(), placed.len()), (0, 0));
    }
}

#[test]
fn the_output_may_not_stand_where_the_data_does() {
    for (location, output, refused) in [
        ("w.bin", "w.bin", true),
        ("./w.bin", "away/w.bin", true),
        ("data/w.bin", "data/w.bin", true),
        ("data/w.bin", "w.bin", false),
    ] {
        let (folder, model) = home_with(location);
        let output = folder.path().join(output);
        let error = prepared(&model, &output, ExternalData::Auto).err();
        assert_eq!(error.is_some(), refused, "{location} and {output:?}");
        if output == folder.path().join(location) {
            assert!(prepared(&model, &output, ExternalData::Inline).is_err());
        }
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_either_folder_is_not_followed() {
    let (folder, model) = home();
    let elsewhere = tempfile::tempdir().unwrap();
    let away = folder.path().join("away");
    std::os::unix::fs::symlink(elsewhere.path(), away.join("data")).unwrap();
    let output = away.join("out.onnx");
    let error = prepared(&model, &output, ExternalData::Auto).unwrap_err();
    assert_eq!(Exit::of(&error), Exit::Usage, "{error}");
    assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    fs::remove_file(away.join("data")).unwrap();
    let outside = elsewhere.path().join("w.bin");
    fs::write(&outside, [7; 64]).unwrap();
    let data = folder.path().join("data/w.bin");
    fs::remove_file(&data).unwrap();
    std::os::unix::fs::symlink(&outside, &data).unwrap();
    for mode in [ExternalData::Auto, ExternalData::Inline] {
        let error = prepared(&model, &output, mode).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Model, "{error}");
        assert!(!away.join("data").exists());
    }
}

#[test]
fn absent_data_is_an_error_where_its_bytes_are_needed() {
    let (folder, model) = home();
    fs::remove_file(folder.path().join("data/w.bin")).unwrap();
    let away = folder.path().join("away/out.onnx");
    let beside = folder.path().join("out.onnx");
    for (output, mode) in [
        (&away, ExternalData::Copy),
        (&away, ExternalData::Auto),
        (&beside, ExternalData::Inline),
        (&beside, ExternalData::Copy),
    ] {
        let error = prepared(&model, output, mode).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Model, "{error}");
        assert!(error.to_string().contains("w.bin"), "{error}");
    }
    for mode in [ExternalData::Auto, ExternalData::Keep] {
        assert!(prepared(&model, &beside, mode).is_ok(), "{mode}");
    }
}

#[cfg(unix)]
#[test]
fn an_output_never_relies_on_a_link_out_of_its_folder() {
    use std::os::unix::fs::symlink;
    // A cache: links in one folder, files under other names in another.
    let (cache, _) = home_with("w.bin");
    let folder = cache.path();
    for (file, link) in [("m.onnx", "away/m.onnx"), ("w.bin", "away/w.bin")] {
        symlink(folder.join(file), folder.join(link)).unwrap();
    }
    let model = Model::open(folder.join("away/m.onnx")).unwrap();
    let output = folder.join("away/out.onnx");
    let error = prepared(&model, &output, ExternalData::Keep).unwrap_err();
    assert_eq!(Exit::of(&error), Exit::Usage, "{error}");
    for mode in AWAY {
        let (locations, placed) = prepared(&model, &output, mode).unwrap();
        assert_eq!(locations, ["out.onnx.data"; 2], "{mode}");
        let data = folder.join("away/out.onnx.data");
        assert!(data.symlink_metadata().unwrap().is_file(), "{mode}");
        assert_eq!(fs::read(&data).unwrap(), [7; 64], "{mode}");
        placed.undo();
    }
    // The link that stands where the data would go is not taken for it either.
    let model = Model::open(folder.join("m.onnx")).unwrap();
    let (locations, _) = prepared(&model, &output, ExternalData::Auto).unwrap();
    assert_eq!(locations, ["out.onnx.data"; 2]);
}

#[test]
fn data_that_an_edit_does_away_with_is_not_overwritten() {
    let (folder, mut model) = home();
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "test");
    for name in ["v", "w"] {
        let value = graph.find(graph.main(), name).unwrap();
        let ones = posenc_ir::Tensor::from_f32(&[8], &[1.0; 8]);
        out.revalue(value, graph.uses(value), ones).unwrap();
    }
    let patch = out.finish();
    model.commit(patch).unwrap();
    let data = folder.path().join("data/w.bin");
    let error = prepared(&model, &data, ExternalData::Auto).unwrap_err();
    assert_eq!(Exit::of(&error), Exit::Usage, "{error}");
    let other = folder.path().join("data/other.onnx");
    assert!(
        prepared(&model, &other, ExternalData::Auto)
            .unwrap()
            .0
            .is_empty()
    );
}
