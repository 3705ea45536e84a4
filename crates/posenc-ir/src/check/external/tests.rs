use std::path::Path;

use prost::Message;

use crate::check::tests::changed;
use crate::model::Model;
use crate::proto::{AttributeProto, GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use crate::samples::{node, untyped, with_bodies};

fn external(entries: &[(&str, &str)]) -> ModelProto {
    let entries = entries.iter().map(|(key, value)| StringStringEntryProto {
        key: Some((*key).to_owned()),
        value: Some((*value).to_owned()),
    });
    changed(|g| {
        g.initializer[0].raw_data = None;
        g.initializer[0].data_location = Some(1);
        g.initializer[0].external_data = entries.collect();
    })
}

/// The same with so many elements that no graph is read by them.
fn large(mut proto: ModelProto) -> ModelProto {
    proto.graph.as_mut().unwrap().initializer[0].dims = vec![16, 16];
    proto
}

fn opened(proto: &ModelProto, path: &Path) -> Result<(), String> {
    std::fs::write(path, proto.encode_to_vec()).unwrap();
    let model = Model::open(path);
    let checked = model.and_then(|m| m.check());
    checked.map(drop).map_err(|e| e.to_string())
}

#[test]
fn external_data_must_be_in_the_folder_of_the_model() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(outer.path().join("secret"), [0; 64]).unwrap();
    std::fs::write(folder.join("data"), [0; 16]).unwrap();
    std::fs::write(folder.join("sub/data"), [0; 16]).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("data", folder.join("inner")).unwrap();
    std::os::unix::fs::symlink("..", folder.join("out")).unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.join("null")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let path = folder.join("model.onnx");
    let at = |location: &str| external(&[("location", location)]);
    let with = |key: &str, value: &str| external(&[("location", "data"), (key, value)]);
    let fine = [
        ("plain", at("data")),
        ("in a folder below", at("sub/data")),
        ("from here", at("./data")),
        ("a link inside", at("inner")),
        ("at the end", with("offset", "8")),
        ("with its length", with("length", "8")),
        ("with what nobody knows", with("checksum", "-")),
        ("absent, and not requested", large(at("absent"))),
        ("absent with its folder", large(at("no/such/data"))),
    ];
    for (name, proto) in fine {
        assert_eq!(opened(&proto, &path), Ok(()), "{name}");
    }
    let broken = [
        ("absolute", at("/etc/passwd"), "leads out of"),
        ("above", at("../secret"), "leads out of"),
        ("hidden above", at("sub/../../secret"), "leads out of"),
        ("backslash", at("..\\secret"), "portable paths cannot have"),
        ("NUL", at("data\0"), "portable paths cannot have"),
        ("the folder itself", at("."), "leads out of"),
        ("absent above", at("../absent"), "leads out of"),
        (
            "absent and small",
            at("absent"),
            "w: external data absent does not exist",
        ),
        ("a link to a folder out", at("out/secret"), "leads out of"),
        ("below a file", at("data/data"), "Not a directory"),
        ("a device", at("null"), "leads out of"),
        ("nowhere", at(""), "has no location"),
        ("a link out", at("link"), "leads out of"),
        ("a pipe", at("pipe"), "not a regular file"),
        ("a folder", at("sub"), "not a regular file"),
        (
            "no location",
            external(&[("offset", "0")]),
            "has no location",
        ),
        (
            "location twice",
            external(&[("location", "data"), ("location", "../secret")]),
            "given twice",
        ),
        (
            "beyond the end",
            with("offset", "12"),
            "16 bytes, fewer than",
        ),
        (
            "offset at the limit",
            with("offset", "18446744073709551615"),
            "fewer than",
        ),
        (
            "negative offset",
            with("offset", "-1"),
            "is not a valid number",
        ),
        (
            "another length",
            with("length", "4"),
            "has 4 bytes, but it needs 8",
        ),
    ];
    for (name, proto, want) in broken {
        let why = opened(&proto, &path).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
}

#[test]
fn small_payloads_may_be_absent_with_the_weights_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let tensor = |name: &str, location: &str, dims: &[i64]| {
        let mut tensor = external(&[("location", location)]).graph.unwrap();
        let mut tensor = tensor.initializer.remove(0);
        tensor.name = Some(name.into());
        tensor.dims = dims.to_vec();
        tensor
    };
    let (small, large) = (&[255], &[256]);
    let filled = |location: &str| {
        let mut filled = node("Constant", &[], &["c"]);
        filled.attribute.push(AttributeProto {
            name: Some("value".into()),
            t: Some(tensor("", location, small)),
            ..Default::default()
        });
        changed(|g| g.node.push(filled))
    };
    let with = |mut proto: ModelProto, more: Vec<TensorProto>| {
        proto.graph.as_mut().unwrap().initializer.extend(more);
        proto
    };
    let model = |tensors| with(changed(|_| {}), tensors);
    let (axes, rest) = (tensor("axes", "a", small), tensor("rest", "a", large));
    let fine = [
        ("large first", model(vec![rest.clone(), axes.clone()])),
        ("large last", model(vec![axes.clone(), rest.clone()])),
        ("of an attribute", with(filled("a"), vec![rest.clone()])),
    ];
    for (name, proto) in fine {
        assert_eq!(opened(&proto, &path), Ok(()), "{name}");
    }
    let other = tensor("other", "b", small);
    let broken = [
        ("alone", model(vec![axes.clone()]), "axes: external data a "),
        (
            "with small ones",
            model(vec![axes, tensor("more", "a", small)]),
            "axes: external data a ",
        ),
        (
            "of another file",
            model(vec![rest.clone(), other]),
            "other: external data b ",
        ),
        (
            "of an attribute and another file",
            with(filled("b"), vec![rest]),
            ".value: external data b ",
        ),
    ];
    for (name, proto, place) in broken {
        let why = opened(&proto, &path).unwrap_err();
        assert!(why.contains(place), "{name}: {why}");
        assert!(why.ends_with("does not exist"), "{name}: {why}");
    }
}

