//! The runtimes of a verification.

use posenc_runtime::{Backend, Provider};

use crate::backend::Choice;
use crate::places::Search;

/// The runtimes that a verification uses, each opened once.
#[derive(Debug)]
pub struct Runtimes {
    /// The runtimes.
    pub backends: Vec<Box<dyn Backend>>,
    /// The requested providers: the index of a runtime, and its provider.
    pub providers: Vec<(usize, Provider)>,
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
        };
        if choices.is_empty() {
            let opened = Choice::defaults()
                .into_iter()
                .filter_map(|c| c.open(search).ok());
            runtimes.backends.extend(opened);
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
}
