//! A line that shows the current step, only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Terminal;

/// A line that is cleared when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Shows the current step, if stderr is a terminal.
    pub(crate) fn start(terminal: &Terminal, what: impl Into<String>) -> Self {
        let bar = if terminal.is_watched() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.into());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    /// Shows another step.
    pub(crate) fn now(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
