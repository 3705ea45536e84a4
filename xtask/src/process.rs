//! Programs that chores run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program that has to end well; `what` names it.
pub(crate) fn succeed(what: &str, command: &mut Command) -> Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("{what} does not start"))?;
    match status.success() {
        true => Ok(()),
        false => bail!("{what} failed"),
    }
}

/// What a program prints; it has to end well.
pub(crate) fn output(what: &str, command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.with_context(|| format!("{what} does not start"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => bail!("{what} failed"),
    }
}

/// What a program says of itself; `None` where it is not there, or fails.
pub(crate) fn said(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).stdin(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}
