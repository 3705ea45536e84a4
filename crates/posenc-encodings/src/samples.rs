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
    /// How exactly the graph holds its numbers, as a share of the largest.
    pub tolerance: f64,
}

impl Scores {
    pub fn heads(&self) -> usize {
        self.values.dim().0
    }

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

    /// Whether every query sees the same number everywhere: no bias, for a softmax.
    pub fn is_flat(&self) -> bool {
        let near = 1e-9 * most(self.values.iter());
        (0..self.heads()).all(|h| {
            (0..self.queries()).all(|i| {
                let mut seen = self.seen(h, i).map(|(_, v)| v);
                let first = seen.next().unwrap_or(0.0);
                seen.all(|v| (v - first).abs() <= near)
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

    /// The number of each head by the distance; a miss where there is more than one.
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
                    match at[head].is_nan() {
                        true => at[head] = v,
                        false => worst = worst.max((at[head] - v).abs()),
                    }
                }
            }
        }
        match worst <= near {
            true => Ok(profile),
            false => Err(Miss::new(format!(
                "pairs of equal distance differ by up to {worst:.2e}"
            ))),
        }
    }
}
