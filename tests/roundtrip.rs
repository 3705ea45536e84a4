//! Reading and writing a model unchanged gives the same bytes.

use std::fs;
use std::path::Path;

use posenc_ir::Model;
use posenc_tests::fixture;
use posenc_tests::shared::{collections, fixtures};

/// Whether a model is written with the same bytes, in memory and to a file.
fn is_same(path: &Path) -> bool {
    let want = fs::read(path).unwrap();
    let model = Model::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.onnx");
    model.write(&copy).unwrap();
    model.to_bytes().unwrap() == want && fs::read(&copy).unwrap() == want
}

#[test]
fn every_model_is_written_with_the_same_bytes() {
    for path in fixtures().into_iter().chain(collections()) {
        assert!(is_same(&path), "{}", path.display());
    }
}

#[test]
fn an_edited_model_is_written_with_other_bytes() {
    for fixture in fixture::all() {
        let source = fs::read(fixture.model()).unwrap();
        let mut model = Model::open(fixture.model()).unwrap();
        model.set_metadata("posenc.test", "1");
        let edited = model.to_bytes().unwrap();
        assert_ne!(edited, source, "{}", fixture.name());
        // Only the entry was added: tag and length, key, value.
        let entry = edited.len() - source.len();
        assert_eq!(entry, 2 + 2 + 11 + 2 + 1, "{}", fixture.name());
    }
}
