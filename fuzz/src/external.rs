//! External data with any location: no byte from outside of the folder is read.

use std::fs;
use std::path::PathBuf;

use posenc_ir::{External, Model, Payload};

/// Fills the file outside; only [`Folder::leaking`] has this byte in a file inside.
const SECRET: u8 = 0xa5;

/// A folder with every kind of file that a location may name, and a secret outside of it.
#[derive(Debug)]
pub struct Folder {
    _all: tempfile::TempDir,
    model: PathBuf,
}

impl Folder {
    /// Makes the folder.
    ///
    /// # Panics
    /// When temporary files cannot be created.
    #[allow(clippy::new_without_default, reason = "makes files")]
    pub fn new() -> Self {
        let all = tempfile::tempdir().expect("temporary folders can be created");
        let outside = all.path();
        let inside = outside.join("inside");
        let data: Vec<u8> = (0..4096u32).map(|i| (i % 128) as u8).collect();
        let made = || -> std::io::Result<()> {
            fs::create_dir_all(inside.join("sub"))?;
            fs::create_dir(inside.join("folder"))?;
            fs::write(outside.join("secret.bin"), vec![SECRET; 1 << 16])?;
            fs::write(inside.join("data.bin"), &data)?;
            fs::write(inside.join("sub/data.bin"), &data)?;
            std::os::unix::fs::symlink("../secret.bin", inside.join("link.bin"))?;
            std::os::unix::fs::symlink("..", inside.join("out"))?;
            std::os::unix::fs::symlink("data.bin", inside.join("near.bin"))?;
            let cwd = rustix::fs::CWD;
            rustix::fs::mkfifoat(cwd, inside.join("pipe"), rustix::fs::Mode::RUSR)?;
            Ok(())
        };
        made().expect("files can be created in a temporary folder");
        Self {
            model: inside.join("model.onnx"),
            _all: all,
        }
    }

    /// The same with the secret in `data.bin`.
    ///
    /// # Panics
    /// As [`Folder::new`].
    pub fn leaking() -> Self {
        let this = Self::new();
        let planted = fs::write(this.model.with_file_name("data.bin"), [SECRET; 4096]);
        planted.expect("files can be created in a temporary folder");
        this
    }
}

/// Loads every external tensor of a model in `folder`: of initializers, attributes, subgraphs and
/// functions.
///
/// # Panics
/// When a byte of the secret is read.
pub fn external(folder: &Folder, data: &[u8]) {
    let Ok(model) = Model::from_bytes_at(data.to_vec(), Some(&folder.model)) else {
        return;
    };
    let _ = model.check();
    let graph = model.graph();
    for stored in graph.values().filter_map(|v| graph.stored(v)) {
        if let Payload::External(external) = &stored.payload {
            load(&model, external);
        }
        let _ = stored.tensor();
    }
    for external in model.external_data().into_iter().flatten() {
        load(&model, &external);
    }
}

fn load(model: &Model, external: &External) {
    if let Ok(bytes) = model.load(external) {
        assert!(
            !bytes.contains(&SECRET),
            "{} was read from outside of the folder",
            external.location
        );
    }
}
