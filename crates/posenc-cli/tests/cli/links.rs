//! External data behind symbolic and hard links.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::run::{Folder, Ran, run};
use crate::split::{Out, YARN, constants, split};

fn rewrite(model: &str, output: &str, mode: &str) -> Ran {
    let words = ["rewrite", model, "-o", output, "--external-data", mode];
    run(words.into_iter().chain(["--json"]).chain(YARN))
}

/// The name and content of a file, its number of names, and whether it is a link.
type File = (String, Vec<u8>, u64, bool);

/// The files of a folder.
fn files(folder: &Path) -> Vec<File> {
    let files = fs::read_dir(folder).unwrap().map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let meta = path.symlink_metadata().unwrap();
        let content = fs::read(&path).unwrap();
        (name, content, meta.nlink(), meta.is_symlink())
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// A cache as that of Hugging Face: links with the names of files in one folder, files with the
/// names of hashes in another.
fn cache() -> Folder {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    for name in ["blobs", "snapshots", "away"] {
        fs::create_dir(at(name)).unwrap();
    }
    split(&folder, "m.onnx_data", Out::Weights);
    for (name, hash) in [("m.onnx", "e3b0"), ("m.onnx_data", "a9f4")] {
        fs::rename(at(name), at("blobs").join(hash)).unwrap();
        let blob = Path::new("../blobs").join(hash);
        symlink(blob, at("snapshots").join(name)).unwrap();
    }
    folder
}

#[test]
fn what_is_written_from_a_cache_of_links_stands_alone() {
    for (mode, output, data) in [
        ("auto", "away/out.onnx", Some("m.onnx_data")),
        ("copy", "away/out.onnx", Some("m.onnx_data")),
        ("inline", "away/out.onnx", None),
        ("auto", "snapshots/out.onnx", Some("out.onnx.data")),
        ("copy", "snapshots/out.onnx", Some("out.onnx.data")),
        ("inline", "snapshots/out.onnx", None),
    ] {
        let what = format!("{mode} to {output}");
        let folder = cache();
        let [blobs, snapshots] = ["blobs", "snapshots"].map(|name| folder.path().join(name));
        let before = [files(&blobs), files(&snapshots)];
        let (model, output) = (folder.place("snapshots/m.onnx"), folder.place(output));
        let ran = rewrite(&model, &output, mode);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{what}");
        let mut after = files(Path::new(&output).parent().unwrap());
        after.retain(|file| !before[1].contains(file));
        let names: Vec<&str> = after.iter().map(|file| file.0.as_str()).collect();
        let mut wanted: Vec<&str> = data.into_iter().chain(["out.onnx"]).collect();
        wanted.sort_unstable();
        assert_eq!(names, wanted, "{what}");
        for (name, _, names, is_link) in &after {
            assert_eq!((*names, *is_link), (1, false), "{what}: {name}");
        }
        assert!(constants(&output).1 > 0 || mode == "inline", "{what}");
        assert_eq!(files(&blobs), before[0], "{what}");
        let old = files(&snapshots);
        assert!(before[1].iter().all(|file| old.contains(file)), "{what}");
    }
}

#[test]
fn a_cache_is_not_rewritten_through_its_links() {
    let folder = cache();
    let [blobs, snapshots] = ["blobs", "snapshots"].map(|name| folder.path().join(name));
    let before = [files(&blobs), files(&snapshots)];
    let model = folder.place("snapshots/m.onnx");
    let ran = run(["rewrite", &model, "--in-place"].into_iter().chain(YARN));
    ran.failed(2, "a link to a blob");
    let want = "m.onnx: leads into another folder";
    assert!(ran.err.contains(want), "{}", ran.err);
    assert_eq!([files(&blobs), files(&snapshots)], before);
}

#[test]
fn a_hard_link_is_made_on_request_with_a_warning() {
    for (mode, linked) in [("auto", false), ("copy", false), ("link", true)] {
        let folder = Folder::new();
        let model = split(&folder, "m.data", Out::Weights);
        let away = folder.path().join("away");
        fs::create_dir(&away).unwrap();
        let ran = rewrite(&model, &folder.place("away/out.onnx"), mode);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{mode}");
        let warned = ran.out.contains("several hard links");
        assert_eq!(warned, linked, "{mode}: {}", ran.out);
        let names: Vec<u64> = files(&away).iter().map(|file| file.2).collect();
        assert_eq!(names, [1 + u64::from(linked), 1], "{mode}");
    }
}
