//! The family of what meets queries, keys and weights at a site.

use std::collections::BTreeMap;

use posenc_ir::Use;

use super::met::{Distances, Gathering, Met, Reading, Side, Waves};
use crate::attention::Site;
use crate::detect::finding::{Encoding, Finding};
use posenc_encodings::families::disentangled::{self, Disentangled};
use posenc_encodings::families::shaw::{self, Clip, Shaw};
use posenc_encodings::families::transformer_xl::TransformerXl;
use posenc_encodings::kind::Form;

/// The longest sequence whose distances all have rows; `None` where distances are clipped.
pub(crate) fn reach(clip: &Clip, rows: usize, distances: &Distances) -> Option<usize> {
    let (before, ahead) = limits(clip, rows);
    let ends = [
        (clip.behind.is_none() && distances.keys().any(|d| *d < 0)).then_some(before),
        (clip.ahead.is_none() && distances.keys().any(|d| *d > 0)).then_some(ahead),
    ];
    ends.into_iter().flatten().min().map(|n| n + 1)
}

/// The largest distances backwards and ahead that a table has rows for.
fn limits(clip: &Clip, rows: usize) -> (usize, usize) {
    let center = usize::try_from(clip.center).unwrap_or(0);
    let after = rows.saturating_sub(center + 1);
    if clip.step > 0 {
        (center, after)
    } else {
        (after, center)
    }
}

pub(crate) fn finding(
    site: &Site,
    encoding: Encoding,
    entries: Vec<Use>,
    evidence: Vec<String>,
) -> Finding {
    Finding {
        encoding,
        sites: vec![site.index],
        entries,
        table: None,
        form: Form::Ops,
        fit_error: None,
        max_length: None,
        lead: 0,
        evidence,
    }
}

/// The encodings of what meets queries, keys and weights at a site.
pub(crate) fn decide(site: &Site, met: Vec<Met>, value: Option<Gathering>) -> Vec<Finding> {
    let entries: Vec<Use> = met.iter().map(|m| m.entry).collect();
    if met.iter().any(|m| m.distances.is_none()) {
        let readings: Vec<&Reading> = met.iter().map(|m| &m.reading).collect();
        return vec![match window(&readings) {
            Ok(shaw) => finding(site, Encoding::Shaw(shaw), entries, vec![]),
            Err(why) => unknown(site, entries, why),
        }];
    }
    let (waves, met): (Vec<Met>, Vec<Met>) = met.into_iter().partition(|m| m.code.is_some());
    let waves = waves
        .iter()
        .filter_map(|one| Some((one, one.code.as_ref()?)));
    let mut found: Vec<Finding> = waves
        .map(|(one, code)| sinusoids(site, one, code))
        .collect();
    if !met.is_empty() || value.is_some() {
        found.push(by_distance(site, &met, value.as_ref()));
    }
    found
}

fn unknown(site: &Site, entries: Vec<Use>, why: impl Into<String>) -> Finding {
    finding(site, Encoding::Unknown, entries, vec![why.into()])
}

/// Sinusoids of the distance that meet queries.
fn sinusoids(site: &Site, met: &Met, waves: &Waves) -> Finding {
    if met.side == Side::Key {
        return unknown(
            site,
            vec![met.entry],
            "keys are multiplied with sinusoids of the distance",
        );
    }
    let xl = TransformerXl {
        heads: site.heads.unwrap_or(0),
        head_dim: site.head_dim.unwrap_or(0),
        clamp: waves.code.clamp,
    };
    let made = finding(site, Encoding::TransformerXl(xl), vec![met.entry], vec![]);
    Finding {
        fit_error: Some(waves.code.error),
        max_length: waves.max_length,
        ..made
    }
}

/// Vectors by distance: how the distances are clipped, which vector each meets, and the rows of
/// the table.
type Clipped<'a, C> = (C, &'a Distances, Option<usize>);

