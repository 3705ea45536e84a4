//! Gives tables other rows, divides biases and the positions of computed sines, and moves what else ends at the old
//! length.

mod computed;
mod distances;
mod factors;
pub(crate) mod part;
mod quantized;
mod source;

use ndarray::{Array2, ArrayView2, Axis, s};
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::resize::resized;
use posenc_ir::{Applied, DType, Emitter, Model, Node, Tensor, Use, ValueId};

use crate::detect::Runs;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::limits::{Bound, bounds};
use crate::edit::extend_buffers::extend_buffers;
use crate::error::{Refusal, RewriteError};
use crate::graph::lane::wrap;
use crate::plan::readers;
use crate::plan::stretch::{Rows, Table};
use factors::Factors;
use part::Part;
use quantized::Codes;
use source::{check_readers, source};

/// How exactly a stored table has the sines and cosines of its formula.
const WAVE: f64 = 1e-5;

/// How exactly the scale of stored sines and cosines is known, relative to it.
const SCALE: f64 = 1e-6;

/// What the constants of these tables are, in a refusal.
const TABLE: &str = "the position table";

/// Applies the plans of all branches to a model, and says what changed. What branches share changes once.
///
/// # Errors
/// Where the rows of a table are read in a way that is not known.
pub(crate) fn stretch(model: &Model, parts: &[Part<'_>]) -> Result<(Model, Applied), RewriteError> {
    let mut out = model.graph().emitter(model.graph().main(), "posenc");
    replace_rows(&mut out, parts)?;
    distances::widen(&mut out, parts)?;
    let mut factors = Factors::default();
    for Part { context, plan } in parts {
        for waves in &plan.waves {
            factors.divide_positions(&mut out, context, plan, waves)?;
        }
        for bias in &plan.biases {
            factors.divide(&mut out, context, bias)?;
        }
    }
    if let Some(wanted) = parts.iter().find_map(|part| part.plan.max_length) {
        let plans = || parts.iter().map(|part| part.plan);
        let ends = plans().flat_map(|plan| &plan.distances);
        let ends = ends.filter_map(|all| all.old_length);
        let tables = plans().flat_map(|plan| &plan.tables);
        let lengths: Vec<usize> = tables.map(|table| table.old).chain(ends).collect();
        let contexts: Vec<Context<'_>> = parts.iter().map(|part| part.context).collect();
        extend_buffers(&mut out, &contexts, wanted, &lengths)?;
    }
    Ok(model.clone().with_patch(out.finish())?)
}

/// Gives the tables of all plans their rows.
fn replace_rows(out: &mut Emitter<'_>, parts: &[Part<'_>]) -> Result<(), RewriteError> {
    let mut places: Vec<Place> = vec![];
    for Part { context, plan } in parts {
        let bounds = bounds(&Runs::new(context.model, context.found));
        let mut between = vec![];
        for table in &plan.tables {
            let own = bounds.iter().filter_map(|bound| {
                let source = source(context, bound.node, bound.table);
                (source.constant == table.value).then_some((bound, source))
            });
            let before = places.len();
            for (bound, source) in own {
                let axis = axis(context, bound, table)?;
                add(&mut places, (*context, table), source.at, axis);
                between.extend(source.between);
            }
            let is_shared = places.iter().any(|place| place.constant == table.value);
            if places.len() == before && !is_shared {
                let why = "the table is read in a way that is not supported yet in a rescale: no operator \
                           picks its rows by position";
                let finding = &context.found.findings[table.finding];
                return Err(context.refuse_finding(Some(finding), why));
            }
        }
        check_readers(context, &between, TABLE)?;
    }
    for place in &places {
        let (context, constant) = (&place.context, place.constant);
        let is_own = |at: &Use| {
            let mut same = places.iter().filter(|p| p.constant == constant);
            same.any(|p| p.uses.contains(at))
        };
        let is_changed = |value| places.iter().any(|p| p.constant == value);
        readers::check(context, constant, TABLE, is_own, is_changed)?;
        let node = context.graph().producer(constant);
        if let Some((id, _)) = node.filter(|_| context.graph().stored(constant).is_none()) {
            let why = format!(
                "the position table {} is computed here, in a way that is not supported yet in a rescale",
                context.graph().name(constant)
            );
            return Err(context.refuse(id, why));
        }
    }
    for place in &places {
        let tensor = place.tensor()?;
        out.replace_constant(place.constant, &place.uses, tensor)?;
    }
    Ok(())
}

/// A constant that gets other rows.
struct Place<'a> {
    /// Where it was found first.
    context: Context<'a>,
    constant: ValueId,
    table: &'a Table,
    /// The axis of its rows.
    axis: usize,
    uses: Vec<Use>,
}

