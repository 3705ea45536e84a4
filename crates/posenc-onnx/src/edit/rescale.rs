//! Changes the frequencies of rotations with the smallest edit.

pub(crate) mod emit;
pub(crate) mod jobs;
pub(crate) mod left;
pub(crate) mod reached;
mod rounded;
pub(crate) mod sequences;
pub(crate) mod tables;

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{DType, Emitter, Graph, Model, NodeId, ScopeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::Found;
use crate::detect::rotary::source::{Computed, RotarySource};
use crate::edit::rescale::jobs::{Job, Jobs, jobs};
use crate::edit::rescale::reached::Touched;
use crate::error::{Refusal, RewriteError};
use crate::plan::rescale::Plan;
use crate::request::{Request, TablePrecision};
use posenc_encodings::laws::Scaling;

/// Sites that read the same constants, and what changed for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// Indices in `Found::rotary`.
    pub(crate) sites: Vec<usize>,
    pub(crate) nodes_added: usize,
    pub(crate) nodes_removed: usize,
    pub(crate) constants_changed: usize,
    /// What the patch changed, in the first group.
    pub(crate) touched: Touched,
}

/// A rescaled model, and what changed.
pub(crate) type Rescaled = (Model, Vec<Group>);

/// Applies a plan to a model. Returns a group for each set of constants that changed; `None` if
/// there is nothing to change.
pub(crate) fn rescale(
    model: &Model,
    found: &Found,
    plan: &Plan,
    request: &Request,
) -> Result<Option<Rescaled>, RewriteError> {
    let Jobs { all: jobs, ranges } = jobs(model, found, plan)?;
    let precision = request
        .parameters
        .table_precision
        .unwrap_or(TablePrecision::F32);
    let mut groups = vec![];
    let graph = model.graph();
    let scope = graph.main();
    let mut out = graph.emitter(scope, "posenc_rope");
    let mut deepened = BTreeMap::new();
    for job in &jobs {
        let mut writer = Writer {
            graph,
            found,
            job,
            precision,
            max_length: plan.max_length,
        };
        writer.write(&mut out, &mut deepened)?;
        groups.push(Group {
            sites: job.sites.clone(),
            ..Group::default()
        });
    }
    let ranges = widen(&mut out, ranges)?;
    let patch = out.finish();
    if patch.is_empty() {
        return Ok(None);
    }
    let (next, applied) = model.clone().with_patch(patch)?;
    let changed = applied.revalued.iter().chain(&applied.constants).copied();
    // One patch serves all groups; the first group has its counts.
    if let Some(first) = groups.first_mut() {
        first.nodes_added = applied.added.len();
        first.nodes_removed = applied.removed.len();
        first.constants_changed = applied.revalued.len() + applied.constants.len();
        first.touched = Touched {
            values: changed.filter(|value| !ranges.contains(value)).collect(),
            nodes: applied.added,
        };
    }
    Ok(Some((next, groups)))
}

/// Multiplies scales of rounding to integers, and returns the constants that are read now.
fn widen(
    out: &mut Emitter<'_>,
    ranges: BTreeMap<ValueId, (f64, BTreeSet<Use>)>,
) -> Result<BTreeSet<ValueId>, RewriteError> {
    let mut all = BTreeSet::new();
    for (scale, (growth, uses)) in ranges {
        let Some(old) = out.graph().constant(scale) else {
            continue;
        };
        let numbers = old.to_f64s().unwrap_or_default();
        let numbers: Vec<f64> = numbers.iter().map(|step| step * growth).collect();
        let new = Tensor::from_f64(old.dtype(), old.dims(), &numbers);
        let uses: Vec<Use> = uses.into_iter().collect();
        all.insert(out.replace_constant(scale, &uses, new)?);
    }
    Ok(all)
}

/// Writes one job.
pub(crate) struct Writer<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) found: &'a Found,
    pub(crate) job: &'a Job,
    pub(crate) precision: TablePrecision,
    pub(crate) max_length: Option<usize>,
}

