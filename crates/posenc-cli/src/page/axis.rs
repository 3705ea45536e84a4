//! Axes: how numbers are spread over them, and which of them are written.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use posenc_encodings::round::to_digits;

use crate::number::rough;

/// How numbers are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// By their logarithm; what is not positive is left out.
    Log,
}

/// The most numbers that are written on an axis.
const MOST: usize = 8;

/// The part of a scale that is shown.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) name: String,
    scale: Scale,
    range: Range<f64>,
    /// Whether it begins where others end.
    is_reversed: bool,
    /// The numbers that are written.
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, limit: (i32, i32)) -> i32 {
        let share = match self.share(*number) {
            share if self.is_reversed => 1.0 - share,
            share => share,
        };
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => vec![],
            false => self.ticks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl Scale {
    pub(super) fn has(self, number: f64) -> bool {
        number.is_finite() && (self == Self::Linear || number > 0.0)
    }

    /// Where a number is, on a line of equal steps.
    fn place(self, number: f64) -> f64 {
        match self {
            Self::Linear => number,
            Self::Log => number.log10(),
        }
    }
}

impl Axis {
    /// An axis with some space around its numbers, which the scale has; `None` without any.
    pub(super) fn around(
        name: &str,
        scale: Scale,
        numbers: impl Iterator<Item = f64> + Clone,
    ) -> Option<Self> {
        let ends = numbers.clone().fold(None, |ends: Option<(f64, f64)>, v| {
            let (low, high) = ends.unwrap_or((v, v));
            Some((low.min(v), high.max(v)))
        });
        let (low, high) = ends?;
        let range = match scale {
            Scale::Log => low / 1.5..high * 1.5,
            Scale::Linear if low == high => low - 1.0..high + 1.0,
            Scale::Linear => {
                let space = 0.04 * (high - low);
                low - space..high + space
            }
        };
        let step = match numbers.clone().all(|v| v.fract() == 0.0) {
            true => 1.0,
            false => 0.0,
        };
        let ticks = match scale {
            Scale::Linear => linear(&range, MOST, step),
            Scale::Log => logarithmic(&range, step),
        };
        Some(Self {
            name: name.to_owned(),
            scale,
            range,
            is_reversed: false,
            ticks,
        })
    }

    /// An axis of cells, each of which stands for 1, from this number on, with no more labels than these.
    pub(super) fn cells(name: &str, first: i64, count: usize, most: usize) -> Self {
        let start = first as f64 - 0.5;
        let range = start..start + count as f64;
        Self {
            name: name.to_owned(),
            scale: Scale::Linear,
            ticks: linear(&range, most, 1.0),
            is_reversed: false,
            range,
        }
    }

    /// The same from its end to its beginning.
    pub(super) fn reversed(self) -> Self {
        Self {
            is_reversed: !self.is_reversed,
            ..self
        }
    }

    /// The part of the axis that is below a number.
    pub(super) fn share(&self, number: f64) -> f64 {
        let [low, high] = [self.range.start, self.range.end].map(|end| self.scale.place(end));
        (self.scale.place(number) - low) / (high - low)
    }

    /// What is written for a number. What should be 0 may be a rounding.
    pub(super) fn label(&self, number: f64) -> String {
        let length = self.range.end - self.range.start;
        let label = match number.abs() {
            size if self.scale == Scale::Linear && size < 1e-9 * length => "0".to_owned(),
            size if (1e-3..1e6).contains(&size) => to_digits(number, 4).to_string(),
            _ => rough(number),
        };
        label.replace('-', "−")
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, of `least` and more.
fn linear(range: &Range<f64>, most: usize, least: f64) -> Vec<f64> {
    let rough = (range.end - range.start) / most.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
    let step = steps.into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough).max(least);
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Powers of ten, with 2 and 5 times each where these are few.
fn logarithmic(range: &Range<f64>, least: f64) -> Vec<f64> {
    let [first, last] = [range.start, range.end].map(|end| end.log10().floor() as i32);
    let of = |mantissas: &'static [f64], step: usize| {
        let powers = (first..=last).filter(move |power| power.rem_euclid(step as i32) == 0);
        let all =
            powers.flat_map(move |power| mantissas.iter().map(move |m| m * 10_f64.powi(power)));
        let shown = all.filter(|v| range.contains(v) && *v >= least);
        shown.collect::<Vec<f64>>()
    };
    let fine = of(&[1.0, 2.0, 5.0], 1);
    match fine.len() {
        0..=1 => linear(range, MOST, least),
        2..=MOST => fine,
        _ => {
            let decades = (last - first).unsigned_abs() as usize;
            of(&[1.0], decades.div_ceil(MOST).max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, numbers: &[f64]) -> Vec<String> {
        let axis = Axis::around("", scale, numbers.iter().copied()).unwrap();
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn round_numbers_are_written_and_whole_ones_of_whole_ones() {
        let cases: [(Scale, &[f64], &str); 8] = [
            (Scale::Linear, &[0.0, 511.0], "0 100 200 300 400 500"),
            (Scale::Linear, &[-0.26, 1.2], "−0.2 0 0.2 0.4 0.6 0.8 1 1.2"),
            (Scale::Linear, &[0.0, 1.0], "0 1"),
            (Scale::Linear, &[3.0], "2 3 4"),
            (Scale::Log, &[6.5, 8e4], "10 100 1000 10000 100000"),
            (Scale::Log, &[0.08, 1.0], "0.1 0.2 0.5 1"),
            (
                Scale::Log,
                &[1e-30, 1.0],
                "1e−28 1e−24 1e−20 1e−16 1e−12 1e−8 1e−4 1",
            ),
            (Scale::Log, &[1.0, 64.0], "1 2 5 10 20 50"),
        ];
        for (scale, numbers, want) in cases {
            assert_eq!(labels(scale, numbers).join(" "), want, "{numbers:?}");
        }
    }

    #[test]
    fn numbers_that_are_near_each_other_have_labels_too() {
        for numbers in [[3.0, 3.1], [1e-5, 1.3e-5], [0.3, 0.31]] {
            for scale in [Scale::Linear, Scale::Log] {
                let got = labels(scale, &numbers);
                assert!(
                    (2..=MOST + 1).contains(&got.len()),
                    "{scale:?} {numbers:?} {got:?}"
                );
            }
        }
    }

    #[test]
    fn cells_are_around_whole_numbers() {
        let axis = Axis::cells("", -3, 7, MOST);
        assert_eq!(axis.range(), -3.5..3.5);
        assert_eq!(axis.ticks, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn numbers_have_places_between_the_ends() {
        let axis = Axis::cells("", 0, 4, MOST);
        assert_eq!(
            [-0.5, 1.5, 3.5].map(|v| axis.map(&v, (100, 20))),
            [100, 60, 20]
        );
        let axis = axis.reversed();
        assert_eq!(
            [-0.5, 1.5, 3.5].map(|v| axis.map(&v, (100, 20))),
            [20, 60, 100]
        );
        let axis = Axis::around("", Scale::Log, [1.0, 100.0].into_iter()).unwrap();
        assert_eq!(axis.map(&10.0, (0, 80)), 40);
    }
}
