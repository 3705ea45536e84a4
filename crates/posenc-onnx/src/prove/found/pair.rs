//! The row of a table that a pair of tokens reads by the formula of a family, or the number that a formula adds.

use std::any::Any;

use ndarray::{ArrayD, IxDyn};

use crate::attention::plane::HIDDEN;
use crate::detect::finding::{Encoding, Finding};
use posenc_encodings::bias::{At, Sample, ScoreBias};
use posenc_encodings::families::disentangled::{self, Disentangled};
use posenc_encodings::families::relative_bias::RelativeBias;
use posenc_encodings::families::shaw::{Clip, Shaw};
use posenc_encodings::kind::Kind;

/// Masks between parts of an image hide pairs by this much at least.
const OTHER_PART: f64 = 50.0;

/// What tells the scores of two pairs apart.
pub(super) enum PairRow<'a> {
    /// A number without a table.
    Formula(&'a dyn ScoreBias),
    /// The place of each number in the table of a bias.
    Table(&'a dyn ScoreBias, ArrayD<f64>),
    /// The offset in rows and columns.
    Window(&'a RelativeBias),
    Clipped(Clip),
    Disentangled(&'a Disentangled),
    /// Each distance up to the clamp has its own.
    Distance(Option<usize>),
}

impl<'a> PairRow<'a> {
    /// Of an encoding.
    ///
    /// # Errors
    /// Why it is not known.
    pub(super) fn of(finding: &'a Finding) -> Result<Self, String> {
        Ok(match &finding.encoding {
            Encoding::ScoreBias(_, bias) => Self::of_bias(&**bias)?,
            Encoding::Shaw(shaw) => Self::Clipped(clip(shaw)?),
            Encoding::Disentangled(terms) => Self::Disentangled(terms),
            Encoding::TransformerXl(xl) => Self::Distance(xl.clamp),
            other => match other.kind() {
                Kind::Unknown => return Err("another encoding there was not read".to_owned()),
                kind => return Err(format!("{kind} is there too")),
            },
        })
    }

    fn of_bias(bias: &'a dyn ScoreBias) -> Result<Self, String> {
        if bias.window().is_some() {
            let bias = (bias as &dyn Any).downcast_ref::<RelativeBias>();
            return bias
                .map(Self::Window)
                .ok_or_else(|| "it goes by rows and columns".to_owned());
        }
        let tensors = bias.tensors();
        let table = match &tensors[..] {
            [] => return Ok(Self::Formula(bias)),
            [table] => table,
            _ => return Err("its numbers are in several tables".to_owned()),
        };
        let count: usize = table.iter().product();
        let places = (0..count).map(|place| place as f64).collect();
        let places = ArrayD::from_shape_vec(IxDyn(table), places);
        Ok(Self::Table(
            bias,
            places.map_err(|error| error.to_string())?,
        ))
    }

    /// How far below the best score of a query pairs are that count as masked.
    pub(super) fn hidden(&self) -> f64 {
        match self {
            Self::Window(_) => OTHER_PART,
            _ => HIDDEN,
        }
    }

    /// The number that a formula adds.
    pub(super) fn added(&self, head: usize, at: At) -> Option<Sample> {
        match self {
            Self::Formula(bias) => Some(bias.reference(&[], head, at)),
            _ => None,
        }
    }

    /// What pairs have in common whose scores are equal, of a run with so many queries.
    pub(super) fn row(&self, head: usize, at: At, queries: usize) -> [i64; 3] {
        let distance = at.distance();
        match self {
            Self::Formula(bias) if bias.is_up_to_a_constant() => [at.query, 0, 0],
            Self::Formula(_) => [0; 3],
            Self::Table(bias, places) => {
                let place = bias.reference(std::slice::from_ref(places), head, at);
                // What has no row may be another number at each distance.
                match place.value.is_nan() {
                    true => [-1, distance, 0],
                    false => [place.value as i64, 0, 0],
                }
            }
            Self::Window(bias) => {
                let [query, key] = [at.query, at.key].map(|n| usize::try_from(n).unwrap_or(0));
                let offset = bias.offset(query, key, [queries, at.keys]);
                // Of unequal sides, each pair stands for itself.
                offset.unwrap_or([-1, at.query, at.key])
            }
            Self::Clipped(clip) => [clip.row(distance), 0, 0],
            Self::Disentangled(terms) => {
                let [query, key] = [-distance, distance].map(|d| row_of(terms, d));
                [query, key, 0]
            }
            Self::Distance(clamp) => {
                let most = clamp.and_then(|n| i64::try_from(n).ok());
                let most = most.unwrap_or(i64::MAX);
                [distance.clamp(-most, most), 0, 0]
            }
        }
    }
}

/// The clip of vectors by distance.
fn clip(shaw: &Shaw) -> Result<Clip, String> {
    if shaw.window.is_some() {
        return Err("it goes by rows and columns".to_owned());
    }
    Ok(Clip {
        center: 0,
        step: 1,
        behind: shaw.max_distance,
        ahead: shaw.ahead.or(shaw.max_distance),
    })
}

/// The row of a distance `query − key` in disentangled attention.
fn row_of(terms: &Disentangled, distance: i64) -> i64 {
    match (terms.buckets, terms.max_distance) {
        (Some(count), Some(far)) => disentangled::reference(distance, count, far),
        (None, Some(far)) => {
            let span = i64::try_from(far).unwrap_or(i64::MAX / 4);
            distance.clamp(-span, span - 1)
        }
        _ => distance,
    }
}
