//! Reading and writing a model unchanged gives the same bytes.

use std::fs;
use std::path::Path;

use posenc_ir::Model;
use posenc_tests::fixture;
use posenc_tests::shared::{models_under, shared};

/// Whether the file comes back the same, from memory and through a file.
fn comes_back(path: &Path) -> bool {
    let want = fs::read(path).unwrap();
    let model = Model::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.onnx");
    model.write(&copy).unwrap();
    model.to_bytes().unwrap() == want && fs::read(&copy).unwrap() == want
}

#[test]
fn every_fixture_comes_back_to_the_byte() {
    for fixture in fixture::all() {
        assert!(comes_back(&fixture.model()), "{}", fixture.name());
    }
}

#[test]
fn every_shared_model_comes_back_to_the_byte() {
    for (folder, at_least) in [("zoo", 100), ("mini", 25), ("forms", 80)] {
        let Some(collection) = shared(folder) else {
            continue;
        };
        let models = models_under(&collection);
        assert!(models.len() >= at_least, "{} in {folder}", models.len());
        for path in models {
            assert!(comes_back(&path), "{}", path.display());
        }
    }
}

#[test]
fn an_edited_model_does_not_come_back_the_same() {
    for fixture in fixture::all() {
        let source = fs::read(fixture.model()).unwrap();
        let mut model = Model::open(fixture.model()).unwrap();
        model.set_metadata("posenc.test", "1");
        let edited = model.to_bytes().unwrap();
        assert_ne!(edited, source, "{}", fixture.name());
        // The entry is all that was added: everything else is the source's.
        let entry = edited.len() - source.len();
        assert_eq!(entry, 2 + 2 + 11 + 2 + 1, "{}", fixture.name());
    }
}