/// Learned vectors by distance, as disentangled attention or as Shaw's.
fn by_distance(site: &Site, met: &[Met], value: Option<&Gathering>) -> Finding {
    let mut entries: Vec<Use> = met.iter().map(|m| m.entry).collect();
    let clips: Vec<Clipped<'_, Option<Clip>>> = met
        .iter()
        .filter_map(|m| Some((m.distances.as_ref()?, m.rows, !m.reading.without.is_empty())))
        .chain(value.iter().map(|v| (&v.distances, v.rows, v.is_window)))
        .map(|(d, rows, is_window)| {
            let mut clip = shaw::identify(d).ok();
            if let (Some(clip), Some(rows), true) = (&mut clip, rows, is_window) {
                // Distances beyond the table have no vectors, and need none.
                let (before, ahead) = limits(clip, rows);
                clip.behind.get_or_insert(before);
                clip.ahead.get_or_insert(ahead);
            }
            (clip, d, rows)
        })
        .collect();
    if value.is_none() && is_disentangled(met, &clips) {
        return match disentangled(met, &clips) {
            Ok((encoding, max_length)) => Finding {
                max_length,
                ..finding(site, Encoding::Disentangled(encoding), entries, vec![])
            },
            Err(why) => unknown(site, entries, why),
        };
    }
    entries.extend(value.iter().map(|v| v.entry));
    let clips = clips.into_iter().map(|(c, d, n)| Some((c?, d, n)));
    let Some(clips) = clips.collect::<Option<Vec<_>>>() else {
        let why = "vectors by distance that are neither clipped nor in buckets";
        return unknown(site, entries, why);
    };
    let (first, ..) = clips[0];
    let is_compatible = |c: &Clip| {
        // An end that no pair reaches is unknown.
        let same = |a: Option<usize>, b: Option<usize>| a.is_none() || b.is_none() || a == b;
        c.step == first.step && same(c.behind, first.behind) && same(c.ahead, first.ahead)
    };
    if !clips.iter().all(|(c, ..)| is_compatible(c)) {
        let why = "queries, keys and values have vectors for different distances";
        return unknown(site, entries, why);
    }
    let reaches = clips.iter();
    let reaches = reaches.filter_map(|(clip, distances, rows)| reach(clip, (*rows)?, distances));
    let max_length = reaches.min();
    let encoding = Encoding::Shaw(shaw(met, value.is_some(), &clips));
    Finding {
        max_length,
        ..finding(site, encoding, entries, vec![])
    }
}

fn has(met: &[Met], side: Side) -> bool {
    met.iter().any(|m| m.side == side)
}

