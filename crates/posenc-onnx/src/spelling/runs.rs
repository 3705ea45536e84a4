//! Trial runs, which tell fixed sizes from open ones.

use ndarray::ArrayViewD;
use posenc_ir::eval::{Budget, Trace, Value, trace};
use posenc_ir::{Def, Dim, Graph, Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::dataflow::{Class, Classes};
use crate::graph::ports::{Lengths, Port, Ports, Role};

/// Sizes of the runs that a value must have dimensions in.
const BASE: [Lengths; 2] = [
    Lengths {
        batch: 2,
        sequence: 14,
        past: 5,
    },
    Lengths {
        batch: 3,
        sequence: 11,
        past: 7,
    },
];

/// Sizes that show where a size is cut or filled up to a number. A graph may exclude them: where a
/// value has no dimensions then, they say nothing about it.
const EXTREME: [Lengths; 2] = [
    Lengths {
        batch: 1,
        sequence: 1,
        past: 1,
    },
    Lengths {
        batch: 5,
        sequence: 1500,
        past: 40,
    },
];

/// How many times as long sound is, where less is shorter than a window of its convolutions.
const LONGER: [usize; 4] = [1, 20, 150, 1200];

/// Elements that a value of these runs may have: sizes and small constants are enough.
const BUDGET: Budget = Budget { elements: 1 << 16 };

/// The most open dimensions that have the same size in both runs of [`BASE`].
const MOST: usize = 8;

/// An open dimension: those of a symbol are one.
#[derive(Clone, PartialEq, Eq)]
enum Open {
    Symbol(Box<str>),
    Axis(ValueId, usize),
}

impl Open {
    fn of(port: &Port, axis: usize) -> Option<Self> {
        match port.dims.get(axis)? {
            Dim::Known(_) => None,
            Dim::Symbol(symbol) => Some(Self::Symbol(symbol.clone())),
            Dim::Unknown => Some(Self::Axis(port.value, axis)),
        }
    }
}

/// Runs of a model at different sizes of every open dimension.
pub(super) struct Runs {
    all: Vec<Trace>,
    /// Whether every open dimension has different sizes.
    is_sure: bool,
}

impl Runs {
    pub(super) fn of(model: &Model, ports: &Ports, classes: &Classes) -> Self {
        let graph = model.graph();
        let conditions = conditions(graph, classes);
        let opaque = |v| classes.of_value(v).has(Class::CONTENT) || conditions.contains(&v);
        let run = |lengths: Lengths, longer: Option<&Open>| {
            let seeds = seeds(graph, ports, ports.fit(lengths), longer);
            trace(model, &seeds, &opaque, &BUDGET)
        };
        let mut all = vec![];
        for times in LONGER {
            let base = BASE.map(|lengths| Lengths {
                sequence: times * lengths.sequence,
                ..lengths
            });
            all = base.map(|lengths| run(lengths, None)).into();
            if !ports.is_sound() || !all.iter().any(|run| is_too_short(graph, run)) {
                break;
            }
        }
        let same = unvaried(ports);
        all.extend(EXTREME.map(|lengths| run(lengths, None)));
        let longer = same.iter().take(MOST);
        all.extend(longer.map(|open| run(BASE[0], Some(open))));
        Self {
            all,
            is_sure: same.len() <= MOST,
        }
    }

    /// The values in one of the two runs that have to know them.
    pub(super) fn first(&self) -> [&Trace; 2] {
        [&self.all[0], &self.all[1]]
    }

    /// Whether something holds for the dimensions of these values in every run.
    pub(super) fn all(&self, values: &[ValueId], holds: impl Fn(&[&[usize]]) -> bool) -> bool {
        self.each(|run| {
            let dims = values.iter().map(|v| run.get(*v).dims.as_deref());
            Some(holds(&dims.collect::<Option<Vec<_>>>()?))
        })
    }

    /// What the integers of a value and the dimensions of others give, where it is the same in every run.
    pub(super) fn same<T: PartialEq>(
        &self,
        value: ValueId,
        others: &[ValueId],
        of: impl Fn(&ArrayViewD<'_, i64>, &[&[usize]]) -> Option<T>,
    ) -> Option<T> {
        let known = |run: &Trace| -> Option<Option<T>> {
            let numbers = run.get(value).to_i64()?;
            let dims = others.iter().map(|v| run.get(*v).dims.as_deref());
            Some(of(&numbers.view(), &dims.collect::<Option<Vec<_>>>()?))
        };
        let first = known(&self.all[0])??;
        self.each(|run| Some(known(run)?.as_ref() == Some(&first)))
            .then_some(first)
    }

    /// Whether something holds in every run that knows it, and the first two know it.
    fn each(&self, holds: impl Fn(&Trace) -> Option<bool>) -> bool {
        let mut runs = self.all.iter().enumerate();
        self.is_sure && runs.all(|(i, run)| holds(run).unwrap_or(i >= BASE.len()))
    }
}

/// Whether a convolution has nothing to slide over in a run.
fn is_too_short(graph: &Graph, run: &Trace) -> bool {
    let has_dims = |value: Option<ValueId>| value.is_some_and(|v| run.get(v).dims.is_some());
    let mut nodes = graph.nodes().filter(|(_, node)| node.is("Conv"));
    nodes.any(|(_, node)| has_dims(node.input(0)) && !has_dims(node.output(0)))
}

/// Conditions that depend on more than lengths: a run would show one of their branches only.
fn conditions(graph: &Graph, classes: &Classes) -> FxHashSet<ValueId> {
    let parts = [Class::CONTENT, Class::POSITION, Class::PADDING];
    let depends = |v: &ValueId| parts.iter().any(|part| classes.of_value(*v).has(*part));
    (graph.nodes().filter(|(_, node)| node.is("If")))
        .filter_map(|(_, node)| node.input(0))
        .filter(depends)
        .collect()
}

/// The open dimensions that have one size in both runs of [`BASE`].
fn unvaried(ports: &Ports) -> Vec<Open> {
    let mut found = vec![];
    for port in ports.iter() {
        let [a, b] = BASE.map(|lengths| ports.dims(port, ports.fit(lengths)));
        for axis in (0..a.len()).filter(|axis| a.get(*axis) == b.get(*axis)) {
            found.extend(Open::of(port, axis).filter(|open| !found.contains(open)));
        }
    }
    found
}

/// What the inputs are fed: sizes, and the numbers of positions. Other numbers differ from run to
/// run, as do those of inputs that have a default. `longer` has twice the size of other runs.
fn seeds(
    graph: &Graph,
    ports: &Ports,
    at: Lengths,
    longer: Option<&Open>,
) -> FxHashMap<ValueId, Value> {
    let mut seeds = ports.seeds(graph, at);
    for port in ports.iter() {
        let mut dims = ports.dims(port, at);
        let mut is_longer = false;
        for (axis, size) in dims.iter_mut().enumerate() {
            if longer.is_some() && Open::of(port, axis).as_ref() == longer {
                *size = (*size).max(1).saturating_mul(2);
                is_longer = true;
            }
        }
        if is_longer || port.role != Role::Positions {
            seeds.insert(port.value, Value::opaque(port.dtype, dims));
        }
    }
    for value in graph.values().filter(|v| is_default(graph, *v)) {
        let Some(dtype) = graph.dtype(value) else {
            seeds.insert(value, Value::unknown());
            continue;
        };
        let known = |d: &Dim| match d {
            Dim::Known(n) => Some(*n),
            _ => None,
        };
        let dims = graph
            .value(value)
            .shape()
            .map(|dims| dims.iter().map(known).collect::<Option<Vec<usize>>>());
        let seed = match dims {
            Some(Some(dims)) => Value::opaque(dtype, dims),
            _ => Value::unknown().with_dtype(dtype),
        };
        seeds.insert(value, seed);
    }
    seeds
}

/// Whether a value is an input with a default, in whose place something else may be fed.
pub(super) fn is_default(graph: &Graph, value: ValueId) -> bool {
    graph.stored(value).is_some() && matches!(graph.value(value).def(), Def::Input(_))
}
