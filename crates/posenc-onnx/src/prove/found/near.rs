//! Encodings that are read as another one because a few numbers are not those of a formula.

use ndarray::ArrayView1;

use super::added::Added;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use posenc_encodings::bias::ScoreBias;
use posenc_encodings::families::alibi;
use posenc_encodings::families::sinusoidal::{self, Precision};

/// Rows from which a sinusoidal code is read.
const FIRST: usize = 16;

/// The share of a slope by which it may be off.
const NEAR: f64 = 1e-3;

/// Names the first row of a learned table that is no sinusoid, where the rows before it are.
pub(super) fn sinusoid(added: &Added<'_>) -> Option<String> {
    let (table, first, dtype) = added.learned_rows()?;
    if table.nrows() <= FIRST {
        return None;
    }
    let precision = Precision::of(dtype);
    let places: Vec<f64> = (0..table.nrows()).map(|p| p as f64).collect();
    let start = table.slice(ndarray::s![..FIRST, ..]);
    let (code, error) = sinusoidal::identify(&places[..FIRST], start, precision).ok()?;
    let most = 10.0 * error.max(precision.value());
    let wanted = code.reference(&places);
    let near = |(got, want): (ArrayView1<'_, f64>, ArrayView1<'_, f64>)| {
        let mut pairs = got.iter().zip(want);
        pairs.all(|(a, b)| (a - b).abs() <= most)
    };
    let at = table.rows().into_iter().zip(wanted.rows());
    let other = at.map(near).position(|is_near| !is_near)?;
    Some(format!(
        "{}: row {} of the table is no sinusoid, though those before it are; it is read as a learned table",
        added.place(),
        first + other
    ))
}

/// Names the heads of which the slopes are not those of ALiBi, where those of most heads are.
pub(super) fn slopes(
    context: &Context<'_>,
    finding: &Finding,
    bias: &dyn ScoreBias,
) -> Option<String> {
    let params = bias.params();
    let own = params.get("slopes")?.as_array()?;
    let own: Option<Vec<f64>> = own.iter().map(|slope| slope.as_f64()).collect();
    let own = own?;
    let factors: Vec<f64> = own
        .iter()
        .zip(alibi::slopes(own.len()))
        .map(|(own, usual)| own / usual)
        .collect();
    let others = |factor: f64| -> Vec<usize> {
        let is_other = |h: &usize| (factors[*h] / factor - 1.0).abs() > NEAR;
        (0..factors.len()).filter(is_other).collect()
    };
    let odd = factors.iter().map(|factor| others(*factor));
    let odd = odd.min_by_key(Vec::len)?;
    if odd.is_empty() || 2 * odd.len() >= own.len() {
        return None;
    }
    let heads: Vec<String> = odd.iter().map(usize::to_string).collect();
    let site = finding.sites.first().map(|site| context.site(*site))?;
    Some(format!(
        "{}: the slopes of heads {} are not those of ALiBi for {} heads, as the others are",
        site.name,
        heads.join(", "),
        own.len()
    ))
}