/// Whether vectors by distance are those of disentangled attention: in buckets, or separate for
/// each head and made from one table of positions.
fn is_disentangled(met: &[Met], clips: &[Clipped<'_, Option<Clip>>]) -> bool {
    let by_head = met
        .iter()
        .any(|m| !m.reading.shared && m.reading.table.is_some());
    let folded = clips.iter().all(|(clip, _, rows)| is_folded(clip, *rows));
    let projected = met.iter().any(|m| !m.reading.shared && m.projected);
    let buckets = clips.iter().any(|(clip, ..)| clip.is_none());
    let both = has(met, Side::Key) && has(met, Side::Query);
    buckets || by_head && (projected || folded || both)
}

/// The terms as Shaw's: the ends at which distances are clipped, or those of the table.
fn shaw(met: &[Met], value: bool, clips: &[Clipped<'_, Clip>]) -> Shaw {
    let ends = clips.iter().map(|(clip, seen, rows)| {
        let most = rows.map(|rows| limits(clip, rows));
        let side = |end: Option<usize>, most: Option<usize>, ahead: bool| {
            let any = seen.keys().any(|d| if ahead { *d > 0 } else { *d < 0 });
            end.or(most.filter(|_| any))
        };
        (
            side(clip.behind, most.map(|m| m.0), false),
            side(clip.ahead, most.map(|m| m.1), true),
        )
    });
    let (before, ahead) = ends.fold((None, None), |(a, b), (c, d)| (a.or(c), b.or(d)));
    Shaw {
        max_distance: before.or(ahead),
        ahead: ahead.filter(|a| before.is_some_and(|b| b != *a)),
        window: None,
        key: has(met, Side::Query),
        value,
        query: has(met, Side::Key),
    }
}

/// Whether distances are clipped, and nowhere but to the first and the last row.
fn at_ends(clip: &Clip, rows: usize) -> bool {
    let (before, ahead) = limits(clip, rows);
    let ends = [(clip.behind, before), (clip.ahead, ahead)];
    let mut seen = ends.iter().filter_map(|(at, end)| Some((*at)? == *end));
    seen.next()
        .is_some_and(|first| first && seen.all(|end| end))
}

/// Whether rows count up with query − key in a table of as many on either side, distance 0 being
/// the first of the second half: so are positions embedded once and projected for each head.
fn is_folded(clip: &Option<Clip>, rows: Option<usize>) -> bool {
    let (Some(clip), Some(rows)) = (clip, rows) else {
        return false;
    };
    clip.step < 0 && rows.is_multiple_of(2) && usize::try_from(clip.center) == Ok(rows / 2)
}

/// The terms as disentangled attention, and the longest sequence.
fn disentangled(
    met: &[Met],
    clips: &[Clipped<'_, Option<Clip>>],
) -> Result<(Disentangled, Option<usize>), String> {
    let mut encoding = Disentangled {
        c2p: has(met, Side::Query),
        p2c: has(met, Side::Key),
        buckets: None,
        max_distance: None,
    };
    if met.len() != clips.len() {
        return Err("vectors that are no function of the distance".to_owned());
    }
    let mut max_length = None;
    let mut all = vec![];
    for ((clip, distances, rows), met) in clips.iter().zip(met) {
        match clip {
            Some(clip) if clip.step > 0 => {
                return Err("rows increase with key − query".to_owned());
            }
            Some(clip) => {
                let span = rows.or(met.origin).map_or(0, |n| n / 2);
                if rows.is_some() && usize::try_from(clip.center) != Ok(span) {
                    return Err("the row of distance 0 is not the middle of the table".to_owned());
                }
                max_length = rows.and_then(|rows| reach(clip, rows, distances));
                // Without distances that share the table's ends, there may be buckets beyond.
                let clipped = rows.is_none_or(|rows| at_ends(clip, rows));
                all.push((None, Some(span).filter(|s| clipped && *s > 0)));
            }
            None => {
                let buckets = disentangled::identify(distances).map_err(|miss| miss.why)?;
                all.push((Some(buckets.count), buckets.max_distance));
            }
        }
    }
    all.dedup();
    let [(buckets, max_distance)] = all[..] else {
        return Err("queries and keys have different buckets".to_owned());
    };
    (encoding.buckets, encoding.max_distance) = (buckets, max_distance);
    Ok((encoding, max_length))
}

/// Terms by rows and by columns of a window of pixels.
fn window(readings: &[&Reading]) -> Result<Shaw, &'static str> {
    let miss = "vectors that are no function of the distance or of offsets within a window";
    let tokens = readings.first().map_or(0, |r| r.rows.nrows());
    // Whether the vectors are a function of offsets along rows (axis 0) or columns.
    let along = |reading: &Reading, [height, width]: [usize; 2], axis: usize| {
        let place = |t: usize| [t / width, t % width][axis] as i64;
        let mut seen = BTreeMap::new();
        let mut pairs = reading.rows.indexed_iter();
        height * width == tokens
            && reading.rows.dim() == (tokens, tokens)
            && pairs.all(|((i, j), row)| {
                row.is_none_or(|row| *seen.entry(place(i) - place(j)).or_insert(row) == row)
            })
    };
    let [one, other] = readings else {
        return Err(miss);
    };
    let fits = |size: &[usize; 2]| {
        let both = |[a, b]: [usize; 2]| along(one, *size, a) && along(other, *size, b);
        both([0, 1]) || both([1, 0])
    };
    let heights = (2..=tokens / 2).filter(|h| tokens.is_multiple_of(*h));
    let mut sizes = heights.map(|h| [h, tokens / h]).filter(fits);
    let queries = readings.iter().all(|r| r.side == Side::Query);
    match (sizes.next(), sizes.next()) {
        (Some(size), None) if queries => Ok(Shaw {
            max_distance: None,
            ahead: None,
            window: Some(size),
            key: true,
            value: false,
            query: false,
        }),
        _ => Err(miss),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    /// Rows by the offset of a pair's places, `[down, across]`, in a window of 3 rows and 4 columns.
    fn reading(side: Side, row: impl Fn([i64; 2]) -> i64) -> Reading {
        let place = |t: usize| [t / 4, t % 4].map(|n| n as i64);
        let rows = Array2::from_shape_fn((12, 12), |(i, j)| {
            let ([y, x], [v, u]) = (place(i), place(j));
            Some(row([y - v, x - u]))
        });
        Reading {
            side,
            rows,
            without: vec![],
            past: 0,
            table: None,
            shared: true,
        }
    }

    #[test]
    fn queries_that_meet_offsets_down_and_across_determine_the_window() {
        let down = reading(Side::Query, |[y, _]| y + 2);
        let across = reading(Side::Query, |[_, x]| x + 3);
        for readings in [[&down, &across], [&across, &down]] {
            let found = window(&readings).expect("a window");
            assert_eq!(found.window, Some([3, 4]));
            assert!(found.key && !found.query && !found.value);
            assert_eq!(found.max_distance, None);
        }
    }

    #[test]
    fn other_terms_determine_no_window() {
        let down = reading(Side::Query, |[y, _]| y + 2);
        let across = reading(Side::Query, |[_, x]| x + 3);
        let of_keys = reading(Side::Key, |[_, x]| x + 3);
        let both = reading(Side::Query, |[y, x]| 7 * y + x + 17);
        let mut shifted = across.clone();
        shifted.rows[[5, 6]] = Some(3);
        let mut narrow = across.clone();
        narrow.rows = narrow.rows.slice_move(ndarray::s![.., ..11]);
        let cases: [(&str, &[&Reading]); 8] = [
            ("down alone", &[&down]),
            ("down twice", &[&down, &down]),
            ("across twice", &[&across, &across]),
            ("met by keys", &[&down, &of_keys]),
            ("down and across at once", &[&down, &both]),
            ("one pair of another offset", &[&down, &shifted]),
            ("fewer keys than queries", &[&down, &narrow]),
            ("three terms", &[&down, &across, &across]),
        ];
        for (name, readings) in cases {
            let why = window(readings).unwrap_err();
            assert!(why.starts_with("vectors that are no function"), "{name}");
        }
    }
}
