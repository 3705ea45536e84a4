//! The numbers that a bias adds to the scores of a site, as families read them.

use std::collections::BTreeMap;

use ndarray::Array3;

use crate::miss::Miss;

/// The largest finite number, its sign aside.
pub fn most<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let finite = values.filter(|v| v.is_finite());
    finite.fold(0.0, |most, v| most.max(v.abs()))
}

/// The biases of one group as families read them.
#[derive(Clone, Debug)]
pub struct Scores {
    /// `[head, query, key]`, −∞ where hidden.
    pub values: Array3<f64>,
    /// The place of the first query among the keys.
    pub origin: i64,
    /// How exactly the graph stores its numbers, as a share of the largest.
    pub tolerance: f64,
    /// Whether part of the attention goes to no key, so that a softmax sees a constant for each query.
    pub has_sink: bool,
}

impl Scores {
    /// No numbers at all.
    pub fn absent() -> Self {
        Self {
            values: Array3::zeros((0, 0, 0)),
            origin: 0,
            tolerance: 0.0,
            has_sink: false,
        }
    }

    /// The heads that have numbers of their own.
    pub fn heads(&self) -> usize {
        self.values.dim().0
    }

    /// The number of queries.
    pub fn queries(&self) -> usize {
        self.values.dim().1
    }

    /// What a query sees: the distance of each key, key − query, and its bias.
    pub fn seen(&self, head: usize, query: usize) -> impl Iterator<Item = (i64, f64)> {
        let at = query as i64 + self.origin;
        let row = self.values.slice(ndarray::s![head, query, ..]);
        let row: Vec<f64> = row.to_vec();
        let keys = row.into_iter().enumerate();
        keys.filter(|(_, v)| v.is_finite())
            .map(move |(j, v)| (j as i64 - at, v))
    }

    /// Whether every query sees the same number everywhere: no bias, for a softmax. Beside a sink, all
    /// queries of a head do.
    pub fn is_flat(&self) -> bool {
        let near = 1e-9 * most(self.values.iter());
        (0..self.heads()).all(|h| {
            let mut first = None;
            (0..self.queries()).all(|i| {
                first = first.filter(|_| self.has_sink);
                let mut seen = self.seen(h, i).map(|(_, v)| v);
                seen.all(|v| (v - *first.get_or_insert(v)).abs() <= near)
            })
        })
    }

    /// The same with the constant of each query lifted, which a softmax does not see: 0 where a
    /// query meets its own key. `None` where one that sees any key does not see it.
    pub fn anchored(&self) -> Option<Self> {
        let mut values = self.values.clone();
        for mut head in values.outer_iter_mut() {
            for (i, mut row) in head.outer_iter_mut().enumerate() {
                if row.iter().all(|v| !v.is_finite()) {
                    continue;
                }
                let own = usize::try_from(i as i64 + self.origin).ok()?;
                let own = row.get(own).copied().filter(|v| v.is_finite())?;
                row.mapv_inplace(|v| v - own);
            }
        }
        Some(Self {
            values,
            ..self.clone()
        })
    }

    /// How far the numbers are from those of a formula, which takes a head, a query and a key by their places
    /// among the keys; a constant for each query aside, where a softmax does not see it.
    pub fn residual(&self, formula: impl Fn(usize, i64, i64) -> f64) -> f64 {
        let mut largest = 0.0f64;
        for head in 0..self.heads() {
            for i in 0..self.queries() {
                let query = i as i64 + self.origin;
                let seen = self.seen(head, i);
                let rest = seen.map(|(d, v)| v - formula(head, query, query + d));
                let (low, high) = rest.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| {
                    (a.min(v), b.max(v))
                });
                largest = largest.max(match self.has_sink {
                    // Of a query that sees no key, these are infinite.
                    true if low <= high => low.abs().max(high.abs()),
                    _ => (high - low) / 2.0,
                });
            }
        }
        largest
    }

    /// The number of each head by the distance, key − query.
    ///
    /// # Errors
    /// Where a distance has more than one number.
    pub fn by_distance(&self) -> Result<BTreeMap<i64, Vec<f64>>, Miss> {
        let near = self.tolerance * most(self.values.iter());
        let mut profile: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        let mut worst = 0.0f64;
        for head in 0..self.heads() {
            for i in 0..self.queries() {
                for (d, v) in self.seen(head, i) {
                    let at = profile
                        .entry(d)
                        .or_insert_with(|| vec![f64::NAN; self.heads()]);
                    if at[head].is_nan() {
                        at[head] = v;
                    } else {
                        worst = worst.max((at[head] - v).abs());
                    }
                }
            }
        }
        if worst <= near {
            return Ok(profile);
        }
        Err(Miss::new(format!(
            "pairs of equal distance differ by up to {worst:.2e}"
        )))
    }

    /// The same up to a constant for each query, where a softmax does not see it.
    ///
    /// # Errors
    /// Where a distance has more than one number.
    pub fn profile(&self) -> Result<BTreeMap<i64, Vec<f64>>, Miss> {
        let anchored = || self.anchored()?.by_distance().ok();
        self.by_distance().or_else(|why| match self.has_sink {
            true => Err(why),
            false => anchored().ok_or(why),
        })
    }
}

/// Distances, each `shift` farther, by which numbers they have: those with the same share a label.
pub fn labels(profile: &BTreeMap<i64, Vec<f64>>, shift: i64) -> BTreeMap<i64, usize> {
    let near = 1e-9 * most(profile.values().flatten());
    let mut distinct: Vec<&Vec<f64>> = vec![];
    let mut labels = BTreeMap::new();
    for (d, numbers) in profile {
        let known = distinct.iter().rposition(|n| equal(n, numbers, near));
        let label = known.unwrap_or_else(|| {
            distinct.push(numbers);
            distinct.len() - 1
        });
        labels.insert(d + shift, label);
    }
    labels
}

/// Whether the numbers of all heads are equal, within an absolute tolerance.
pub fn equal(a: &[f64], b: &[f64], near: f64) -> bool {
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= near || a.is_nan() && b.is_nan();
    a.iter().zip(b).all(same)
}
