//! Tables of positions, where they are added to tokens that follow the image.

use posenc_encodings::families::sinusoidal::{Image, Sinusoidal};
use posenc_encodings::inferred::{self, Inferred};
use posenc_ir::{NodeId, Use, ValueId};

use super::broadcast::STEPS;
use super::rows::{mark_kept_side, sides};
use super::sizes::Wanted;
use super::table::{NewRows, ResizedTable};
use super::walk::Walk;
use crate::detect::finding::Encoding;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::operators::is_elementwise;

/// Why a request that says how to interpolate rows is refused.
const GIVEN: &str = "the sines and cosines of a grid of patches go on by their code; remove `scale`, \
                     `align-corners` and `antialias`";

/// How exactly the steps from patch to patch are read.
const STEP: f64 = 1e-3;

/// The fewest patches along a side that show the code of their rows.
const FEWEST: usize = 3;

impl Walk<'_> {
    /// Gives a position table that is added here the axes of what it is added to.
    pub(super) fn table(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let slots = node.inputs().len();
        for slot in 0..slots {
            let entry = Use::new(id, slot);
            let (Some(&finding), Some(value)) = (self.entries.get(&entry), node.input(slot)) else {
                continue;
            };
            let value = self.cut_whole(value).unwrap_or(value);
            let others = (0..slots).filter(|other| *other != slot);
            let others = others.filter_map(|other| self.axes_in(id, other));
            let tokens = others.max_by_key(Vec::len);
            let Some(tokens) = tokens.filter(|_| is_elementwise(node.op())) else {
                return Err(self.refuse(id, "what the position table is added to is not known"));
            };
            let dims = self.context.dims(value).unwrap_or_default();
            let Some(missing) = tokens.len().checked_sub(dims.len()) else {
                return Err(self.refuse(id, "the position table has more axes than the tokens"));
            };
            let axis = |(length, axis): (&usize, &Extent)| match axis {
                axis if axis.before() == *length => axis.clone(),
                _ => Extent::same(*length),
            };
            let axes: Vec<Extent> = dims.iter().zip(&tokens[missing..]).map(axis).collect();
            if !axes.iter().any(Extent::changes) {
                continue;
            }
            let mut own = axes.clone();
            if let (Wanted::Image { .. }, Some(grid)) = (&self.wanted, self.grid_of(finding)) {
                mark_kept_side(&mut own, grid);
            }
            let rows = match &self.wanted {
                Wanted::OpenLength { .. } => {
                    let computed = self.axes(value).is_some_and(|own| own == axes);
                    let is_cut = computed || self.cut_rows(entry, &axes);
                    if is_cut {
                        continue;
                    }
                    let why = "how the rows of the position table follow the sequence is not known";
                    return Err(self.refuse(id, why));
                }
                Wanted::Image { by, .. } => match self.code_on(finding, &own) {
                    Some(_) if by.are_given => return Err(self.refuse(id, GIVEN)),
                    Some(code) => NewRows::Code(code),
                    None => NewRows::Grid(by.rows),
                },
                Wanted::Length { tables, .. } => {
                    match tables.iter().find(|table| table.finding == finding) {
                        Some(own) => NewRows::Line(own.clone()),
                        None => {
                            self.pick_further(entry, &axes)?;
                            continue;
                        }
                    }
                }
            };
            let table = ResizedTable {
                finding,
                value,
                entry,
                axes: own,
                rows,
                is_computed: self.axes.contains_key(&value),
                is_fixed: self.context.found.classes.of_value(value).is_constant(),
            };
            if !table.is_computed {
                let is_same =
                    |other: &ResizedTable| other.finding == finding && other.is_like(&table);
                if !self.tables.iter().any(is_same) {
                    self.check_table(&table)?;
                    if let NewRows::Code(code) = &table.rows {
                        self.infer_coordinates(code);
                    }
                }
                self.resized.insert(entry, axes);
            }
            self.tables.push(table);
        }
        Ok(())
    }

    /// The constant that is cut to this value, where the cuts keep all of it for images of the size of the model.
    fn cut_whole(&self, value: ValueId) -> Option<ValueId> {
        let graph = self.context.graph();
        let context = self.context;
        let classes = &context.found.classes;
        let mut source = value;
        while let Some((id, _)) = graph.producer(source) {
            let node = graph.node(id);
            // What follows the inputs otherwise than by their sizes may cut off other rows in another run.
            let is_size = |slot: &usize| {
                let class = node.input(*slot).map(|value| classes.of_value(value));
                class.is_none_or(|class| class.is_constant() || class.is_length())
            };
            let keeps = match node.op() {
                "Slice" => {
                    let steps = self.steps(id, 1)?;
                    steps.iter().all(|step| *step == 1) && [1, 2].iter().all(is_size)
                }
                "Cast" | "Identity" => true,
                _ => break,
            };
            let before = node.input(0)?;
            let is_same = context.dims(before)? == context.dims(source)?
                && context.dtype(before) == context.dtype(source);
            source = (keeps && is_same).then_some(before)?;
        }
        let is_constant = classes.of_value(source).is_constant();
        (is_constant && matches!(self.wanted, Wanted::Image { .. })).then_some(source)
    }

    /// Lets a table that has rows enough give more of them to where it is added.
    fn pick_further(&mut self, entry: Use, axes: &[Extent]) -> Result<(), RewriteError> {
        let mut changed = axes.iter().enumerate().filter(|(_, axis)| axis.changes());
        let (first, other) = (changed.next(), changed.next());
        let widened = match first.filter(|_| other.is_none()) {
            Some((axis, wanted)) => self.widen(entry, axis, wanted, STEPS)?,
            None => false,
        };
        if widened {
            return Ok(());
        }
        let why = "the rows of this table for more tokens are not in the graph";
        Err(self.refuse(entry.node, why))
    }

    /// Whether every table of a sequence that gets other rows was met.
    pub(super) fn reaches_tables(&self) -> bool {
        let Wanted::Length { tables, .. } = &self.wanted else {
            return true;
        };
        let is_met = |finding| self.tables.iter().any(|table| table.finding == finding);
        tables.iter().all(|table| is_met(table.finding))
    }

    /// The code of sines and cosines of patches on the grid that these axes become.
    fn code_on(&self, finding: usize, axes: &[Extent]) -> Option<Box<Sinusoidal>> {
        let Encoding::Sinusoidal(code) = &self.context.found.findings[finding].encoding else {
            return None;
        };
        let (image, grid) = (code.image?, sides(axes, Extent::after)?);
        let [old, new] = [image.grid, grid].map(|[rows, columns]| rows * columns);
        Some(Box::new(Sinusoidal {
            image: Some(Image { grid, ..image }),
            max_positions: code.max_positions.map(|rows| rows + new - old),
            ..code.clone()
        }))
    }

    /// The grid of patches for which a finding has rows.
    fn grid_of(&self, finding: usize) -> Option<[usize; 2]> {
        match &self.context.found.findings[finding].encoding {
            Encoding::Learned(learned) => learned.grid,
            Encoding::Sinusoidal(code) => code.image.map(|image| image.grid),
            _ => None,
        }
    }

    /// Says what a table of one size does not show of the code on another grid.
    fn infer_coordinates(&mut self, code: &Sinusoidal) {
        let how = match code.image.is_some_and(|image| image.normalized) {
            true => "each side normalized by its own patches",
            false => "steps from patch to patch as before",
        };
        let source = "rows of one grid do not show how their coordinates follow its size";
        inferred::add(&mut self.inferred, Inferred::new("positions", how, source));
    }

    /// Refuses a table whose rows are not those of the grid or of the sequence.
    fn check_table(&self, table: &ResizedTable) -> Result<(), RewriteError> {
        let id = table.entry.node;
        let classes = &self.context.found.classes;
        if !classes.of_value(table.value).is_constant() {
            return Err(self.refuse(id, "the position table is no constant"));
        }
        self.check_origin(table)?;
        if let NewRows::Line(rows) = &table.rows {
            let along = table.along();
            let sizes = along.map(|axis| [table.axes[axis].before(), table.axes[axis].after()]);
            if sizes != Some([rows.old, rows.new]) {
                let why = "the rows of the position table are not those of the tokens";
                return Err(self.refuse(id, why));
            }
            return Ok(());
        }
        let encoding = &self.context.found.findings[table.finding].encoding;
        let is_known = match encoding {
            Encoding::Learned(_) => true,
            Encoding::Sinusoidal(_) => matches!(table.rows, NewRows::Code(_)),
            _ => false,
        };
        if !is_known {
            let why = "what the rows of the position table are for another image size is not known";
            return Err(self.refuse(id, why));
        }
        let grid = self.grid_of(table.finding);
        let sides = table.sides(Extent::before);
        if matches!(table.rows, NewRows::Grid(_)) {
            self.check_is_learned(table)?;
        }
        if sides.is_none() || grid.is_some_and(|grid| sides != Some(grid)) {
            let why = "the rows of the position table are not those of the grid of patches";
            return Err(self.refuse(id, why));
        }
        if let NewRows::Code(code) = &table.rows
            && (code.factor - 1.0).abs() > STEP
        {
            let why = format!(
                "the coordinates of patches are divided by {:.6} in these sines and cosines, and whether that follows \
                 the grid is not known, so what they are for an image of another size is not either",
                code.factor
            );
            return Err(self.refuse(id, &why));
        }
        let sides = table.grid().into_iter().flatten();
        if matches!(table.rows, NewRows::Code(_)) && sides.min().is_some_and(|side| side < FEWEST) {
            let why = "sines and cosines of fewer than three patches along a side do not show their code, and \
                       cannot be compared with it; give a larger `image-size`";
            return Err(self.refuse(id, why));
        }
        Ok(())
    }
}
