//! Figures of rotations: a set for each law.

use std::f64::consts::TAU;

use posenc_encodings::laws::Frequencies;
use posenc_ir::Model;

use crate::detect::Found;
use crate::prove::expectations;
use crate::prove::expected::Expected;
use crate::report::{Line, Picture, Quantity, Shape};

/// Distances that a similarity is shown for: near ones tell most.
const DISTANCES: usize = 512;

/// Distances that cosines and sines are shown for.
const NEAR: usize = 128;

/// Points of a line.
const POINTS: usize = 256;

/// What is drawn of a law, with the sites that have it.
type OfLaw = (Vec<usize>, [(Quantity, Shape); 4]);

/// Wavelengths, frequencies, cosines and sines, and similarities of each law.
pub(super) fn shapes(model: &Model, found: &Found, new_length: Option<usize>) -> Vec<OfLaw> {
    let expected = expectations(model, found).unwrap_or_default();
    let mut laws: Vec<(&Expected, Vec<usize>)> = vec![];
    for one in &expected {
        let stack = |site: usize| found.attention[site].place.stack;
        let same = |(law, _): &&mut (&Expected, Vec<usize>)| {
            law.law == one.law && stack(law.site) == stack(one.site)
        };
        match laws.iter_mut().find(same) {
            Some((_, sites)) => sites.push(one.site),
            None => laws.push((one, vec![one.site])),
        }
    }
    let shapes = laws.into_iter().map(|(expected, sites)| {
        let rotations = rotations(found, expected, new_length);
        let of_pairs = |number: fn(f64) -> f64| {
            let line = |rotation: &Rotation| rotation.by_pair(number);
            Shape::Lines(rotations.iter().map(line).collect())
        };
        let all = [
            (Quantity::Wavelength, of_pairs(|f| TAU / f.abs())),
            (Quantity::Frequency, of_pairs(f64::abs)),
            (
                Quantity::Rotation,
                Shape::Pictures(rotations.iter().flat_map(Rotation::waves).collect()),
            ),
            (
                Quantity::Similarity,
                Shape::Lines(rotations.iter().map(Rotation::similarity).collect()),
            ),
        ];
        (sites, all)
    });
    shapes.collect()
}

/// What is computed at a length.
struct Rotation {
    /// The length, where others have other frequencies; else empty.
    name: String,
    length: usize,
    frequencies: Frequencies,
}

/// The rotation of a law; two where it changes with the length.
fn rotations(found: &Found, expected: &Expected, new_length: Option<usize>) -> Vec<Rotation> {
    let named = |(length, frequencies): (usize, Frequencies)| Rotation {
        name: format!("{length} tokens"),
        length,
        frequencies,
    };
    let law = &expected.law;
    if let Some(at) = law.changes_at() {
        let long = new_length.filter(|new| *new > at).unwrap_or(4 * at);
        return [at, long]
            .map(|length| named((length, law.frequencies(length))))
            .into();
    }
    let site = found.rotary.iter().find(|own| own.site == expected.site);
    let switch = site.and_then(|own| own.switch.as_ref());
    if let Some((switch, (length, rope))) = switch.and_then(|s| Some((s, s.beyond.last()?))) {
        let beyond = Frequencies {
            inv_freq: rope.inv_freq.clone(),
            attention_factor: rope.attention_factor,
        };
        let short = law.frequencies(switch.original_length);
        return [(switch.original_length, short), (*length, beyond)]
            .map(named)
            .into();
    }
    vec![Rotation {
        name: String::new(),
        length: DISTANCES,
        frequencies: law.frequencies(DISTANCES),
    }]
}

impl Rotation {
    /// A number of each frequency, over the index of its pair.
    fn by_pair(&self, number: fn(f64) -> f64) -> Line {
        let all = self.frequencies.inv_freq.iter().enumerate();
        Line {
            name: self.name.clone(),
            points: all.map(|(pair, f)| [pair as f64, number(*f)]).collect(),
        }
    }

    /// Cosines and sines by pair and distance.
    fn waves(&self) -> [Picture; 2] {
        let Frequencies {
            inv_freq,
            attention_factor,
        } = &self.frequencies;
        let wave = |name: &str, of: fn(f64) -> f64| Picture {
            name: match &self.name[..] {
                "" => name.to_owned(),
                at => format!("{name}, {at}"),
            },
            ..Picture::new([inv_freq.len(), NEAR.min(self.length)], |pair, distance| {
                attention_factor * of(inv_freq[pair] * distance as f64)
            })
        };
        [wave("cos", f64::cos), wave("sin", f64::sin)]
    }

    fn similarity(&self) -> Line {
        let Frequencies {
            inv_freq,
            attention_factor,
        } = &self.frequencies;
        let pairs = inv_freq.len().max(1) as f64;
        let similarity = |distance: f64| {
            let cosines = inv_freq.iter().map(|f| (f * distance).cos());
            attention_factor.powi(2) * cosines.sum::<f64>() / pairs
        };
        let longest = self.length.min(DISTANCES);
        let points = POINTS.min(longest);
        let distance = |i: usize| (i * longest / points) as f64;
        Line {
            name: self.name.clone(),
            points: (0..points)
                .map(|i| [distance(i), similarity(distance(i))])
                .collect(),
        }
    }
}
