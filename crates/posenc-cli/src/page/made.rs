//! What made a page, and when.

use std::time::{SystemTime, UNIX_EPOCH};

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
            Some(given) => given.to_str().and_then(|s| s.parse().ok()).ok_or_else(|| {
                let given = given.to_string_lossy();
                Failure::usage(format!(
                    "{EPOCH} is {given}, and no whole number of seconds"
                ))
            })?,
        };
        Ok(Self { at: words(seconds) })
    }

    /// In one line.
    pub(crate) fn words(&self) -> String {
        format!("posenc-onnx {} · {}", env!("CARGO_PKG_VERSION"), self.at)
    }
}

/// Seconds since 1970 as a date and a time.
fn words(seconds: u64) -> String {
    let (day, minute) = (seconds / 86_400, seconds % 86_400 / 60);
    let [year, month, day] = date(day);
    let (hour, minute) = (minute / 60, minute % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar: years begin in March, and 400 of them
/// have 146,097 days.
/// Source: Hinnant, chrono-Compatible Low-Level Date Algorithms, `civil_from_days`.
fn date(day: u64) -> [u64; 3] {
    let since_march_0 = day + 719_468;
    let (era, of_era) = (since_march_0 / 146_097, since_march_0 % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = 400 * era + year;
    match month < 10 {
        true => [year, month + 3, day],
        false => [year + 1, month - 9, day],
    }
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
            assert_eq!(words(seconds), want);
        }
    }
}
