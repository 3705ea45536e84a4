//! Numbers in the graph that may be counts of tokens or sizes of the old image: what they are used for
//! would change with these.

use std::collections::BTreeSet;

use posenc_ir::ValueId;

use super::sizes::Wanted;
use super::walk::Walk;
use crate::attention::scale;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::Role;

/// Lower counts are everywhere.
const LEAST: usize = 4;

/// Constants of so many numbers may be sizes.
pub(super) const FEW: usize = 8;

/// Nodes between the product and the softmax are few.
const STEPS: usize = 16;

/// Roundings of f32 between a number and a count.
const NEAR: f64 = 1e-6;

/// Numbers of activations and of their approximations.
const USUAL: [f64; 12] = [
    0.5,
    1.0,
    2.0,
    3.0,
    6.0,
    1.0 / 6.0,
    // The largest number of a pixel.
    255.0,
    1.0 / 255.0,
    std::f64::consts::SQRT_2,
    std::f64::consts::FRAC_1_SQRT_2,
    0.044_715,
    0.797_884_560_802_865_4,
];

impl Walk<'_> {
    /// Refuses numbers, inputs and outputs that are counts of what changes and do not follow.
    pub(super) fn check_counts(&self) -> Result<(), RewriteError> {
        let counts = self.counts();
        self.check_scales(&counts)?;
        self.check_numbers_of(&counts)?;
        self.check_places()?;
        if matches!(self.wanted, Wanted::Image { .. }) {
            self.check_ports(&counts)?;
        }
        Ok(())
    }

    /// Refuses scores that are scaled by another number than the root of the features: it may follow from the
    /// number of keys.
    fn check_scales(&self, counts: &BTreeSet<usize>) -> Result<(), RewriteError> {
        let (graph, found) = (self.context.graph(), self.context.found);
        for site in &found.attention {
            let (Some(scores), Some(product), Some(dim)) =
                (site.scores, site.product, site.head_dim)
            else {
                continue;
            };
            let of = |operand| scale::before(graph, &found.classes, &found.trace, operand);
            let Some(behind) = self.scaled_between(product, scores) else {
                continue;
            };
            let all = behind * of(&site.query) * of(&site.key);
            let root = (dim as f64).sqrt();
            let usual = [1.0, 1.0 / root, 1.0 / dim as f64];
            let is_known = match self.wanted {
                Wanted::OpenLength { .. } => !counts.iter().any(|count| may_follow(all, *count)),
                _ => false,
            };
            if !is_known && !usual.iter().any(|usual| is_about(all, *usual)) {
                let why = format!(
                    "scores are scaled by {all}, and whether that follows from the number of keys is not known"
                );
                return Err(self.refuse(site.node, why));
            }
        }
        Ok(())
    }

    /// The number that scores are multiplied with behind the product; `None` where that is no number.
    fn scaled_between(&self, product: ValueId, scores: ValueId) -> Option<f64> {
        let graph = self.context.graph();
        let mut factor = 1.0;
        let mut value = scores;
        for _ in 0..STEPS {
            if value == product {
                return Some(factor);
            }
            let (id, _) = graph.producer(value)?;
            let node = graph.node(id);
            let content = |slot: &usize| {
                node.input(*slot)
                    .is_some_and(|v| self.context.is_content(v))
            };
            let mut from = (0..node.inputs().len()).filter(content);
            let (slot, other) = (from.next()?, from.next());
            if other.is_some() {
                return None;
            }
            if matches!(node.op(), "Mul" | "Div") {
                let number = node.input(1 - slot)?;
                let known = self.context.found.trace.get(number).to_f64()?;
                let number = known.first().copied().filter(|_| known.len() == 1)?;
                match (node.op(), slot) {
                    ("Mul", _) => factor *= number,
                    ("Div", 0) => factor /= number,
                    _ => return None,
                }
            }
            value = node.input(slot)?;
        }
        None
    }

    /// The old lengths of axes that change, and of what they are made of.
    fn counts(&self) -> BTreeSet<usize> {
        let all = self.axes.values().flatten().filter(|axis| axis.changes());
        let mut counts = BTreeSet::new();
        for axis in all {
            counts.insert(axis.before());
            let parts = axis.parts().iter().filter(|part| part.changes());
            for part in parts {
                counts.insert(part.before());
                let factors = part.factors().iter().filter(|factor| factor.changes());
                counts.extend(factors.map(Extent::before));
            }
        }
        counts.retain(|n| *n >= LEAST);
        counts
    }

    /// Refuses a few numbers that content is multiplied by, or that are added to it, where all of them
    /// follow from counts.
    fn check_numbers_of(&self, counts: &BTreeSet<usize>) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let dims = self
            .context
            .found
            .attention
            .iter()
            .filter_map(|site| site.head_dim);
        let dims: BTreeSet<usize> = dims.collect();
        for id in graph.scope(graph.main()).nodes().iter().copied() {
            let node = graph.node(id);
            let is_open = self.wanted.opened().is_some();
            let (scales, bounds) = match node.op() {
                "Mul" | "Div" => (true, false),
                "Add" | "Sub" => (false, false),
                "Clip" | "Min" | "Max" | "Pow" | "Mod" | "Equal" => (false, true),
                "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => (false, true),
                _ => continue,
            };
            if bounds && !is_open || !node.domain().is_empty() {
                continue;
            }
            let none = BTreeSet::new();
            let dims = if scales { &dims } else { &none };
            let content = |value: &ValueId| self.context.is_content(*value);
            for own in node.inputs().iter().flatten().copied() {
                let is_constant = self.context.found.classes.of_value(own).is_constant();
                let is_float = self.context.dtype(own).is_float();
                if !is_constant || !is_float || !node.inputs().iter().flatten().any(content) {
                    continue;
                }
                let known = self.context.found.trace.get(own);
                let few = known.elements().is_some_and(|n| n > 0 && n <= FEW);
                let Some(numbers) = known.to_f64().filter(|_| few) else {
                    continue;
                };
                let widely = |v: f64| {
                    counts
                        .iter()
                        .copied()
                        .find(|count| is_open && may_follow(v, *count))
                };
                let meant = |v: &f64| {
                    let count = || count_of(*v, counts).or_else(|| widely(*v));
                    (!is_usual(*v, dims)).then(count)?
                };
                let all: Option<Vec<usize>> = numbers.iter().map(meant).collect();
                if let Some(count) = all.and_then(|all| all.first().copied()) {
                    let number = numbers.iter().next().copied().unwrap_or_default();
                    let why = format!(
                        "this {} reads {number}, which may follow from {count}, {}",
                        node.op(),
                        match self.wanted.opened() {
                            Some(_) => "the number of tokens in the graph".to_owned(),
                            None => format!("a size that changes with the {}", self.wanted.name()),
                        }
                    );
                    return Err(self.refuse(id, why));
                }
            }
        }
        Ok(())
    }

    /// Refuses other inputs of as many elements as there are patches, and outputs that keep the old size.
    fn check_ports(&self, counts: &BTreeSet<usize>) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let refuse = |value: ValueId, what: &str| {
            let why = format!(
                "the {what} {} has as many elements as the old image has patches or pixels, and whether they \
                 follow it is not known",
                graph.name(value)
            );
            Err(Refusal::unsupported(why).into())
        };
        let dims = |value: ValueId| self.context.dims(value).unwrap_or_default();
        for port in self.context.found.ports.iter() {
            let is_numbers = matches!(port.role, Role::Content | Role::Padding);
            let is_counted = dims(port.value).iter().skip(1).any(|n| counts.contains(n));
            if is_numbers && is_counted && !self.axes.contains_key(&port.value) {
                return refuse(port.value, "input");
            }
        }
        let grids = self.grids();
        // Patches with class or register tokens: no width is as long.
        let all = self.axes.values().flatten();
        let all = all.filter(|axis| axis.changes() && axis.parts().len() > 1);
        let sequences: BTreeSet<usize> = all.map(Extent::before).collect();
        for value in graph.scope(graph.main()).outputs().iter().copied() {
            if self.axes.contains_key(&value) {
                continue;
            }
            let own = dims(value);
            let is_grid = own
                .windows(2)
                .any(|pair| grids.contains(&[pair[0], pair[1]]));
            let is_counted = own.iter().any(|n| counts.contains(n));
            let is_token = own.iter().any(|n| sequences.contains(n));
            if is_grid || is_token || is_counted && !self.context.is_content(value) {
                return refuse(value, "output");
            }
        }
        Ok(())
    }

    /// The old sides of the image and of grids of patches.
    fn grids(&self) -> BTreeSet<[usize; 2]> {
        let mut grids = BTreeSet::new();
        if let Wanted::Image { old, .. } = &self.wanted {
            grids.insert(*old);
        }
        for axes in self.axes.values() {
            let both = axes
                .windows(2)
                .filter(|pair| pair.iter().all(Extent::changes));
            grids.extend(both.map(|pair| [pair[0].before(), pair[1].before()]));
            for part in axes.iter().flat_map(Extent::parts) {
                if let [height, width] = part.factors() {
                    grids.insert([height.before(), width.before()]);
                }
            }
        }
        grids.retain(|sides| sides.iter().all(|n| *n > 1));
        grids
    }
}

