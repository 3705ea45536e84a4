//! `man`.

use std::path::PathBuf;

use anyhow::Context;

use crate::exit::Exit;
use crate::terminal::Terminal;

/// Write manual pages into a folder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to write the pages to; it is created
    folder: PathBuf,
}

/// Writes a page for the program and one for each of its commands.
pub(crate) fn run(
    args: &Args,
    terminal: &Terminal,
    command: clap::Command,
) -> anyhow::Result<Exit> {
    let folder = &args.folder;
    let named = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(named)?;
    clap_mangen::generate_to(command, folder).with_context(named)?;
    terminal.note(format!("wrote manual pages to {}", named()));
    Ok(Exit::Done)
}
