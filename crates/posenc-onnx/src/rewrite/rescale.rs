//! Giving rotations other frequencies, with the smallest edit that does it.

use std::collections::BTreeMap;

use posenc_ir::{DType, Emitter, Graph, Model, ScopeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use super::{Refusal, RewriteError, emit};
use crate::detect::Detection;
use crate::encodings::rope::source::{Column, Computed, Source, Table, Wave, source};
use crate::plan::{Plan, Target, is_already, softmax_factor};
use crate::request::{Request, TablePrecision};
use crate::scaling::{Dynamic, Scaling};

/// Sites that take their numbers from the same constants, and what changed for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Places in `Detection::rotary`.
    pub(super) sites: Vec<usize>,
    pub(super) nodes_added: usize,
    pub(super) nodes_removed: usize,
    pub(super) constants_changed: usize,
}

/// Applies a plan; a group for each set of constants that changed.
pub(super) fn rescale(
    model: &mut Model,
    found: &Detection,
    plan: &Plan,
    request: &Request,
) -> Result<Vec<Group>, RewriteError> {
    let jobs = jobs(model, found, plan)?;
    let precision = request
        .parameters
        .table_precision
        .unwrap_or(TablePrecision::F32);
    let mut groups = vec![];
    let graph = model.graph();
    let scope = graph.main();
    let mut out = graph.emitter(scope, "posenc_rope");
    for job in &jobs {
        let mut writer = Writer {
            graph,
            found,
            job,
            precision,
            max_length: plan.max_length,
        };
        writer.write(&mut out)?;
        groups.push(Group {
            sites: job.sites.clone(),
            ..Group::default()
        });
    }
    let patch = out.finish();
    if patch.is_empty() {
        return Ok(vec![]);
    }
    let applied = model.commit(patch)?;
    // One patch serves all groups; its counts stand with the first.
    if let Some(first) = groups.first_mut() {
        first.nodes_added = applied.added.len();
        first.nodes_removed = applied.removed.len();
        first.constants_changed = applied.revalued.len() + applied.constants.len();
    }
    Ok(groups)
}

/// Everything that takes its numbers from the same constants.
struct Job {
    target: Target,
    sites: Vec<usize>,
    source: Source,
    /// The factor on cos and sin as it stands.
    factor: f64,
    /// Products of queries and keys, for the correction of the softmax scale.
    products: Vec<ValueId>,
    /// The correction that is to come on top of the one that is there.
    softmax_factor: f64,
}

/// One job for each set of constants; sites that share them must want the same.
fn jobs(model: &Model, found: &Detection, plan: &Plan) -> Result<Vec<Job>, RewriteError> {
    let mut jobs: Vec<Job> = vec![];
    // What enters a rotation decides where its numbers stand.
    let mut known: BTreeMap<Vec<ValueId>, usize> = BTreeMap::new();
    for (i, target) in &plan.targets {
        let site = &found.rotary[*i];
        if is_already(model, site, target) {
            continue;
        }
        for half in [&site.query, &site.key] {
            let graph = model.graph();
            let entries = half.region.entries.iter();
            let mut values: Vec<ValueId> = entries
                .filter_map(|u| graph.node(u.node).input(u.slot))
                .collect();
            values.sort_unstable();
            values.dedup();
            let place = || graph.place(site.node);
            let at = match known.get(&values) {
                Some(at) => *at,
                None => {
                    let source = source(model, found, half)
                        .map_err(|why| Refusal::Unsupported(format!("{}: {why}", place())))?;
                    let at = match jobs.iter().position(|j| shares(&j.source, &source)) {
                        Some(at) => {
                            join(&mut jobs[at].source, source);
                            at
                        }
                        None => {
                            jobs.push(Job {
                                target: target.clone(),
                                sites: vec![],
                                source,
                                factor: half.rotation.rope.attention_factor,
                                products: vec![],
                                softmax_factor: target.softmax_factor
                                    / softmax_factor(model, site.site),
                            });
                            jobs.len() - 1
                        }
                    };
                    known.insert(values, at);
                    at
                }
            };
            let job = &mut jobs[at];
            if job.target != *target {
                let why = "it shares its frequencies with a site that is to have others";
                return Err(Refusal::Unsupported(format!("{}: {why}", place())).into());
            }
            if job.sites.last() != Some(i) {
                job.sites.push(*i);
                job.products.extend(found.attention[site.site].product);
            }
        }
    }
    refuse_bystanders(model, found, plan, &jobs)?;
    Ok(jobs)
}