/// A constant with other rows along an axis, where it is added whole.
pub(super) fn tensor(
    context: &Context<'_>,
    table: &Table,
    constant: ValueId,
    axis: usize,
) -> Result<Tensor, RewriteError> {
    let place = Place {
        context: *context,
        constant,
        table,
        axis,
        uses: vec![],
    };
    place.tensor()
}

/// Adds a use of a table to the places; tables that share a constant are one place where they get the
/// same rows.
fn add<'a>(
    places: &mut Vec<Place<'a>>,
    (context, table): (Context<'a>, &'a Table),
    at: Use,
    axis: usize,
) {
    let same = places.iter_mut().find(|place| {
        place.constant == table.value
            && place.axis == axis
            && place.table.new == table.new
            && place.table.reserved == table.reserved
    });
    match same {
        Some(place) if place.uses.contains(&at) => {}
        Some(place) => place.uses.push(at),
        None => places.push(Place {
            context,
            constant: table.value,
            table,
            axis,
            uses: vec![at],
        }),
    }
}

/// The axis of the rows of a table, as a node picks them.
fn axis(context: &Context<'_>, bound: &Bound, table: &Table) -> Result<usize, RewriteError> {
    let node = context.graph().node(bound.node);
    let dims = context.dims(bound.table).unwrap_or_default();
    let rows = table.reserved + table.old;
    let named = match node.op() {
        "Gather" | "GatherElements" => {
            let axis = node.int("axis").ok().flatten().unwrap_or(0);
            wrap(axis, dims.len())
        }
        "GatherND" | "EmbedLayerNormalization" => Some(0),
        "Slice" => sliced(context, node).and_then(|axis| wrap(axis, dims.len())),
        _ => None,
    };
    // This one has scales of rows beside them.
    let has_scales = node.op() == "GatherBlockQuantized";
    let mut fits = (0..dims.len()).filter(|axis| dims[*axis] == rows);
    let only = fits.next().filter(|_| fits.next().is_none());
    let axis = named.or(only);
    let axis = axis.filter(|axis| dims.get(*axis) == Some(&rows) && !has_scales);
    axis.ok_or_else(|| {
        let why = "the rows of the position table are read here in a way that is not supported yet in \
                   a rescale";
        context.refuse(bound.node, why)
    })
}

/// The only axis that a `Slice` cuts.
fn sliced(context: &Context<'_>, node: &Node) -> Option<i64> {
    let listed = || node.ints("axes").ok()?.map(<[i64]>::to_vec);
    let axes = match node.input(3) {
        Some(axes) => context.graph().constant(axes)?.to_i64s()?,
        None => listed()?,
    };
    match axes[..] {
        [axis] => Some(axis),
        _ => None,
    }
}