/// Whether a number is one that occurs without any count.
fn is_usual(number: f64, head_dims: &BTreeSet<usize>) -> bool {
    let of_heads = head_dims.iter().flat_map(|d| {
        let root = (*d as f64).sqrt();
        [
            root,
            1.0 / root,
            root.sqrt(),
            1.0 / root.sqrt(),
            1.0 / *d as f64,
        ]
    });
    let mut usual = USUAL.into_iter().chain(of_heads);
    number == 0.0 || usual.any(|usual| is_near(number.abs(), usual))
}

/// The count from which a number follows, as its root, its logarithm or its share of one less.
fn count_of(number: f64, counts: &BTreeSet<usize>) -> Option<usize> {
    let mut counts = counts.iter().copied();
    counts.find(|count| {
        let n = *count as f64;
        let functions = [
            n,
            n - 1.0,
            n.sqrt(),
            (n - 1.0).sqrt(),
            n.ln(),
            n / (n - 1.0),
        ];
        let both = functions.into_iter().flat_map(|f| [f, 1.0 / f]);
        let mut all = both;
        all.any(|f| is_near(number.abs(), f))
    })
}

/// Whether a number may follow from a count in one of more ways, as a product or a logarithm.
pub(super) fn may_follow(number: f64, count: usize) -> bool {
    if count < LEAST || number == 0.0 || USUAL.iter().any(|usual| is_near(number.abs(), *usual)) {
        return false;
    }
    let n = count as f64;
    let mut functions = vec![
        n + 1.0,
        n + 2.0,
        n - 2.0,
        n - 3.0,
        2.0 * n,
        2.0 * n - 1.0,
        2.0 * n + 1.0,
        3.0 * n,
        n * n,
        n.powf(1.5),
        n * (n + 1.0),
        n * (n + 1.0) / 2.0,
        n * (n - 1.0) / 2.0,
        n.powf(0.25),
        (n + 1.0).sqrt(),
        (n + 1.0).ln(),
        n.log2(),
        (n + 1.0).log2(),
        n.log10(),
        (n + 1.0).log10(),
        n / (n + 1.0),
    ];
    if count >= 16 {
        functions.extend([n / 2.0, n / 4.0]);
    }
    let both = functions.into_iter().flat_map(|f| [f, 1.0 / f]);
    let near = both.into_iter().any(|f| is_near(number.abs(), f));
    near || count_of(number, &BTreeSet::from([count])).is_some()
}

