//! How large what a request asks for may be.

use crate::error::{Refusal, RewriteError};
use crate::request::Parameters;

/// Numbers of one table: 1 GiB of float32, half of what a file without external data holds.
const MOST: usize = 1 << 28;

/// Holds flags to what a table or a buffer can follow, whatever its width.
///
/// # Errors
/// With the first flag that asks for more.
pub(crate) fn check(parameters: &Parameters) -> Result<(), RewriteError> {
    let clip = |k: usize| k.checked_mul(2)?.checked_add(1);
    let Parameters {
        max_length,
        max_distance,
        num_buckets,
        ..
    } = parameters;
    let flags = [
        ("`max-length`", *max_length, *max_length),
        ("`max-distance`", *max_distance, max_distance.and_then(clip)),
        ("`num-buckets`", *num_buckets, *num_buckets),
    ];
    for (flag, given, rows) in flags {
        let fits = rows.is_some_and(|rows| rows <= MOST);
        if let Some(given) = given.filter(|_| !fits) {
            let why = format!(
                "{flag} is {given}, and a table or a buffer may have {MOST} numbers at most"
            );
            return Err(Refusal::invalid(why).into());
        }
    }
    Ok(())
}

/// How many numbers a table of these dimensions has.
///
/// # Errors
/// Where they are too many.
pub(crate) fn numbers_in(dims: &[usize]) -> Result<usize, RewriteError> {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    count.filter(|n| *n <= MOST).ok_or_else(|| {
        let why = format!(
            "a table of {dims:?} is asked for, and one may have {MOST} numbers at most; give a \
             smaller `max-length`, `max-distance` or `num-buckets`"
        );
        Refusal::invalid(why).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of `count` given by each flag.
    fn said(count: usize) -> [Result<(), String>; 3] {
        let of = |set: fn(&mut Parameters, usize)| {
            let mut parameters = Parameters::default();
            set(&mut parameters, count);
            check(&parameters).map_err(|why| why.to_string())
        };
        [
            of(|p, n| p.max_length = Some(n)),
            of(|p, n| p.max_distance = Some(n)),
            of(|p, n| p.num_buckets = Some(n)),
        ]
    }

    #[test]
    fn flags_beyond_any_table_are_refused_by_name() {
        let flags = ["`max-length` is", "`max-distance` is", "`num-buckets` is"];
        for count in [MOST + 1, 1_000_000_000_000, usize::MAX / 2, usize::MAX] {
            for (said, flag) in said(count).into_iter().zip(flags) {
                let why = said.unwrap_err();
                assert!(why.starts_with(&format!("{flag} {count}, ")), "{why}");
            }
        }
        // Distances reach to both sides.
        assert!(said(MOST / 2)[1].is_err());
    }

    #[test]
    fn flags_that_a_table_can_follow_pass() {
        for count in [0, 1, 131_072, MOST / 2 - 1] {
            assert_eq!(said(count), [Ok(()), Ok(()), Ok(())], "{count}");
        }
        assert!(check(&Parameters::default()).is_ok());
    }

    #[test]
    fn tables_are_counted_without_overflow() {
        let of = |dims: &[usize]| numbers_in(dims).map_err(|why| why.to_string());
        assert_eq!(of(&[131_072, 2048]), Ok(MOST));
        assert_eq!(of(&[]), Ok(1));
        for dims in [&[131_072, 2049][..], &[usize::MAX, 2], &[1 << 40, 1 << 40]] {
            let why = of(dims).unwrap_err();
            assert!(why.contains(&format!("{dims:?}")), "{why}");
        }
    }
}
