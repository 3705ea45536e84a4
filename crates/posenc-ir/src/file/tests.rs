use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use prost::Message;

use super::copy::{METHODS, Method, copy};
use super::new::NewFile;
use super::{copy_to, link_as};
use crate::error::{ErrorKind, Result};
use crate::model::Model;
use crate::proto::{GraphProto, ModelProto, TensorProto};
use crate::samples::model_proto;

/// Bytes that do not repeat soon.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// A model with one payload.
fn proto(payload: Vec<u8>) -> ModelProto {
    model_proto(GraphProto {
        initializer: vec![TensorProto {
            name: Some("w".into()),
            dims: vec![payload.len() as i64],
            data_type: Some(2),
            raw_data: Some(payload.into()),
            ..Default::default()
        }],
        ..Default::default()
    })
}

#[test]
fn every_method_copies_the_same_bytes() {
    let bytes = noise(3 << 20, 1);
    let mut from = tempfile::tempfile().unwrap();
    from.write_all(&bytes).unwrap();
    // Memory is another file system than the disk, where that is mounted.
    let folders = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let methods: [&[Method]; 3] = [
        METHODS,
        &[Method::Sendfile, Method::Buffer],
        &[Method::Buffer],
    ];
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        for methods in methods {
            let mut to = tempfile::tempfile_in(folder).unwrap();
            to.write_all(b"before").unwrap();
            copy(&from, 5..bytes.len() as u64 - 7, &to, methods).unwrap();
            to.write_all(b"after").unwrap();
            to.rewind().unwrap();
            let mut got = vec![];
            to.read_to_end(&mut got).unwrap();
            let want = [b"before", &bytes[5..bytes.len() - 7], b"after"].concat();
            assert!(got == want, "{methods:?} to {}", folder.display());
        }
    }
}

#[test]
fn a_truncated_source_and_a_full_target_are_errors() {
    let mut from = tempfile::tempfile().unwrap();
    from.write_all(&[7; 10]).unwrap();
    let to = tempfile::tempfile().unwrap();
    let error = copy(&from, 5..20, &to, METHODS).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    #[cfg(target_os = "linux")]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let error = copy(&from, 0..10, &full.unwrap(), METHODS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let error = copy(&from, 0..10, &to, &[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn new_files_appear_complete_or_not_at_all() {
    type Make = fn(&Path) -> io::Result<NewFile>;
    let makes: [(&str, Make); 2] = [
        ("in folder", NewFile::in_folder_of),
        ("named", NewFile::named),
    ];
    for (name, make) in makes {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let new = |content: &[u8]| {
            let file = make(&path).unwrap();
            file.file().write_all(content).unwrap();
            file
        };
        drop(new(b"never"));
        assert!(names(folder.path()).is_empty(), "{name}");
        new(b"first").replace(&path).unwrap();
        new(b"second").replace(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second", "{name}");
        let error = new(b"third").create(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
        assert_eq!(fs::read(&path).unwrap(), b"second", "{name}");
        let other = folder.path().join("g");
        new(b"fourth").create(&other).unwrap();
        assert_eq!(names(folder.path()), ["f", "g"], "{name}");
        let error = new(b"fifth").replace(folder.path()).unwrap_err();
        let kind = error.kind();
        let taken = [
            io::ErrorKind::IsADirectory,
            io::ErrorKind::DirectoryNotEmpty,
        ];
        assert!(taken.contains(&kind), "{name}: {kind}");
        assert_eq!(names(folder.path()), ["f", "g"], "{name}");
    }
}

#[cfg(unix)]
#[test]
fn permissions_are_those_of_the_input_without_setuid() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("m"), folder.path().join("out"));
    fs::write(&path, proto(vec![1]).encode_to_vec()).unwrap();
    for (mode, want) in [
        (0o640, 0o640),
        (0o444, 0o444),
        (0o666, 0o666),
        (0o4750, 0o750),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Model::open(&path).unwrap().write(&out).unwrap();
        let got = fs::metadata(&out).unwrap().permissions().mode();
        assert_eq!(got & 0o7777, want, "{mode:o}");
    }
}

#[test]
fn a_model_is_written_from_its_own_file_also_when_another_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let [first, second] = [1, 2].map(|seed| proto(noise(1 << 20, seed)).encode_to_vec());
    assert_eq!(first.len(), second.len());
    fs::write(&path, &first).unwrap();
    let mut model = Model::open(&path).unwrap();
    model.set_metadata("k", "v");
    let later = folder.path().join("later");
    fs::write(&later, &second).unwrap();
    fs::rename(&later, &path).unwrap();
    model.write(&path).unwrap();
    assert!(fs::read(&path).unwrap() == model.to_bytes().unwrap());
    assert!(fs::read(&path).unwrap().starts_with(&first));
}

#[test]
fn a_model_from_memory_is_written_too() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = proto(noise(1 << 20, 3)).encode_to_vec();
    let out = folder.path().join("out.onnx");
    let model = Model::from_bytes(bytes.clone()).unwrap();
    model.write(&out).unwrap();
    assert!(fs::read(&out).unwrap() == bytes);
    let error = model.write(folder.path().join("absent/out.onnx"));
    assert!(error.unwrap_err().is_absent());
    let error = model.write(folder.path()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    assert_eq!(names(folder.path()), ["out.onnx"]);
}

#[test]
fn files_of_data_replace_no_file() {
    type Place = fn(&Path, &Path) -> Result<()>;
    let places: [(&str, Place); 2] = [("copy", copy_to), ("link", link_as)];
    for (name, place) in places {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&from, noise(1 << 20, 4)).unwrap();
        place(&from, &to).unwrap();
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{name}");
        fs::remove_file(&to).unwrap();
        fs::write(&to, b"other").unwrap();
        let error = place(&from, &to).unwrap_err();
        assert!(error.to_string().contains("exists"), "{name}: {error}");
        assert_eq!(fs::read(&to).unwrap(), b"other", "{name}");
        let error = place(&folder.path().join("absent"), &to).unwrap_err();
        assert!(error.is_absent(), "{name}: {error}");
        let error = place(folder.path(), &to).unwrap_err();
        assert!(
            error.to_string().contains("not a regular file"),
            "{name}: {error}"
        );
        assert_eq!(names(folder.path()), ["a", "b"], "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn irregular_files_are_refused_without_blocking() {
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RUSR, 0).unwrap();
    let socket = folder.path().join("socket");
    let _listens = UnixListener::bind(&socket).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    let zero = PathBuf::from("/dev/zero");
    for path in [&pipe, &socket, &link, &zero, &folder.path().to_owned()] {
        let error = Model::open(path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
    let file = File::open(&zero).unwrap();
    assert!(file.metadata().is_ok(), "the device itself can be opened");
}
