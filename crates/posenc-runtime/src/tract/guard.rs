//! Panics of tract as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use super::error::NAME;
use crate::error::{Result, RuntimeError};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static QUIET: Once = Once::new();

/// Runs `f`; a panic inside becomes `Unsupported` and is not printed. Other panics reach the
/// previous hook.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                before(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let text = (panic.downcast_ref::<String>().map(String::as_str))
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(RuntimeError::unsupported(
            NAME,
            format!("it panicked: {text}"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_a_result_passes_through() {
        let panicked: Result<()> = guarded(|| panic!("at node {}", 3));
        let panicked = panicked.unwrap_err().to_string();
        assert!(panicked.contains("it panicked: at node 3"), "{panicked}");
        assert_eq!(guarded(|| Ok(7)), Ok(7));
        assert!(!GUARDED.get());
    }
}