/// Whether a number is another one, as half precision stores it.
fn is_about(a: f64, b: f64) -> bool {
    (a - b).abs() <= 2e-3 * b.abs()
}

pub(super) fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * b.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_count_are_told_from_other_numbers() {
        let counts = BTreeSet::from([16, 17]);
        for number in [
            16.0,
            -1.0 / 17.0,
            17.0_f64.ln(),
            17.0_f64.sqrt(),
            16.0 / 15.0,
        ] {
            assert!(count_of(number, &counts).is_some(), "{number}");
        }
        for number in [0.3, 18.0, 5.0, 0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(count_of(number, &counts), None, "{number}");
        }
    }

    #[test]
    fn more_functions_of_a_length_are_told_where_it_is_left_open() {
        for number in [
            60.0,
            120.0,
            3600.0,
            1.0 / 61.0,
            30.0,
            60.0_f64.log2(),
            -58.0,
        ] {
            assert!(may_follow(number, 60), "{number}");
        }
        for number in [0.0, 1.0, 2.0, 0.5, 50.0, 1e-5, 10_000.0, f64::NAN] {
            assert!(!may_follow(number, 60), "{number}");
        }
        assert!(!may_follow(3.0, 3), "too short to be told");
    }

    #[test]
    fn numbers_of_activations_and_heads_are_usual() {
        let heads = BTreeSet::from([64]);
        for number in [0.125, 8.0, 0.5, -2.0, std::f64::consts::SQRT_2] {
            assert!(is_usual(number, &heads), "{number}");
        }
        for number in [14.0, 1.0 / 14.0, 197.0] {
            assert!(!is_usual(number, &heads), "{number}");
        }
    }
}
