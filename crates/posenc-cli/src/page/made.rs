//! What made a page, and when.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Datelike, Timelike};

use crate::exit::Failure;
use crate::places::variable;

/// The variable that gives the time of what has to be made again byte by byte, in seconds:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What made a page, and when.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// The time, in words.
    at: String,
}

impl Made {
    /// Of this program, now, or at the time that the environment gives.
    ///
    /// # Errors
    /// When that is no time.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let seconds = match variable(EPOCH) {
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| since.as_secs())
            }
            Some(given) => return Self::at(&given.to_string_lossy()),
        };
        let at = words(seconds).unwrap_or_else(|| format!("{seconds} s"));
        Ok(Self { at })
    }

    /// At a time in seconds since 1970.
    fn at(given: &str) -> anyhow::Result<Self> {
        let at = given.parse().ok().and_then(words);
        let none = || {
            let why =
                "which is no number of whole seconds from 1970 to 9999; unset it, or give one";
            Failure::usage(format!("{EPOCH} is {given}, {why}"))
        };
        Ok(Self {
            at: at.ok_or_else(none)?,
        })
    }

    /// In one line.
    pub(crate) fn words(&self) -> String {
        format!("posenc-onnx {} · {}", env!("CARGO_PKG_VERSION"), self.at)
    }
}

/// Seconds since 1970 as a date and a time; `None` behind the year 9999, which no page is made in.
fn words(seconds: u64) -> Option<String> {
    let at = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    let at = Some(at).filter(|at| at.year() < 10_000)?;
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute) = (at.hour(), at.minute());
    Some(format!(
        "{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, want) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(words(seconds).as_deref(), Some(want));
        }
        assert!(words(253_402_300_799).is_some());
        for none in [253_402_300_800, i64::MAX as u64, u64::MAX] {
            assert_eq!(words(none), None);
        }
    }
}
