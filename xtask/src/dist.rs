//! What a release consists of: archives with the binary, for this system and for Windows, the wheel, the page, and
//! their checksums.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cross::Target;
use crate::pip::python;
use crate::process::{output, succeed};

/// The shells that get a completion script, with the name of its file.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "posenc-onnx.bash"),
    ("elvish", "posenc-onnx.elv"),
    ("fish", "posenc-onnx.fish"),
    ("powershell", "_posenc-onnx.ps1"),
    ("zsh", "_posenc-onnx"),
];

/// The files of the workspace that go with the binary.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Windows, compiled with the tools of MinGW.
const WINDOWS: Target = Target {
    triple: "x86_64-pc-windows-gnu",
    linker: "x86_64-w64-mingw32-gcc",
    crates: "std,panic_abort,panic_unwind",
    packages: "rustc-web cargo-web rust-web-src gcc-mingw-w64-x86-64 g++-mingw-w64-x86-64",
};

/// Makes everything of a release in `target/dist`, from an empty folder.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("`dist` takes no arguments");
    }
    let out = target.join("dist");
    if out.is_dir() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let release = Release {
        root,
        out: &out,
        version: env!("CARGO_PKG_VERSION"),
        triple: triple()?,
    };
    release.binary(target)?;
    release.windows(target)?;
    release.wheel(target)?;
    release.page(target)?;
    release.checksums()
}

struct Release<'a> {
    root: &'a Path,
    out: &'a Path,
    version: &'a str,
    triple: String,
}

impl Release<'_> {
    /// The binary with completions, manual pages and licences.
    fn binary(&self, target: &Path) -> Result<()> {
        let cargo = ["build", "--release", "--locked", "-p", "posenc-cli"];
        succeed("cargo build", self.command(env!("CARGO")).args(cargo))?;
        let name = format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX);
        let built = target.join("release").join(name);
        self.archive(&built, (&built, &self.triple))
    }

    /// The binary for Windows, where it can be compiled.
    fn windows(&self, target: &Path) -> Result<()> {
        let Some(mut cargo) = WINDOWS.cargo()? else {
            said(&format!(
                "{}: the archive for Windows is left out",
                WINDOWS.advice()
            ));
            return Ok(());
        };
        let work = target.join("windows");
        cargo
            .current_dir(self.root)
            .args(["build", "--release", "--locked", "-p", "posenc-cli"])
            .args(["--target", WINDOWS.triple, "--target-dir"])
            .arg(&work);
        succeed("cargo build", &mut cargo)?;
        let built = work.join(WINDOWS.triple).join("release/posenc-onnx.exe");
        let name = format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX);
        let host = target.join("release").join(name);
        self.archive(&host, (&built, WINDOWS.triple))
    }

    /// An archive with a binary that was built for a target; `host` is the one that runs here.
    fn archive(&self, host: &Path, (built, triple): (&Path, &str)) -> Result<()> {
        let folder = self
            .out
            .join(format!("posenc-onnx-{}-{triple}", self.version));
        let completions = folder.join("completions");
        fs::create_dir_all(&completions)?;
        let name = built.file_name().context("a binary has a name")?;
        fs::copy(built, folder.join(name)).with_context(|| built.display().to_string())?;
        for file in FILES {
            fs::copy(self.root.join(file), folder.join(file)).context(file)?;
        }
        for (shell, file) in SHELLS {
            let script = output(
                "completions",
                Command::new(host).args(["completions", shell]),
            )?;
            fs::write(completions.join(file), script)?;
        }
        succeed(
            "posenc-onnx man",
            Command::new(host)
                .args(["--quiet", "man"])
                .arg(folder.join("man")),
        )?;
        let licences = folder.join("THIRD-PARTY-LICENCES");
        let [package, triple] = ["posenc-cli", triple].map(OsStr::new);
        self.script("licences.py", &[package, triple, licences.as_os_str()])?;
        self.pack(&folder)
    }

    /// The Python package.
    fn wheel(&self, target: &Path) -> Result<()> {
        let wheel = crate::python::wheel(self.root, target)?;
        let name = wheel.file_name().context("a wheel has a name")?;
        fs::copy(&wheel, self.out.join(name))?;
        Ok(())
    }

    /// The page for the browser, as it is served.
    fn page(&self, target: &Path) -> Result<()> {
        crate::page::run(self.root, target, &[])?;
        let built = target.join("page");
        let folder = self.out.join(format!("posenc-onnx-page-{}", self.version));
        fs::create_dir_all(&folder)?;
        for entry in built.read_dir()? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        let licences = folder.join("THIRD-PARTY-LICENCES");
        let [package, triple] = ["posenc-web", "wasm32-unknown-unknown"].map(OsStr::new);
        self.script("licences.py", &[package, triple, licences.as_os_str()])?;
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(self.root.join(file), folder.join(file)).context(file)?;
        }
        self.pack(&folder)
    }

    /// Packs a folder of the release, and removes it.
    fn pack(&self, folder: &Path) -> Result<()> {
        let mut archive = folder.to_owned().into_os_string();
        archive.push(".tar.gz");
        let words = [OsStr::new("pack"), folder.as_os_str(), &archive];
        self.script("release.py", &words)?;
        fs::remove_dir_all(folder)?;
        Ok(())
    }

    fn checksums(&self) -> Result<()> {
        self.script("release.py", &[OsStr::new("sums"), self.out.as_os_str()])
    }

    fn script(&self, name: &str, arguments: &[&OsStr]) -> Result<()> {
        let mut command = self.command(python()?);
        command.env("CARGO", env!("CARGO"));
        succeed(
            name,
            command
                .arg(self.root.join("xtask").join(name))
                .args(arguments),
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root);
        command
    }
}

/// The target that cargo builds for here.
fn triple() -> Result<String> {
    let said = output(
        "rustc",
        Command::new("rustc").args(["--version", "--verbose"]),
    )?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

#[allow(clippy::print_stdout)] // what is left out is what people want to know
fn said(what: &str) {
    println!("{what}");
}