#[test]
fn external_data_of_attributes_is_checked_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), [0; 8]).unwrap();
    let path = folder.path().join("model.onnx");
    let with = |op: &str, location: &str| {
        let tensor = external(&[("location", location)]);
        let tensor = tensor.graph.unwrap().initializer.remove(0);
        let inputs: &[&str] = if op == "Constant" { &[] } else { &["x"] };
        let mut filled = node(op, inputs, &["z"]);
        filled.attribute.push(AttributeProto {
            name: Some("value".into()),
            t: Some(tensor),
            ..Default::default()
        });
        filled
    };
    let refused = |proto: &ModelProto| opened(proto, &path).unwrap_err();
    for op in ["Constant", "ConstantOfShape"] {
        let main = |location: &str| changed(|g| g.node.push(with(op, location)));
        let body = |location: &str| {
            let body = GraphProto {
                node: vec![with(op, location)],
                output: vec![untyped("z")],
                ..Default::default()
            };
            let other = GraphProto {
                output: vec![untyped("x")],
                ..Default::default()
            };
            let bodies = vec![("then_branch", body), ("else_branch", other)];
            let branch = with_bodies(node("If", &["x"], &["i"]), bodies);
            changed(|g| g.node.push(branch))
        };
        assert_eq!(opened(&main("data"), &path), Ok(()), "{op}");
        assert_eq!(opened(&body("data"), &path), Ok(()), "{op}");
        for proto in [main("../data"), body("../data")] {
            let why = refused(&proto);
            assert!(why.contains("leads out of"), "{op}: {why}");
        }
        let mut long = main("data");
        let nodes = &mut long.graph.as_mut().unwrap().node;
        nodes[1].attribute[0].t.as_mut().unwrap().dims = vec![3];
        assert!(refused(&long).contains("fewer than"), "{op}");
    }
}

#[test]
fn a_cache_that_links_both_files_into_one_folder_is_read() {
    let outer = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (outer.path().join("blobs"), outer.path().join("snapshot"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(
        blobs.join("1"),
        external(&[("location", "data")]).encode_to_vec(),
    )
    .unwrap();
    std::fs::write(blobs.join("2"), [0; 8]).unwrap();
    std::os::unix::fs::symlink("../blobs/1", snapshot.join("model.onnx")).unwrap();
    std::os::unix::fs::symlink("../blobs/2", snapshot.join("data")).unwrap();
    let m = Model::open(snapshot.join("model.onnx")).unwrap();
    m.check().unwrap();
    // A model that is not a link itself may not name that folder.
    std::fs::copy(blobs.join("1"), snapshot.join("own.onnx")).unwrap();
    let m = Model::open(snapshot.join("own.onnx")).unwrap();
    let error = m.check().unwrap_err().to_string();
    assert!(error.contains("leads out of the model's folder"), "{error}");
}

#[test]
fn files_in_memory_stand_in_for_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    // Not looked at.
    std::fs::write(folder.path().join("data"), [7; 16]).unwrap();
    let path = folder.path().join("model.onnx");
    let opened = |proto: &ModelProto, files: &[(&str, usize)]| {
        let files = files.iter().map(|(name, n)| {
            let bytes = bytes::Bytes::from(vec![1; *n]);
            (std::path::PathBuf::from(name), bytes)
        });
        let model = Model::from_memory(proto.encode_to_vec(), &path, files.collect())?;
        model.check().map(|_| model)
    };
    let small = external(&[("location", "data")]);
    for (proto, name) in [
        (&small, "data"),
        (&external(&[("location", "./a/data")]), "a/data"),
    ] {
        let model = opened(proto, &[(name, 8)]).unwrap();
        let used = &model.external_data().unwrap()[0];
        assert_eq!(model.load(used).unwrap(), vec![1; 8], "{name}");
        assert!(model.missing_external_data().unwrap().is_empty(), "{name}");
        let error = model.external_file(used).unwrap_err().to_string();
        assert!(error.ends_with("is in memory and in no file"), "{error}");
    }
    for (files, why) in [
        (
            &[("data", 7)][..],
            "external data data has 7 bytes, fewer than a tensor needs",
        ),
        (&[("other", 16)], "external data data does not exist"),
        (&[], "external data data does not exist"),
    ] {
        let error = opened(&small, files).unwrap_err().to_string();
        assert!(error.ends_with(why), "{error}");
    }
    let absent = opened(&large(small.clone()), &[]).unwrap();
    assert_eq!(absent.missing_external_data().unwrap(), ["data"]);
    assert!(absent.load(&absent.external_data().unwrap()[0]).is_err());
}

#[test]
fn a_pointer_in_place_of_data_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let proto = large(external(&[("location", "data")]));
    let of = |text: &str| {
        std::fs::write(folder.path().join("data"), text).unwrap();
        opened(&proto, &path).unwrap_err()
    };
    let why = of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1024\n");
    assert!(
        why.contains("a Git LFS pointer; fetch the file with `git lfs pull`"),
        "{why}"
    );
    let why = of("something else");
    assert!(why.ends_with("fewer than a tensor needs"), "{why}");
}
