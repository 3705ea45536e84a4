//! How large what a request asks for may be.

use posenc_encodings::encoding::{self, MOST_NUMBERS, PlanError};

use crate::error::{Refusal, RewriteError};
use crate::request::Parameters;

/// Checks that tables and buffers of the requested lengths are possible, whatever their width.
///
/// # Errors
/// With the first parameter whose value is too large.
pub(crate) fn check(parameters: &Parameters) -> Result<(), RewriteError> {
    let both_sides = |k: usize| k.checked_mul(2)?.checked_add(1);
    let Parameters {
        max_length, family, ..
    } = parameters;
    let (max_distance, num_buckets) = (family.count("max-distance"), family.count("num-buckets"));
    let lengths = [
        ("`max-length`", *max_length, *max_length),
        (
            "`max-distance`",
            max_distance,
            max_distance.and_then(both_sides),
        ),
        ("`num-buckets`", num_buckets, num_buckets),
    ];
    for (name, given, rows) in lengths {
        let fits = rows.is_some_and(|rows| rows <= MOST_NUMBERS);
        if let Some(given) = given.filter(|_| !fits) {
            let why = format!(
                "{name} is {given}, and a table or a buffer may have {MOST_NUMBERS} numbers at most"
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
    encoding::numbers_in(dims).map_err(|_| too_large(dims))
}

/// The refusal of a table of these dimensions.
fn too_large(dims: &[usize]) -> RewriteError {
    let why = format!(
        "a table of {dims:?} is requested, and one may have {MOST_NUMBERS} numbers at most; give a \
         smaller `max-length`, `max-distance` or `num-buckets`"
    );
    Refusal::invalid(why).into()
}

/// Why a family cannot be planned for the site at this place of the graph.
pub(crate) fn refusal(error: PlanError, place: impl FnOnce() -> String) -> RewriteError {
    let usage = |why: String| Refusal::invalid(why).into();
    match error {
        PlanError::Unknown(what) => {
            let why = format!("{}: {what} of its attention is not known", place());
            Refusal::unsupported(why).into()
        }
        PlanError::Param { param, why } => usage(format!("`{param}` {why}")),
        PlanError::Tensor { name, why } => usage(format!("{name} of `params` {why}")),
        PlanError::Values(why) => usage(why),
        PlanError::Missing(param) => {
            let why = format!("cannot infer {param}: give `{param}`");
            Refusal::missing(param, why).into()
        }
        PlanError::Site(why) => usage(format!("{}: {why}", place())),
        PlanError::TooLarge(dims) => too_large(&dims),
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::param::{Given, Value};

    use super::*;

    /// What is said of `count` given as each parameter.
    fn said(count: usize) -> [Result<(), String>; 3] {
        let of = |set: fn(&mut Parameters, usize)| {
            let mut parameters = Parameters::default();
            set(&mut parameters, count);
            check(&parameters).map_err(|why| why.to_string())
        };
        [
            of(|p, n| p.max_length = Some(n)),
            of(|p, n| p.family = Given::from_iter([("max-distance", Value::Count(n))])),
            of(|p, n| p.family = Given::from_iter([("num-buckets", Value::Count(n))])),
        ]
    }

    #[test]
    fn lengths_beyond_any_table_are_refused_by_name() {
        let names = ["`max-length` is", "`max-distance` is", "`num-buckets` is"];
        for count in [
            MOST_NUMBERS + 1,
            1_000_000_000_000,
            usize::MAX / 2,
            usize::MAX,
        ] {
            for (said, name) in said(count).into_iter().zip(names) {
                let why = said.unwrap_err();
                assert!(why.starts_with(&format!("{name} {count}, ")), "{why}");
            }
        }
        // Distances reach to both sides.
        assert!(said(MOST_NUMBERS / 2)[1].is_err());
    }

    #[test]
    fn lengths_that_a_table_can_follow_pass() {
        for count in [0, 1, 131_072, MOST_NUMBERS / 2 - 1] {
            assert_eq!(said(count), [Ok(()), Ok(()), Ok(())], "{count}");
        }
        assert!(check(&Parameters::default()).is_ok());
    }

    #[test]
    fn tables_are_counted_without_overflow() {
        let of = |dims: &[usize]| numbers_in(dims).map_err(|why| why.to_string());
        assert_eq!(of(&[131_072, 2048]), Ok(MOST_NUMBERS));
        assert_eq!(of(&[]), Ok(1));
        for dims in [&[131_072, 2049][..], &[usize::MAX, 2], &[1 << 40, 1 << 40]] {
            let why = of(dims).unwrap_err();
            assert!(why.contains(&format!("{dims:?}")), "{why}");
        }
    }
}
