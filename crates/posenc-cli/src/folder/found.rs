//! What is in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::names::is_config;
use crate::exit::Failure;
use crate::model::named;

/// The files below a folder. Paths are relative to it, and sorted.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// The folder, as it was given.
    pub(crate) path: PathBuf,
    /// Every `*.onnx`.
    pub(crate) models: Vec<PathBuf>,
    /// All other files.
    pub(super) others: Vec<PathBuf>,
    /// Folders in it, each after the one that it is in.
    pub(super) inner: Vec<PathBuf>,
    /// Folders that are not looked into, because their names begin with a dot: they hold histories and
    /// caches, which tell of the files as they are.
    pub(super) hidden: Vec<PathBuf>,
    /// What is neither a file nor a folder of it, and folders in place of configurations; and why.
    pub(super) stray: Vec<(PathBuf, String)>,
}

impl Folder {
    /// Looks through a folder. Links to files are followed within the folder, and into the files of the
    /// Hugging Face cache that it is a snapshot in.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let real = path.canonicalize();
        let real = named(path, real.map_err(|e| Failure::model(e.to_string())))?;
        let mut folder = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let reach = Reach::of(&real);
        folder.look(Path::new(""), &reach)?;
        Ok(folder)
    }

    /// The same, which has to hold a model.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn with_models(path: &Path) -> anyhow::Result<Self> {
        let folder = Self::read(path)?;
        if let Some(snapshot) = folder.snapshot() {
            let why = format!("is a repository of a cache; give a snapshot of it, as {snapshot}");
            return named(path, Err(Failure::usage(why)));
        }
        if folder.models.is_empty() {
            folder.check_stray()?;
            let why = "there is no model (*.onnx) in this folder";
            return named(path, Err(Failure::usage(why)));
        }
        Ok(folder)
    }

    /// A snapshot, where this is a repository of the Hugging Face cache.
    fn snapshot(&self) -> Option<String> {
        let is_inner = |name: &str| self.inner.iter().any(|inner| inner == Path::new(name));
        let snapshots = Path::new("snapshots");
        let of = |inner: &&PathBuf| inner.parent() == Some(snapshots);
        let first = self.inner.iter().find(of)?;
        (is_inner("blobs") && is_inner("refs")).then(|| self.file(first).display().to_string())
    }

    /// Refuses a folder with something that is neither a file nor a folder of it.
    ///
    /// # Errors
    /// With the first of it.
    pub(super) fn check_stray(&self) -> anyhow::Result<()> {
        match self.stray.first() {
            Some((path, why)) => named(&self.file(path), Err(Failure::usage(why.clone()))),
            None => Ok(()),
        }
    }

    /// The path of a file.
    pub(crate) fn file(&self, relative: &Path) -> PathBuf {
        self.path.join(relative)
    }

    /// The file of this name that governs a model: in its folder, or else in the next one outwards.
    pub(super) fn nearest(&self, model: &Path, name: &str) -> Option<PathBuf> {
        let folders = model.ancestors().skip(1);
        let mut all = folders.map(|folder| folder.join(name));
        all.find(|file| self.others.binary_search(file).is_ok())
    }

    fn look(&mut self, at: &Path, reach: &Reach) -> anyhow::Result<()> {
        let here = self.file(at);
        let failed = |e: std::io::Error| Failure::model(e.to_string());
        let entries = named(&here, fs::read_dir(&here).map_err(failed))?;
        let mut names = vec![];
        for entry in entries {
            names.push(named(&here, entry.map_err(failed))?.file_name());
        }
        names.sort();
        for name in names {
            let relative = at.join(&name);
            let file = self.file(&relative);
            let kind = named(&file, file.symlink_metadata().map_err(failed))?.file_type();
            if kind.is_dir() {
                if name.to_string_lossy().starts_with('.') {
                    self.hidden.push(relative);
                } else {
                    if is_config(&relative) {
                        let why = "is a folder, and has the name of a configuration; rename it";
                        self.stray.push((relative.clone(), why.to_owned()));
                    }
                    self.inner.push(relative.clone());
                    self.look(&relative, reach)?;
                }
            } else if kind.is_file() {
                self.add(relative);
            } else if kind.is_symlink() {
                match reach.check(&file) {
                    Ok(()) => self.add(relative),
                    Err(why) => self.stray.push((relative, why)),
                }
            } else {
                let why = "is neither a file nor a folder; remove it".to_owned();
                self.stray.push((relative, why));
            }
        }
        if at == Path::new("") {
            self.models.sort();
            self.others.sort();
        }
        Ok(())
    }

    fn add(&mut self, relative: PathBuf) {
        if is_model(&relative) {
            self.models.push(relative);
        } else {
            self.others.push(relative);
        }
    }
}

