//! The runs of a sweep: how many sequences of which length, where they are padded, and what a difference means.

use super::feeds::Padding;
use super::lengths::supports;
use super::subject::Subject;
use crate::graph::operators::counts_tokens;
use crate::graph::ports::{Lengths, Port, Ports, Role};

/// A run, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at: Lengths,
    pub(crate) padding: Padding,
    /// Whether a model that does not run so is no worse for it.
    pub(crate) is_optional: bool,
    pub(crate) meaning: Meaning,
}

/// What it means that outputs of two models differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// That one is wrong.
    Same,
    /// Nothing: one was rewritten from the other, and computes another function there.
    NewFunction,
    /// Nothing is compared: the other model does not run there.
    Alone,
}

impl Point {
    /// The run in words.
    pub(crate) fn words(self) -> String {
        let Lengths {
            batch, sequence, ..
        } = self.at;
        match (batch, self.padding) {
            (1, _) => format!("one sequence of {sequence} tokens"),
            (_, Padding::Left) => {
                format!("{batch} sequences of {sequence} tokens with padding before them")
            }
            _ => format!("{batch} sequences of {sequence} tokens"),
        }
    }

    /// The point with one sequence, where the declared shapes allow it; it is not padded.
    fn alone(self, ports: &Ports) -> Self {
        let at = ports.alone(self.at);
        let padding = match at.batch {
            1 => Padding::None,
            _ => self.padding,
        };
        Self {
            at,
            padding,
            ..self
        }
    }
}

/// The longest of the usual points that are run once more in other ways.
const MIDDLE: usize = 64;

/// The points with another for one sequence alone and another with padding before the tokens, as far as the
/// model takes them.
pub(crate) fn with_variants(points: &[Point], subject: &Subject<'_>) -> Vec<Point> {
    let ports = subject.ports();
    let short = points.iter().filter(|p| p.at.sequence <= MIDDLE);
    let middle = short.max_by_key(|p| p.at.sequence).or(points.first());
    let Some(middle) = middle else {
        return vec![];
    };
    let middle = Point {
        is_optional: true,
        ..*middle
    };
    let left = Point {
        padding: Padding::Left,
        ..middle
    };
    let takes_left = middle.at.batch > 1 && takes_left_padding(subject);
    let more = [Some(middle.alone(ports)), takes_left.then_some(left)];
    let mut all = points.to_vec();
    for point in more.into_iter().flatten() {
        let is_run = |other: &Point| (other.at, other.padding) == (point.at, point.padding);
        if supports(subject.model, subject.found, point.at) && !all.iter().any(is_run) {
            all.push(point);
        }
    }
    all
}

/// The same points with one sequence each, every one once.
pub(crate) fn alone(points: &[Point], ports: &Ports) -> Vec<Point> {
    let mut all: Vec<Point> = vec![];
    for point in points {
        let point = point.alone(ports);
        if !all.contains(&point) {
            all.push(point);
        }
    }
    all
}

/// Whether an input says for each token whether it is padding, and nothing else does: neither an input nor attention
/// counts the tokens of a sequence.
pub(crate) fn takes_left_padding(subject: &Subject<'_>) -> bool {
    let (ports, found) = (subject.ports(), subject.found);
    let masks = || ports.iter().filter(|port| port.role == Role::Padding);
    let is_plain = |port: &Port| port.dims.len() == 2 && !port.turned;
    let rank = |value| found.trace.get(value).dims.as_ref().map(Vec::len);
    let mut nodes = found.attention.iter().map(|site| site.node);
    let counts = nodes.any(|id| counts_tokens(subject.model.graph().node(id), rank));
    masks().next().is_some()
        && masks().all(is_plain)
        && ports.first(Role::Counts).is_none()
        && !counts
}
