//! The page for the browser: the library as WebAssembly, its bindings, and the scripts around it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cross::Target;
use crate::process::{said, succeed};

/// The target of the library.
const TARGET: Target = Target {
    triple: "wasm32-unknown-unknown",
    linker: LINKER,
    crates: "std,panic_abort",
    packages: "rustc-web cargo-web rust-web-src lld",
};

/// What links modules of WebAssembly.
const LINKER: &str = "wasm-ld";

/// What the page is for, with its profile in Cargo.toml.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Loaded by people: as small as it can be.
    Release,
    /// Driven by tests: built in a third of the time.
    Test,
}

impl Purpose {
    fn profile(self) -> &'static str {
        match self {
            Self::Release => "page",
            Self::Test => "page-test",
        }
    }
}

/// Graphs are walked by recursion: as much as the stack of a browser lets the module use.
const STACK: usize = 4 << 20;

/// Where the page is, under the target folder.
const FOLDER: &str = "page";

/// Where the compiler works and tools are installed, under the target folder.
const WORK: &str = "web";

/// Builds the page into `target/page`, and prints what its files weigh; with `--test`, one for tests, which
/// is built in less time and weighs more.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[String]) -> Result<()> {
    let purpose = match arguments {
        [] => Purpose::Release,
        [only] if only == "--test" => Purpose::Test,
        _ => bail!("`page` takes `--test` or nothing"),
    };
    let sources = root.join("web");
    for (tool, what) in [("node", "nodejs"), ("npm", "npm")] {
        if said(Command::new(tool).arg("--version")).is_none() {
            bail!("{tool} was not found: install the system's package {what}, Node 18 or newer");
        }
    }
    let work = target.join(WORK);
    let module = module(root, &work, purpose)?;
    bindings(root, &work, &module, &sources.join("wasm"), purpose)?;
    packages(&sources)?;
    let page = target.join(FOLDER);
    bundle(&sources, &page)?;
    if purpose == Purpose::Test {
        return Ok(());
    }
    let mut sizes = Command::new("node");
    sizes.arg(sources.join("sizes.mjs")).arg(&page);
    succeed("sizes.mjs", &mut sizes)
}

/// Compiles the library.
fn module(root: &Path, work: &Path, purpose: Purpose) -> Result<PathBuf> {
    let cargo = TARGET.cargo()?;
    let mut cargo = cargo.with_context(|| TARGET.advice())?;
    cargo
        .current_dir(root)
        .env(
            "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS",
            format!("-C link-arg=-zstack-size={STACK}"),
        )
        .args(["build", "--locked", "--package", "posenc-web"])
        .args(["--profile", purpose.profile(), "--target", TARGET.triple])
        .arg("--target-dir")
        .arg(work);
    succeed("cargo build", &mut cargo)?;
    Ok(work
        .join(TARGET.triple)
        .join(purpose.profile())
        .join("posenc_web.wasm"))
}

/// Makes the module for browsers, with its interface for scripts.
fn bindings(root: &Path, work: &Path, module: &Path, into: &Path, purpose: Purpose) -> Result<()> {
    let version = version_of(
        &fs::read_to_string(root.join("Cargo.lock"))?,
        "wasm-bindgen",
    )
    .context("Cargo.lock has no wasm-bindgen")?;
    let is_right = |tool: &Path| {
        let printed = said(Command::new(tool).arg("--version"));
        printed.is_some_and(|said| said.split(' ').nth(1) == Some(&version))
    };
    let own = work.join("bin/wasm-bindgen");
    let mut tool = PathBuf::from("wasm-bindgen");
    if !is_right(&tool) {
        if !is_right(&own) {
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .args(["install", "--quiet", "wasm-bindgen-cli"])
                .args(["--version", &version, "--root"])
                .arg(work)
                .arg("--target-dir")
                .arg(work.join("tools"));
            if purpose == Purpose::Test {
                // It reads one module, which takes less than to optimize it.
                cargo.arg("--debug");
            }
            succeed("cargo install wasm-bindgen-cli", &mut cargo)?;
        }
        tool = own;
    }
    let mut command = Command::new(tool);
    command
        .args(["--target", "web", "--omit-default-module-path"])
        .args(["--remove-name-section", "--remove-producers-section"])
        .arg("--out-dir")
        .arg(into)
        .arg(module);
    succeed("wasm-bindgen", &mut command)
}

/// The version of a package in a lock file.
fn version_of(lock: &str, name: &str) -> Option<String> {
    let mut lines = lock.lines();
    lines.find(|line| *line == format!("name = \"{name}\""))?;
    let version = lines.next()?.strip_prefix("version = \"")?;
    Some(version.strip_suffix('"')?.to_owned())
}

/// Installs the packages of the lock file, where they are not there.
fn packages(sources: &Path) -> Result<()> {
    let lock = sources.join("package-lock.json");
    let installed = sources.join("node_modules/.package-lock.json");
    let time = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    if time(&installed) >= time(&lock) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    succeed("npm ci", npm.current_dir(sources))
}

/// Checks the types of the scripts, and puts everything into the folder of the page.
fn bundle(sources: &Path, page: &Path) -> Result<()> {
    let tool = |name: &str| {
        let mut command = Command::new(sources.join("node_modules/.bin").join(name));
        command.current_dir(sources);
        command
    };
    succeed("tsc", &mut tool("tsc"))?;
    if page.is_dir() {
        fs::remove_dir_all(page)?;
    }
    fs::create_dir_all(page)?;
    let mut esbuild = tool("esbuild");
    esbuild
        .args(["src/page.ts", "src/worker.ts", "style.css"])
        .args(["--bundle", "--minify", "--format=iife", "--target=es2022"])
        .arg("--log-level=warning")
        .arg(format!("--outdir={}", page.display()))
        .args(["--entry-names=[name]", "--charset=utf8"]);
    succeed("esbuild", &mut esbuild)?;
    for (from, to) in [
        ("index.html", "index.html"),
        ("wasm/posenc_web_bg.wasm", "posenc.wasm"),
    ] {
        fs::copy(sources.join(from), page.join(to))
            .with_context(|| format!("cannot copy {from}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_package_is_that_of_the_lock_file() {
        let lock = "[[package]]\nname = \"wasm-bindgen-macro\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.9\"\n";
        assert_eq!(version_of(lock, "wasm-bindgen").as_deref(), Some("0.2.9"));
        assert_eq!(version_of(lock, "wasm"), None);
    }
}
