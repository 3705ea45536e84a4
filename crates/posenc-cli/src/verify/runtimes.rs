//! The runtimes of a verification.

use posenc_runtime::{Backend, Provider};

use crate::backend::Choice;
use crate::places::Search;
use crate::terminal::Terminal;

/// The runtimes that a verification uses, each opened once.
#[derive(Debug)]
pub struct Runtimes {
    /// The runtimes.
    pub backends: Vec<Box<dyn Backend>>,
    /// The requested providers: the index of a runtime, and its provider.
    pub providers: Vec<(usize, Provider)>,
    /// Why one of the usual runtimes is not used, and how to get it.
    missing: Vec<String>,
}

impl Runtimes {
    /// Opens the requested runtimes; every available one by default.
    ///
    /// # Errors
    /// When a requested runtime, or its provider, is not available.
    pub fn open(choices: &[Choice], search: &Search) -> anyhow::Result<Self> {
        let mut runtimes = Self {
            backends: vec![],
            providers: vec![],
            missing: vec![],
        };
        if choices.is_empty() {
            for choice in Choice::defaults() {
                match choice.open(search) {
                    Ok(backend) => runtimes.backends.push(backend),
                    Err(why) => runtimes.missing.push(why.to_string()),
                }
            }
            return Ok(runtimes);
        }
        for choice in choices {
            let opened = choice.open(search)?;
            let mut known = runtimes.backends.iter();
            let index = match known.position(|b| b.name() == opened.name()) {
                Some(index) => index,
                None => {
                    runtimes.backends.push(opened);
                    runtimes.backends.len() - 1
                }
            };
            runtimes.providers.push((index, choice.provider()));
        }
        Ok(runtimes)
    }

    /// The runtimes with their versions.
    pub(super) fn versions(&self) -> Vec<String> {
        let all = self.backends.iter();
        all.map(|b| format!("{} {}", b.name(), b.version()))
            .collect()
    }

    /// Says which of the usual runtimes models are not compared in.
    pub(super) fn note_missing(&self, terminal: &Terminal) {
        for why in &self.missing {
            terminal.note(why);
        }
    }
}
