//! A folder that appears when it is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::exit::Failure;
use crate::files::no_folder;
use crate::model::named;

/// The temporary folders that are to be removed when the process is interrupted.
static STAGED: Mutex<Vec<PathBuf>> = Mutex::new(vec![]);

/// The name of the folder within the temporary one, which only its owner may enter.
const CONTENT: &str = "content";

/// A folder that is written next to its place. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Staging {
    folder: TempDir,
    output: PathBuf,
}

/// Whether a folder can be written there.
///
/// # Errors
/// When there is something else, it holds files, it is in the input, or its own folder does not exist.
pub(super) fn check(input: &Path, output: &Path) -> anyhow::Result<()> {
    let refuse = |why: &str| named(output, Err(Failure::usage(why)));
    if output == Path::new("-") {
        return refuse("a folder is not written to stdout; give a new folder with -o");
    }
    if output.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
        return refuse("is a link; give a new folder with -o");
    }
    let is_there = output.exists();
    if is_there && !output.is_dir() {
        return refuse("is no folder, and the input is one; give a new folder with -o");
    }
    let parent = parent(output);
    if !parent.is_dir() {
        return refuse(&no_folder(parent));
    }
    let [from, inside] = [input, parent].map(|path| path.canonicalize().unwrap_or_default());
    if is_there && output.canonicalize().is_ok_and(|real| real == from) {
        return refuse("the output is the input; give a new folder with -o");
    }
    if inside.starts_with(&from) {
        return refuse("is in the folder that is read; give a folder elsewhere with -o");
    }
    if is_there {
        let mut entries = named(
            output,
            fs::read_dir(output).map_err(|e| Failure::usage(e.to_string())),
        )?;
        if entries.next().is_some() {
            return refuse("is there already and not empty; give a new folder with -o");
        }
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        if here.is_ok_and(|here| output.canonicalize().is_ok_and(|real| here == real)) {
            return refuse(
                "is the current folder, which cannot be replaced; give a new one with -o",
            );
        }
    }
    Ok(())
}

/// The folder of a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Staging {
    /// An empty folder next to `output`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn next_to(output: &Path) -> anyhow::Result<Self> {
        interrupts::watch();
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let mut staged = staged();
        let folder = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .tempdir_in(parent(output));
        let failed = |e: std::io::Error| Failure::usage(e.to_string());
        let folder = named(output, folder.map_err(failed))?;
        staged.push(folder.path().to_owned());
        drop(staged);
        let staging = Self {
            folder,
            output: output.to_owned(),
        };
        named(output, fs::create_dir(staging.path()).map_err(failed))?;
        Ok(staging)
    }

    /// Where the files go.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(CONTENT)
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// When it cannot get it, as where something else has it by now.
    pub(super) fn commit(self) -> anyhow::Result<()> {
        // An interrupt waits for the end of this, or has ended the process.
        let _staged = staged();
        #[cfg(not(unix))]
        let _ = fs::remove_dir(&self.output);
        let moved = fs::rename(self.path(), &self.output);
        named(
            &self.output,
            moved.map_err(|e| Failure::usage(e.to_string())),
        )
    }

    /// An error with the name that a file has in the end.
    pub(super) fn renamed(&self, error: &anyhow::Error) -> anyhow::Error {
        let path = self.path();
        // Errors of saving name files with links resolved.
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let [path, real, output] = [&path, &real, &self.output].map(|p| p.display().to_string());
        Failure::reworded(error, |text| {
            text.replace(&real, &output).replace(&path, &output)
        })
        .into()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Where an interrupt removes it, the process ends here.
        staged().retain(|folder| folder != self.folder.path());
    }
}

fn staged() -> MutexGuard<'static, Vec<PathBuf>> {
    STAGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a folder that others may still be writing into: under another name, they do not find it.
#[cfg(unix)]
fn remove(folder: &Path) -> std::io::Result<()> {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".removed");
    let gone = folder.with_file_name(name);
    fs::rename(folder, &gone)?;
    fs::remove_dir_all(gone)
}

/// Interrupts of the process.
#[cfg(unix)]
mod interrupts {
    use std::sync::Once;
    use std::thread;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    static WATCHED: Once = Once::new();

    /// Removes what is staged before a signal ends the process. Signals that the process ignores stay
    /// ignored.
    pub(super) fn watch() {
        WATCHED.call_once(|| {
            let ignored = ignored();
            let heeded = [SIGHUP, SIGINT, SIGTERM]
                .into_iter()
                .filter(|signal| !ignored(*signal));
            let Ok(mut signals) = Signals::new(heeded) else {
                return;
            };
            thread::spawn(move || {
                for signal in signals.forever() {
                    // Held to the end of the process, so that nothing more gets a name.
                    let mut staged = super::staged();
                    for folder in staged.drain(..) {
                        let _ = super::remove(&folder);
                    }
                    let _ = emulate_default_handler(signal);
                }
            });
        });
    }

    /// Which signals the process ignores, as after `nohup`; where the system does not say, none.
    fn ignored() -> impl Fn(i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0);
        move |signal| mask & (1 << (signal - 1)) != 0
    }
}

#[cfg(not(unix))]
mod interrupts {
    /// There are no signals to wait for: a process that is ended leaves its temporary folder.
    pub(super) fn watch() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_cannot_be_a_new_folder_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["in", "in/deep", "full", "empty"] {
            fs::create_dir(at(folder)).unwrap();
        }
        for file in ["full/x", "file"] {
            fs::write(at(file), "x").unwrap();
        }
        let input = at("in");
        for fine in ["new", "empty", "empty/new"] {
            assert!(check(&input, &at(fine)).is_ok(), "{fine}");
        }
        let mut cases = vec![
            (PathBuf::from("-"), "not written to stdout"),
            (at("file"), "is no folder"),
            (at("no/new"), "there is no folder"),
            (at("in"), "the output is the input"),
            (at("in/new"), "is in the folder that is read"),
            (at("in/deep"), "is in the folder that is read"),
            (at("full"), "not empty"),
            (at("full/../in/new"), "is in the folder that is read"),
            (root.path().to_owned(), "not empty"),
        ];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("in"), at("link")).unwrap();
            cases.push((at("link"), "is a link"));
            cases.push((at("link/new"), "is in the folder that is read"));
        }
        for (output, want) in cases {
            let why = check(&input, &output).unwrap_err().to_string();
            assert!(why.contains(want), "{}: {why}", output.display());
        }
    }
}
