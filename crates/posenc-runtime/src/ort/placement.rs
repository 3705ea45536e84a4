//! How many nodes each provider ran, from the profile that the runtime writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use ort::session::Session;
use tempfile::TempDir;

use super::error::NAME;
use crate::error::{Result, RuntimeError};

/// A profile that is being recorded, then its counts.
#[derive(Debug)]
pub(super) enum Recorder {
    Running(TempDir),
    Done(BTreeMap<String, usize>),
}

impl Recorder {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::tempdir();
        folder.map(Self::Running).map_err(|e| {
            RuntimeError::failed(
                NAME,
                format!("cannot create a temporary folder for its profile: {e}"),
            )
        })
    }

    /// The start of the path of the profile.
    pub(super) fn prefix(&self) -> PathBuf {
        match self {
            Self::Running(folder) => folder.path().join("profile"),
            Self::Done(_) => PathBuf::new(),
        }
    }

    /// Ends the recording. A profile that cannot be read gives no counts.
    pub(super) fn counts(&mut self, session: &mut Session) -> BTreeMap<String, usize> {
        if let Self::Running(_) = self {
            let file = session.end_profiling().ok();
            let counts = file.and_then(|file| read(Path::new(&file)).ok());
            *self = Self::Done(counts.unwrap_or_default());
        }
        match self {
            Self::Done(counts) => counts.clone(),
            Self::Running(_) => BTreeMap::new(),
        }
    }
}

fn read(file: &Path) -> std::io::Result<BTreeMap<String, usize>> {
    let lines = BufReader::new(File::open(file)?).lines();
    let lines: Vec<String> = lines.collect::<std::io::Result<_>>()?;
    Ok(count(&lines))
}

/// Distinct nodes by provider. The profile has one event a line, and one kernel event for each run
/// of a node.
fn count(lines: &[String]) -> BTreeMap<String, usize> {
    let mut nodes = BTreeSet::new();
    for line in lines {
        let name = field(line, "name").filter(|name| name.ends_with("_kernel_time"));
        let provider = field(line, "provider").filter(|provider| !provider.is_empty());
        if let (Some(name), Some(provider)) = (name, provider) {
            nodes.insert((provider, name, field(line, "node_index")));
        }
    }
    let mut counts = BTreeMap::new();
    for (provider, _, _) in nodes {
        *counts.entry(provider.to_owned()).or_default() += 1;
    }
    counts
}

/// The text of a string field, with its escapes not decoded.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let quoted = format!("\"{key}\"");
    let rest = &line[line.find(&quoted)? + quoted.len()..];
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let rest = rest.strip_prefix('"')?;
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_counts_once_for_its_provider() {
        let event = |name: &str, provider: &str, index: usize| {
            format!(
                r#"{{"cat" : "Node","name" :"{name}","args" : {{"provider" : "{provider}","node_index" : "{index}"}}}},"#
            )
        };
        let lines = [
            "[".to_owned(),
            r#"{"cat" : "Session","name" :"model_run","args" : {}},"#.to_owned(),
            event("a_kernel_time", "Cpu", 0),
            event("a_kernel_time", "Cpu", 0),
            event("a_fence_before", "Cpu", 0),
            event("b_kernel_time", "Cuda", 1),
            event(r#"a\"provider\" : \"X_kernel_time"#, "Cpu", 2),
            event("c_kernel_time", "", 3),
            "]".to_owned(),
        ];
        let want = [("Cpu".to_owned(), 2), ("Cuda".to_owned(), 1)];
        assert_eq!(count(&lines), BTreeMap::from(want));
    }
}