fn roots(source: &Source) -> Vec<ValueId> {
    match source {
        Source::Computed(c) => vec![c.root],
        Source::Tables(tables) => tables.iter().map(|t| t.root).collect(),
    }
}

fn shares(a: &Source, b: &Source) -> bool {
    let b = roots(b);
    roots(a).iter().any(|v| b.contains(v))
}

/// Adds the paths of another source with the same constants.
fn join(into: &mut Source, other: Source) {
    match (into, other) {
        (Source::Computed(a), Source::Computed(b)) => {
            a.cone.extend(b.cone);
            a.waves.extend(b.waves);
            a.waves.sort_unstable();
            a.waves.dedup();
        }
        (Source::Tables(a), Source::Tables(b)) => {
            for table in b {
                match a.iter_mut().find(|t| t.root == table.root) {
                    Some(same) => same.cone.extend(table.cone),
                    None => a.push(table),
                }
            }
        }
        _ => {}
    }
}

/// A site that is not part of the plan must not change with its neighbors.
fn refuse_bystanders(
    model: &Model,
    found: &Detection,
    plan: &Plan,
    jobs: &[Job],
) -> Result<(), RewriteError> {
    let planned: FxHashSet<usize> = plan.targets.iter().map(|(i, _)| *i).collect();
    for (i, site) in found.rotary.iter().enumerate() {
        if planned.contains(&i) {
            continue;
        }
        for half in [&site.query, &site.key] {
            let Ok(source) = source(model, found, half) else {
                continue;
            };
            if jobs.iter().any(|j| shares(&j.source, &source)) {
                let why = "it shares its frequencies with a site that is to change";
                let place = model.graph().place(site.node);
                return Err(Refusal::Unsupported(format!("{place}: {why}")).into());
            }
        }
    }
    Ok(())
}

struct Writer<'a> {
    graph: &'a Graph,
    found: &'a Detection,
    job: &'a Job,
    precision: TablePrecision,
    max_length: Option<usize>,
}

