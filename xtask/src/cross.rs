//! Compilers for other systems than this one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process::said;

/// A target that is compiled for here.
pub(crate) struct Target {
    /// Its triple.
    pub(crate) triple: &'static str,
    /// The program that links for it where its standard library is built.
    pub(crate) linker: &'static str,
    /// The crates of the standard library that are built where it is not installed.
    pub(crate) crates: &'static str,
    /// The packages of Debian that build for it.
    pub(crate) packages: &'static str,
}

impl Target {
    /// Cargo with a compiler for the target: the installed target, or Debian's compiler, which builds the
    /// standard library from its sources. `None` where neither is there.
    ///
    /// # Errors
    /// When the folders of programs make no list.
    pub(crate) fn cargo(&self) -> Result<Option<Command>> {
        let print = ["--print", "target-libdir", "--target", self.triple];
        let libraries = said(Command::new("rustc").args(print));
        if libraries.is_some_and(|folder| Path::new(&folder).is_dir()) {
            return Ok(Some(Command::new(env!("CARGO"))));
        }
        let links = said(Command::new(self.linker).arg("--version")).is_some();
        let system = Path::new("/usr/bin");
        let sysroot = said(Command::new(system.join("rustc")).args(["--print", "sysroot"]));
        let sources = sysroot.map(|root| Path::new(&root).join("lib/rustlib/src/rust/library"));
        if !links || !sources.is_some_and(|folder| folder.is_dir()) {
            return Ok(None);
        }
        let path = std::env::join_paths(std::iter::once(system.to_owned()).chain(folders()))?;
        let triple = self.triple.to_uppercase().replace('-', "_");
        let mut cargo = Command::new(system.join("cargo"));
        cargo
            .env("PATH", path)
            // The standard library is built from its sources, which is not stable yet.
            .env("RUSTC_BOOTSTRAP", "1")
            .env(format!("CARGO_TARGET_{triple}_LINKER"), self.linker)
            .arg(format!("-Zbuild-std={}", self.crates));
        Ok(Some(cargo))
    }

    /// What to install where there is no compiler.
    pub(crate) fn advice(&self) -> String {
        format!(
            "no compiler for {triple}: `rustup target add {triple}`, or on Debian `apt-get install {packages}`",
            triple = self.triple,
            packages = self.packages
        )
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the folders of programs are known from there alone"
)]
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}
