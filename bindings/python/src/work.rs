//! Work that takes long: other threads of Python run meanwhile, and Ctrl-C ends the waiting.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use pyo3::prelude::*;

use crate::errors::raise;

/// How long a signal may wait.
const SIGNALS: Duration = Duration::from_millis(50);

/// As much as the main thread of a program has: graphs are walked by recursion.
const STACK: usize = 8 << 20;

/// What the work tells the thread that waits for it.
pub(crate) struct Stages {
    sender: Sender<&'static str>,
    is_given_up: Arc<AtomicBool>,
}

impl Stages {
    /// Begins a stage.
    ///
    /// # Errors
    /// When nobody waits any more: the rest would be done for nothing.
    pub(crate) fn begin(&self, stage: &'static str) -> Result<()> {
        if self.is_given_up.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        // The receiver is there as long as the work is not given up.
        let _ = self.sender.send(stage);
        Ok(())
    }
}

/// Does work on a thread of its own, and waits for it without the interpreter's lock.
///
/// Signals are handled, and `progress` is called with the name of each stage, on the thread that
/// waits. If either raises an exception, as Ctrl-C does, the work is given up: it ends at its next
/// stage, and its result is dropped. What writes files must not be done this way.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Stages) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let is_given_up = Arc::new(AtomicBool::new(false));
    let stages = Stages {
        sender,
        is_given_up: Arc::clone(&is_given_up),
    };
    let thread = thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || work(&stages))?;
    let watch = move || -> PyResult<()> {
        let mut receiver = receiver;
        loop {
            let received;
            // It may move to another thread, and not be shared with one.
            (receiver, received) = py.allow_threads(move || {
                let received = receiver.recv_timeout(SIGNALS);
                (receiver, received)
            });
            match received {
                Ok(stage) => {
                    if let Some(progress) = progress {
                        progress.call1((stage,))?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            py.check_signals()?;
        }
    };
    if let Err(exception) = watch() {
        is_given_up.store(true, Ordering::Relaxed);
        return Err(exception);
    }
    match py.allow_threads(|| thread.join()) {
        Ok(done) => done.map_err(|error| raise(py, &error)),
        // PyO3 makes an exception of it.
        Err(panic) => resume_unwind(panic),
    }
}