/// Whether a file is a model, by its name.
pub(super) fn is_model(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("onnx"))
}

/// Where links may lead.
struct Reach {
    folders: Vec<PathBuf>,
}

impl Reach {
    /// Within the folder, and to the `blobs` of a cache in which it is (part of) one of the `snapshots`.
    fn of(real: &Path) -> Self {
        let mut folders = vec![real.to_owned()];
        let snapshots = real
            .ancestors()
            .skip(1)
            .find(|folder| folder.file_name().is_some_and(|name| name == "snapshots"));
        let blobs = snapshots.map(|snapshots| snapshots.with_file_name("blobs"));
        folders.extend(blobs);
        Self { folders }
    }

    /// Why a link is not followed.
    fn check(&self, link: &Path) -> Result<(), String> {
        let Ok(real) = link.canonicalize() else {
            return Err("is a link to nowhere; remove it".to_owned());
        };
        if !self.folders.iter().any(|folder| real.starts_with(folder)) {
            let real = real.display();
            return Err(format!(
                "is a link to {real}, outside of the folder; put the file in its place"
            ));
        }
        if !real.is_file() {
            let why = "is a link to a folder, which is not followed; remove it";
            return Err(why.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = Folder::read(root.path()).unwrap();
        (root, found)
    }

    fn names(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn models_and_other_files_are_told_apart_at_any_depth() {
        let (_root, found) = folder(&[
            "onnx/model.onnx",
            "model.ONNX",
            "config.json",
            "onnx/model.onnx.data",
            ".git/model.onnx",
            ".gitattributes",
            "1_Pooling/config.json",
        ]);
        assert_eq!(names(&found.models), ["model.ONNX", "onnx/model.onnx"]);
        let others = [
            ".gitattributes",
            "1_Pooling/config.json",
            "config.json",
            "onnx/model.onnx.data",
        ];
        assert_eq!(names(&found.others), others);
        assert_eq!(names(&found.inner), ["1_Pooling", "onnx"]);
        assert_eq!(names(&found.hidden), [".git"]);
    }

    #[test]
    fn a_model_is_governed_by_the_nearest_file_of_a_name() {
        let (_root, found) = folder(&["config.json", "a/b/m.onnx", "a/config.json", "c/m.onnx"]);
        let nearest = |model: &str| found.nearest(Path::new(model), "config.json");
        assert_eq!(nearest("a/b/m.onnx"), Some("a/config.json".into()));
        assert_eq!(nearest("c/m.onnx"), Some("config.json".into()));
        assert_eq!(
            found.nearest(Path::new("c/m.onnx"), "genai_config.json"),
            None
        );
    }

    #[test]
    fn a_folder_in_place_of_a_configuration_is_named() {
        for (name, is_stray) in [
            ("config.json", true),
            ("a/genai_config.json", true),
            ("config", false),
        ] {
            let (_root, found) = folder(&["m.onnx", &format!("{name}/x")]);
            let said = found.check_stray().map_err(|e| e.to_string());
            let is_said = said.is_err_and(|why| why.contains(&format!("{name}: is a folder")));
            assert_eq!(is_said, is_stray, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_within_the_folder_and_into_the_cache() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("models--a--b");
        let snapshot = cache.join("snapshots/abc");
        for path in [&snapshot, &cache.join("blobs")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(cache.join("blobs/123"), "x").unwrap();
        fs::write(root.path().join("secret"), "x").unwrap();
        fs::write(snapshot.join("own"), "x").unwrap();
        symlink("../../blobs/123", snapshot.join("model.onnx")).unwrap();
        symlink("own", snapshot.join("inner")).unwrap();
        let found = Folder::read(&snapshot).unwrap();
        assert_eq!(names(&found.models), ["model.onnx"]);
        assert_eq!(names(&found.others), ["inner", "own"]);
        assert!(found.check_stray().is_ok());
        fs::create_dir(cache.join("refs")).unwrap();
        let why = Folder::with_models(&cache).unwrap_err().to_string();
        assert!(why.ends_with(snapshot.to_str().unwrap()), "{why}");
        let cases = [
            ("../../../secret", "outside of the folder"),
            ("gone", "a link to nowhere"),
            ("..", "outside of the folder"),
            (".", "a link to a folder"),
        ];
        for (target, want) in cases {
            let link = snapshot.join("link");
            symlink(target, &link).unwrap();
            let why = Folder::read(&snapshot).unwrap().check_stray().unwrap_err();
            assert!(why.to_string().contains(want), "{target}: {why}");
            fs::remove_file(link).unwrap();
        }
    }
}