impl Writer<'_> {
    fn write(&mut self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        match &self.job.source {
            Source::Computed(computed) => {
                self.frequencies(out, computed)?;
                self.factor(out, computed)?;
            }
            Source::Tables(tables) => {
                for table in tables {
                    self.table(out, table)?;
                }
            }
        }
        self.softmax(out)
    }

    /// Frequencies at a length, in the precision asked for.
    fn numbers(&self, length: usize) -> (Vec<f64>, f64) {
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

    /// Lengths on either side of the switch.
    fn short_and_long(&self) -> (usize, usize) {
        let original = self.job.target.scaling.original_length().unwrap_or(1);
        (original, original.saturating_add(1))
    }

    fn dtype(&self, value: ValueId) -> DType {
        let declared = self.graph.dtype(value);
        declared
            .or(self.found.trace.get(value).dtype)
            .unwrap_or(DType::F32)
    }

    /// The uses of a value by the nodes that lead to the rotations.
    fn uses(&self, value: ValueId, cone: &FxHashSet<posenc_ir::NodeId>) -> Vec<Use> {
        let uses = self.graph.uses(value).iter().copied();
        uses.filter(|u| cone.contains(&u.node)).collect()
    }

    fn refuse(&self, why: &str) -> RewriteError {
        let site = &self.found.rotary[self.job.sites.first().copied().unwrap_or(0)];
        Refusal::Unsupported(format!("{}: {why}", self.graph.place(site.node))).into()
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
                    .ok_or_else(|| self.refuse("the scaling is for another number of pairs"))?;
                data.push(if c.reciprocal { 1.0 / f } else { f });
            }
            if data.iter().any(|v| !v.is_finite()) {
                return Err(self.refuse("a pair that rests has no reciprocal frequency"));
            }
            Ok(Tensor::from_f64(dtype, &c.dims, &data))
        };
        let scaling = &self.job.target.scaling;
        let (short, long) = self.short_and_long();
        if !scaling.depends_on_length() {
            return self.replace(out, c.root, &uses, tensor(dtype, short)?);
        }
        let positions = c
            .positions
            .ok_or_else(|| self.refuse("the positions cannot be told, by which to choose"))?;
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

    /// Another payload for a constant, or another constant for what is computed from constants.
    fn replace(
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
            out.revalue(root, uses, tensor)?;
            return Ok(());
        }
        out.set_scope(self.scope_of(uses));
        let new = out.constant("table", tensor);
        for at in uses {
            out.redirect_use(root, *at, new)?;
        }
        Ok(())
    }

    fn scope_of(&self, uses: &[Use]) -> ScopeId {
        uses.first()
            .map_or(self.graph.main(), |u| self.graph.node(u.node).scope())
    }

    /// The factor on cos and sin: in the scalar that carries it already, or as a new one.
    fn factor(&self, out: &mut Emitter<'_>, c: &Computed) -> Result<(), RewriteError> {
        let (short, long) = self.short_and_long();
        let (near, far) = (self.numbers(short).1, self.numbers(long).1);
        let switches = self.job.target.scaling.depends_on_length() && near != far;
        if !switches && near == self.job.factor {
            return Ok(());
        }
        // Scalars that hold the present factor, with the uses that bring it in.
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
            out.revalue(scalar, &uses, tensor)?;
        }
        for (wave, uses) in bare {
            let dtype = self.dtype(wave);
            out.set_scope(self.scope_of(&uses));
            let share = |m: f64| m / self.job.factor;
            let m = if switches {
                let positions = c.positions.ok_or_else(|| {
                    self.refuse("the positions cannot be told, by which to choose")
                })?;
                let largest = emit::largest(out, positions);
                let is_longer = emit::is_longer(out, largest, self.dtype(positions), short);
                let near = out.scalar("short_factor", dtype, share(near));
                let far = out.scalar("long_factor", dtype, share(far));
                out.op("Where", &[is_longer, far, near])
            } else {
                out.scalar("attention_factor", dtype, share(near))
            };
            let scaled = out.op("Mul", &[wave, m]);
            for at in uses {
                out.redirect_use(wave, at, scaled)?;
            }
        }
        Ok(())
    }

    /// The scalar constant that a use multiplies cos or sin with, when that is all of the factor.
    fn scalar(&self, at: Use) -> Option<(ValueId, Use)> {
        let node = self.graph.node(at.node);
        if !node.is("Mul") {
            return None;
        }
        let slot = 1 - at.slot;
        let other = node.input(slot)?;
        let tensor = self.graph.constant(other).filter(|t| t.len() == 1)?;
        let value = tensor.get_f64(0)?;
        let whole = (value - self.job.factor).abs() <= 1e-3 * self.job.factor;
        let at = Use {
            node: at.node,
            slot,
        };
        whole.then_some((other, at))
    }

    fn table(&self, out: &mut Emitter<'_>, t: &Table) -> Result<(), RewriteError> {
        let uses = self.uses(t.root, &t.cone);
        let dtype = self.dtype(t.root);
        let old = t.dims[t.axis];
        // A shape that was fixed at export leaves no room for more rows.
        let fixed = self.found.ports.fixed_sequence().is_some();
        let wanted = self.max_length.and_then(|n| i64::try_from(n).ok());
        let wanted = wanted.and_then(|n| usize::try_from(n - t.first).ok());
        let rows = match wanted {
            Some(wanted) if !fixed => wanted.max(old),
            _ => old,
        };
        let tensor = |length: usize| -> Result<Tensor, RewriteError> {
            let (f, m) = self.numbers(length);
            let mut dims = t.dims.clone();
            dims[t.axis] = rows;
            let inner: usize = dims[t.axis + 1..].iter().product();
            let outer: usize = dims[..t.axis].iter().product();
            let mut data = Vec::with_capacity(outer * rows * inner);
            for o in 0..outer {
                for row in 0..rows {
                    let position = (t.first + row as i64) as f64;
                    for i in 0..inner {
                        let column = t.columns[o * inner + i];
                        let f = *f.get(column.pair).ok_or_else(|| {
                            self.refuse("the scaling is for another number of pairs")
                        })?;
                        data.push(column.sign * self.wave(column.wave, position, f, m));
                    }
                }
            }
            Ok(Tensor::from_f64(dtype, &dims, &data))
        };
        let (short, long) = self.short_and_long();
        let scaling = &self.job.target.scaling;
        if !scaling.depends_on_length() {
            return self.replace(out, t.root, &uses, tensor(short)?);
        }
        let positions = t
            .positions
            .ok_or_else(|| self.refuse("the positions cannot be told, by which to choose"))?;
        out.set_scope(self.scope_of(&uses));
        let largest = emit::largest(out, positions);
        let chosen = match scaling {
            // Its base is the plain one up to the original length.
            Scaling::Dynamic(dynamic) => self.grown_table(out, t, largest, dynamic)?,
            _ => {
                let is_longer = emit::is_longer(out, largest, self.dtype(positions), short);
                let near = out.constant("short", tensor(short)?);
                let far = out.constant("long", tensor(long)?);
                out.op("Where", &[is_longer, far, near])
            }
        };
        for at in uses {
            out.redirect_use(t.root, at, chosen)?;
        }
        Ok(())
    }

    /// A table that is computed while the graph runs, with a row for every position up to the
    /// largest.
    fn grown_table(
        &self,
        out: &mut Emitter<'_>,
        t: &Table,
        largest: ValueId,
        dynamic: &Dynamic,
    ) -> Result<ValueId, RewriteError> {
        if t.dims[..t.axis].iter().any(|d| *d != 1) {
            return Err(self.refuse("positions are not the outer axis of its table"));
        }
        let dtype = self.dtype(t.root);
        let rope = &self.job.target.rope;
        let d = rope.rotary_dim as f64;
        let wide = [1, t.columns.len()];
        let row = |of: &dyn Fn(&Column) -> f64| -> Vec<f64> { t.columns.iter().map(of).collect() };
        let exponents = row(&|c| 2.0 * c.pair as f64 / d);
        let exponents = Tensor::from_f64(DType::F32, &wide, &exponents);
        let f = emit::grown(out, largest, dynamic, rope, exponents, false);
        let rows = emit::rows(out, largest, t.first);
        let angles = out.op("Mul", &[rows, f]);
        let is = |wave: Wave| t.columns.iter().all(|c| c.wave == wave);
        let mut table = if is(Wave::Cos) {
            out.op("Cos", &[angles])
        } else if is(Wave::Sin) {
            out.op("Sin", &[angles])
        } else {
            let is_cos: Vec<bool> = t.columns.iter().map(|c| c.wave == Wave::Cos).collect();
            let is_cos = out.constant("is_cos", Tensor::from_bool(&wide, &is_cos));
            let (cos, sin) = (out.op("Cos", &[angles]), out.op("Sin", &[angles]));
            out.op("Where", &[is_cos, cos, sin])
        };
        if t.columns.iter().any(|c| c.sign != 1.0) {
            let sign = Tensor::from_f64(DType::F32, &wide, &row(&|c| c.sign));
            let sign = out.constant("sign", sign);
            table = out.op("Mul", &[table, sign]);
        }
        let mut shape: Vec<i64> = t.dims.iter().map(|d| *d as i64).collect();
        shape[t.axis] = -1;
        let shape = out.ints("shape", &shape);
        table = out.op("Reshape", &[table, shape]);
        Ok(match dtype {
            DType::F32 => table,
            other => out.cast(table, other),
        })
    }

    /// m·cos or m·sin of an angle, rounded as the precision asked for says.
    fn wave(&self, wave: Wave, position: f64, f: f64, m: f64) -> f64 {
        let of = |angle: f64| match wave {
            Wave::Cos => angle.cos(),
            Wave::Sin => angle.sin(),
        };
        match self.precision {
            TablePrecision::F64 => m * of(position * f),
            TablePrecision::F32 => {
                let angle = position as f32 * f as f32;
                let wave = of(f64::from(angle)) as f32;
                f64::from(wave * m as f32)
            }
        }
    }

    /// DeepSeek's correction: a factor on the whole score, before any mask.
    fn softmax(&self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        let factor = self.job.softmax_factor;
        if factor == 1.0 {
            return Ok(());
        }
        if self.job.products.len() != self.job.sites.len() {
            return Err(
                self.refuse("the softmax scale of a fused operator cannot be corrected yet")
            );
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