impl Place<'_> {
    /// The constant with other rows.
    fn tensor(&self) -> Result<Tensor, RewriteError> {
        let context = &self.context;
        let graph = context.graph();
        let name = graph.name(self.constant);
        let refuse = |why: &str| -> RewriteError {
            Refusal::unsupported(format!("the position table {name} {why}")).into()
        };
        // Rows that the graph picks of a constant are numbers of the trial run.
        let computed = || {
            let numbers = context.found.trace.get(self.constant).to_f64()?;
            let flat: Vec<f64> = numbers.iter().copied().collect();
            let dtype = context.dtype(self.constant);
            dtype
                .is_float()
                .then(|| Tensor::from_f64(dtype, numbers.shape(), &flat))
        };
        let old = graph.constant(self.constant).or_else(computed);
        let old = old.ok_or_else(|| refuse("has no data at hand"))?;
        let is_known = old.dtype().is_float() && old.dtype().epsilon().is_some();
        let is_quantized = matches!(old.dtype(), DType::I8 | DType::U8);
        if !is_known && !is_quantized {
            return Err(refuse(
                "is of a type that is not supported yet in a rescale",
            ));
        }
        let numbers = old.to_f64s().ok_or_else(|| refuse("has no data at hand"))?;
        let codes = is_quantized.then(|| Codes::of(context, old.dtype(), &self.uses));
        let numbers = match &codes {
            Some(codes) => codes.numbers(numbers),
            None => numbers,
        };
        let dims = old.dims();
        let rows = dims.get(self.axis).copied().unwrap_or(0);
        let inner: usize = dims[self.axis + 1..].iter().product();
        let outer: usize = dims[..self.axis].iter().product();
        if let Rows::Waves { code, .. } = &self.table.rows {
            if (outer, inner) != (1, code.dim) {
                return Err(refuse(
                    "has its rows in an order that is not supported yet in a rescale",
                ));
            }
            if codes.as_ref().is_some_and(|codes| !codes.has_scale()) {
                return Err(refuse("is quantized by a scale that was not found"));
            }
        }
        let new = self.table.reserved + self.table.new;
        let mut all = Vec::with_capacity(outer * new * inner);
        for block in numbers.chunks(rows * inner) {
            let block = ArrayView2::from_shape((rows, inner), block);
            let block = block.map_err(|_| refuse("has other numbers than rows"))?;
            let (reserved, usable) = block.split_at(Axis(0), self.table.reserved);
            let step = codes.as_ref().map_or(0.0, Codes::step);
            let scale = self
                .check_rows(usable, (old.dtype(), step))
                .map_err(|why| refuse(&why))?;
            all.extend(reserved);
            all.extend(self.rows(usable, scale));
        }
        if let Some(codes) = &codes {
            all = codes.written(all).map_err(|why| refuse(&why))?;
        }
        let mut dims = dims.to_vec();
        dims[self.axis] = new;
        Ok(Tensor::from_f64(old.dtype(), &dims, &all))
    }

    /// Checks that rows which get lost are those of positions. Gives the stored sines and cosines as a multiple of those
    /// that are added, as a model may scale a table that it has read; 1 for every other table. Of numbers that are not
    /// of a float type, `step` is the distance between two.
    fn check_rows(
        &self,
        old: ArrayView2<'_, f64>,
        (dtype, step): (DType, f64),
    ) -> Result<f64, String> {
        let Some(code) = self.old_code() else {
            let is_zero = old
                .rows()
                .into_iter()
                .map(|row| row.iter().all(|v| *v == 0.0));
            return match is_zero.collect::<Vec<bool>>()[..] {
                [true, ref others @ ..] if others.contains(&false) => {
                    let first = self.table.reserved;
                    Err(format!(
                        "has zeros in row {first}, as a row of padding has, and whether that is position 0 \
                         is not known"
                    ))
                }
                _ => Ok(1.0),
            };
        };
        let at: Vec<f64> = (0..old.nrows()).map(|p| p as f64).collect();
        let added = code.reference(&at);
        let epsilon = epsilon(old, dtype);
        let scale = scale(&added, old, epsilon.max(step).max(SCALE), code.amplitude);
        let is_replaced = matches!(self.table.rows, Rows::Waves { kept: 0, .. });
        let most = epsilon.max(WAVE) * (scale * code.amplitude).abs() + step / 2.0;
        let mut pairs = added.iter().zip(&old);
        match pairs.position(|(added, stored)| (scale * added - stored).abs() > most) {
            Some(place) if is_replaced => Err(format!(
                "has other numbers than sines and cosines in row {}, which would get lost",
                self.table.reserved + place / code.dim
            )),
            _ => Ok(scale),
        }
    }

    /// The code of stored sines and cosines before the change; `None` of other rows.
    fn old_code(&self) -> Option<Sinusoidal> {
        let finding = &self.context.found.findings[self.table.finding];
        match (&self.table.rows, &finding.encoding) {
            (Rows::Waves { code, .. }, Encoding::Sinusoidal(old)) => Some(Sinusoidal {
                factor: old.factor,
                ..code.clone()
            }),
            _ => None,
        }
    }

    /// The new rows of positions, from the old ones; sines and cosines are those of the formula times a scale.
    fn rows(&self, old: ArrayView2<'_, f64>, scale: f64) -> Array2<f64> {
        match &self.table.rows {
            Rows::Resized { weights, .. } => resized(old, weights),
            Rows::Waves { code, kept } => {
                let at: Vec<f64> = (*kept..self.table.new).map(|p| p as f64).collect();
                let mut rows = code.reference(&at) * scale;
                let added = std::mem::replace(&mut rows, old.slice(s![..*kept, ..]).to_owned());
                rows.append(Axis(0), added.view())
                    .expect("rows of one width");
                rows
            }
        }
    }
}

/// The multiple of added rows that stored ones are, in the sense of least squares: 1, or that of an amplitude of 1,
/// where the difference is no more than `rounded` of it.
fn scale(added: &Array2<f64>, stored: ArrayView2<'_, f64>, rounded: f64, amplitude: f64) -> f64 {
    let products: f64 = added.iter().zip(&stored).map(|(a, b)| a * b).sum();
    let squares: f64 = added.iter().map(|a| a * a).sum();
    let scale = products / squares;
    let is_exact = |exact: &f64| (scale - exact).abs() <= rounded * exact.abs();
    let mut exact = [1.0, 1.0 / amplitude].into_iter();
    exact.find(is_exact).unwrap_or(scale)
}

/// How exactly a table has its numbers: it may have been stored in a shorter type before.
fn epsilon(table: ArrayView2<'_, f64>, dtype: DType) -> f64 {
    let numbers: Vec<f64> = table.iter().copied().collect();
    let is_held = |dtype: &DType| {
        let held = Tensor::from_f64(*dtype, &[numbers.len()], &numbers).to_f64s();
        held.is_some_and(|held| held == numbers)
    };
    let stored = [DType::BF16, DType::F16].into_iter().find(is_held);
    stored.unwrap_or(dtype).epsilon().unwrap_or(0.0)
}