impl Writer<'_> {
    /// `deepened` are the nodes that pick rows, with their number, as far as done.
    fn write(
        &mut self,
        out: &mut Emitter<'_>,
        deepened: &mut BTreeMap<NodeId, usize>,
    ) -> Result<(), RewriteError> {
        match &self.job.source {
            RotarySource::Computed(computed) => {
                self.frequencies(out, computed)?;
                self.factor(out, computed)?;
            }
            RotarySource::Tables(tables) => {
                for table in tables {
                    self.table(out, table)?;
                }
                self.deepen(out, tables, deepened)?;
            }
        }
        self.softmax(out)
    }

    /// Frequencies and attention factor at a length, in the requested precision.
    pub(crate) fn numbers(&self, length: usize) -> (Vec<f64>, f64) {
        let target = &self.job.target;
        match self.precision {
            TablePrecision::F32 => {
                let f = target.scaling.frequencies_hf(&target.rope, length);
                let list = f.inv_freq.into_iter().map(f64::from).collect();
                (list, f.attention_factor)
            }
            TablePrecision::F64 => {
                let f = target.scaling.frequencies(&target.rope, length);
                (f.inv_freq, f.attention_factor)
            }
        }
    }

    /// A length whose frequencies are right in every run: any length for most scalings, or the only
    /// length that the graph was exported for. `None` if the graph has to choose.
    pub(crate) fn only_length(&self, positions: Option<ValueId>) -> Option<usize> {
        if !self.job.target.scaling.depends_on_length() {
            return Some(self.short_and_long().0);
        }
        let fixed = self.found.ports.fixed_sequence();
        fixed.filter(|_| positions.is_none() && !self.found.ports.has_past())
    }

    /// The longest length before the switch and the shortest after it.
    pub(crate) fn short_and_long(&self) -> (usize, usize) {
        let original = self.job.target.scaling.original_length().unwrap_or(1);
        (original, original.saturating_add(1))
    }

    pub(crate) fn dtype(&self, value: ValueId) -> DType {
        let declared = self.graph.dtype(value);
        declared
            .or(self.found.trace.get(value).dtype)
            .unwrap_or(DType::F32)
    }

    /// The uses of a value by the nodes that lead to the rotations.
    pub(crate) fn uses(&self, value: ValueId, cone: &FxHashSet<posenc_ir::NodeId>) -> Vec<Use> {
        let uses = self.graph.uses(value).iter().copied();
        uses.filter(|u| cone.contains(&u.node)).collect()
    }

    pub(crate) fn refuse(&self, why: &str) -> RewriteError {
        let site = &self.found.rotary[self.job.sites.first().copied().unwrap_or(0)];
        Refusal::unsupported(why)
            .at(self.graph.place(site.node))
            .into()
    }

    fn frequencies(&self, out: &mut Emitter<'_>, c: &Computed) -> Result<(), RewriteError> {
        let uses = self.uses(c.root, &c.cone);
        let dtype = self.dtype(c.root);
        let tensor = |dtype: DType, length: usize| -> Result<Tensor, RewriteError> {
            let (f, _) = self.numbers(length);
            let mut data = Vec::with_capacity(c.pair.len());
            for pair in &c.pair {
                let f = *f
                    .get(*pair)
                    .ok_or_else(|| self.refuse("the scaling has a different number of pairs"))?;
                data.push(if c.reciprocal { 1.0 / f } else { f });
            }
            if data.iter().any(|v| !v.is_finite()) {
                return Err(self.refuse("a pair with frequency 0 has no reciprocal"));
            }
            Ok(Tensor::from_f64(dtype, &c.dims, &data))
        };
        let scaling = &self.job.target.scaling;
        let (short, long) = self.short_and_long();
        if let Some(length) = self.only_length(c.positions) {
            return self.replace(out, c.root, &uses, tensor(dtype, length)?);
        }
        let positions = c.positions.ok_or_else(|| {
            self.refuse("cannot select frequencies by length: the positions are not known")
        })?;
        out.set_scope(self.scope_of(&uses));
        let largest = emit::largest(out, positions);
        let is_longer = emit::is_longer(out, largest, self.dtype(positions), short);
        let near = out.constant("short", tensor(DType::F32, short)?);
        let far = match scaling {
            Scaling::Dynamic(dynamic) => {
                let d = self.job.target.rope.rotary_dim as f64;
                let exponents: Vec<f64> = c.pair.iter().map(|i| 2.0 * *i as f64 / d).collect();
                let exponents = Tensor::from_f64(DType::F32, &c.dims, &exponents);
                let rope = &self.job.target.rope;
                emit::grown(out, largest, dynamic, rope, exponents, c.reciprocal)
            }
            _ => out.constant("long", tensor(DType::F32, long)?),
        };
        let mut chosen = out.op("Where", &[is_longer, far, near]);
        if dtype != DType::F32 {
            chosen = out.cast(chosen, dtype);
        }
        for at in uses {
            out.redirect_use(c.root, at, chosen)?;
        }
        Ok(())
    }

    /// Replaces the data of a constant, or a value that is computed from constants by a new
    /// constant.
    pub(crate) fn replace(
        &self,
        out: &mut Emitter<'_>,
        root: ValueId,
        uses: &[Use],
        tensor: Tensor,
    ) -> Result<(), RewriteError> {
        if self.graph.constant(root).is_some_and(|old| old == tensor) {
            return Ok(());
        }
        if self.graph.stored(root).is_some() {
            out.replace_constant(root, uses, tensor)?;
            return Ok(());
        }
        out.set_scope(self.scope_of(uses));
        let new = out.constant("table", tensor);
        for at in uses {
            out.redirect_use(root, *at, new)?;
        }
        Ok(())
    }

    pub(crate) fn scope_of(&self, uses: &[Use]) -> ScopeId {
        uses.first()
            .map_or(self.graph.main(), |u| self.graph.node(u.node).scope())
    }

    /// Sets the factor on cos and sin: in an existing scalar, or by a new one.
    fn factor(&self, out: &mut Emitter<'_>, c: &Computed) -> Result<(), RewriteError> {
        let only = self.only_length(c.positions);
        let (short, long) = self.short_and_long();
        let (near, far) = (self.numbers(only.unwrap_or(short)).1, self.numbers(long).1);
        let switches = only.is_none() && near != far;
        if !switches && near == self.job.factor {
            return Ok(());
        }
        // Scalars that contain the present factor, with their uses.
        let mut scalars: BTreeMap<ValueId, Vec<Use>> = BTreeMap::new();
        let mut bare: Vec<(ValueId, Vec<Use>)> = vec![];
        for wave in &c.waves {
            let uses = self.uses(*wave, &c.cone);
            let carried: Option<Vec<(ValueId, Use)>> =
                uses.iter().map(|u| self.scalar(*u)).collect();
            match carried.filter(|_| !switches) {
                Some(carried) if !carried.is_empty() => {
                    for (scalar, at) in carried {
                        scalars.entry(scalar).or_default().push(at);
                    }
                }
                _ => bare.push((*wave, uses)),
            }
        }
        for (scalar, uses) in scalars {
            let dims = self.graph.constant(scalar).map(|t| t.dims().to_vec());
            let tensor = Tensor::from_f64(self.dtype(scalar), &dims.unwrap_or_default(), &[near]);
            out.replace_constant(scalar, &uses, tensor)?;
        }
        let mut made: Option<(DType, ValueId)> = None;
        for (wave, uses) in bare {
            let dtype = self.dtype(wave);
            // In the scope of the wave: readers may be in bodies.
            out.set_scope(self.graph.value(wave).scope());
            let m = match made.filter(|(of, _)| *of == dtype) {
                Some((_, m)) => m,
                None => self.added_factor(out, c, dtype, near, switches.then_some(far))?,
            };
            made = Some((dtype, m));
            let scaled = out.op("Mul", &[wave, m]);
            for at in uses {
                out.redirect_use(wave, at, scaled)?;
            }
        }
        Ok(())
    }

    /// A scalar that changes the present factor to `near`, or to `far` above the original length.
    fn added_factor(
        &self,
        out: &mut Emitter<'_>,
        c: &Computed,
        dtype: DType,
        near: f64,
        far: Option<f64>,
    ) -> Result<ValueId, RewriteError> {
        let share = |m: f64| m / self.job.factor;
        let Some(far) = far else {
            return Ok(out.scalar("attention_factor", dtype, share(near)));
        };
        let positions = c.positions.ok_or_else(|| {
            self.refuse("cannot select frequencies by length: the positions are not known")
        })?;
        let (short, _) = self.short_and_long();
        let largest = emit::largest(out, positions);
        let is_longer = emit::is_longer(out, largest, self.dtype(positions), short);
        let near = out.scalar("short_factor", dtype, share(near));
        let far = out.scalar("long_factor", dtype, share(far));
        Ok(out.op("Where", &[is_longer, far, near]))
    }

    /// The scalar constant by which a use multiplies cos or sin, if it equals the whole factor.
    fn scalar(&self, at: Use) -> Option<(ValueId, Use)> {
        let node = self.graph.node(at.node);
        if !node.is("Mul") {
            return None;
        }
        let slot = 1 - at.slot();
        let other = node.input(slot)?;
        let tensor = self.graph.constant(other).filter(|t| t.len() == 1)?;
        let value = tensor.get_f64(0)?;
        let whole = (value - self.job.factor).abs() <= 1e-3 * self.job.factor;
        whole.then(|| (other, Use::new(at.node, slot)))
    }

    /// DeepSeek's correction: a factor on the scores, before any mask.
    fn softmax(&self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        let factor = self.job.softmax_factor;
        if factor == 1.0 {
            return Ok(());
        }
        if self.job.products.len() != self.job.sites.len() {
            return Err(self
                .refuse("correcting the softmax scale of a fused operator is not supported yet"));
        }
        for product in &self.job.products {
            let uses = self.graph.uses(*product).to_vec();
            out.set_scope(self.scope_of(&uses));
            let g = out.scalar("softmax_factor", self.dtype(*product), factor);
            let scaled = out.op("Mul", &[*product, g]);
            out.redirect(*product, scaled)?;
        }
        Ok(())
    }
}
