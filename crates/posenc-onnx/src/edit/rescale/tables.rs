//! Replaces tables of cos and sin, by constants or by rows that are computed while the graph runs.

use std::collections::BTreeMap;

use posenc_ir::{DType, Emitter, NodeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::rotary::source::{Column, Table, Wave};
use crate::edit::rescale::Writer;
use crate::edit::rescale::emit;
use crate::error::RewriteError;
use crate::graph::operators::is_product;
use crate::plan::swap::size::numbers_in;
use crate::request::TablePrecision;
use posenc_encodings::laws::{Dynamic, Scaling};

impl Writer<'_> {
    /// The rows that a table gets.
    fn rows(&self, t: &Table) -> usize {
        let old = t.dims[t.axis];
        // A graph with a fixed length needs no more rows.
        let fixed = self.found.ports.fixed_sequence().is_some();
        let wanted = self.max_length.and_then(|n| i64::try_from(n).ok());
        let wanted = wanted.and_then(|n| usize::try_from(n.checked_sub(t.first)?).ok());
        match wanted {
            Some(wanted) if !fixed => wanted.max(old),
            _ => old,
        }
    }

    /// Gives the lines of ones that pick the rows of these tables, as `OneHot` makes them, a place for
    /// each new row.
    pub(crate) fn deepen(
        &self,
        out: &mut Emitter<'_>,
        tables: &[Table],
        done: &mut BTreeMap<NodeId, usize>,
    ) -> Result<(), RewriteError> {
        for t in tables.iter().filter(|t| self.rows(t) > t.dims[t.axis]) {
            let mut nodes: Vec<NodeId> = t.cone.iter().copied().collect();
            nodes.sort_unstable();
            for id in nodes {
                let node = self.graph.node(id);
                let Some(depth) = node.input(1).filter(|_| node.is("OneHot")) else {
                    continue;
                };
                let known = self.graph.constant(depth);
                let Some(known) =
                    known.filter(|d| d.get_i64(0) == i64::try_from(t.dims[t.axis]).ok())
                else {
                    continue;
                };
                if !self.is_read_within(id, &t.cone) {
                    return Err(self.refuse("what picks the rows of its table picks others too"));
                }
                let rows = self.rows(t);
                match done.insert(id, rows) {
                    None => {
                        out.set_scope(node.scope());
                        let longer = Tensor::from_f64(known.dtype(), known.dims(), &[rows as f64]);
                        let longer = out.constant("depth", longer);
                        out.redirect_use(depth, Use::new(id, 1), longer)?;
                    }
                    Some(before) if before != rows => {
                        return Err(
                            self.refuse("what picks the rows of its table picks others too")
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Whether everything from a node to the products that read it is in a cone.
    fn is_read_within(&self, from: NodeId, cone: &FxHashSet<NodeId>) -> bool {
        let mut stack = vec![from];
        while let Some(id) = stack.pop() {
            if !cone.contains(&id) {
                return false;
            }
            let node = self.graph.node(id);
            if !is_product(node) {
                let values = node.outputs().iter().flatten();
                stack.extend(values.flat_map(|v| self.graph.uses(*v)).map(|u| u.node));
            }
        }
        true
    }

    /// Replaces the rows of a table, and adds rows up to the new length.
    pub(crate) fn table(&self, out: &mut Emitter<'_>, t: &Table) -> Result<(), RewriteError> {
        let uses = self.uses(t.root, &t.cone);
        let dtype = self.dtype(t.root);
        let old = t.dims[t.axis];
        let rows = self.rows(t);
        let kept = self.graph.constant(t.root).filter(|_| self.job.keeps_rows);
        let tensor = |length: usize| -> Result<Tensor, RewriteError> {
            let (f, m) = self.numbers(length);
            let mut dims = t.dims.clone();
            dims[t.axis] = rows;
            let inner: usize = dims[t.axis + 1..].iter().product();
            let outer: usize = dims[..t.axis].iter().product();
            let mut data = Vec::with_capacity(numbers_in(&dims)?);
            for o in 0..outer {
                for row in 0..rows {
                    let position = (t.first + row as i64) as f64;
                    for i in 0..inner {
                        let kept = kept.as_ref().filter(|_| row < old);
                        if let Some(was) = kept.and_then(|k| k.get_f64((o * old + row) * inner + i))
                        {
                            data.push(was);
                            continue;
                        }
                        let column = t.columns[o * inner + i];
                        let f = *f.get(column.pair).ok_or_else(|| {
                            self.refuse("the scaling has a different number of pairs")
                        })?;
                        data.push(column.sign * self.wave(column.wave, position, f, m));
                    }
                }
            }
            Ok(Tensor::from_f64(dtype, &dims, &data))
        };
        let (short, long) = self.short_and_long();
        let scaling = &self.job.target.scaling;
        if let Some(length) = self.only_length(t.positions) {
            return self.replace(out, t.root, &uses, tensor(length)?);
        }
        let positions = t.positions.ok_or_else(|| {
            self.refuse("cannot select frequencies by length: the positions are not known")
        })?;
        out.set_scope(self.scope_of(&uses));
        let largest = emit::largest(out, positions);
        let chosen = match scaling {
            // Its base is unchanged up to the original length.
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
            return Err(
                self.refuse("the table cannot be computed: positions are not its outer axis")
            );
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

    /// m·cos or m·sin of an angle, rounded to the requested precision.
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
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use crate::graph::sketch::{A, HIDDEN, SIZE, Sketch};
    use crate::request::{LawName, Request};
    use crate::rewrite::rewrite;

    /// How rows are picked from a table of 16.
    type Picked = fn(&mut Sketch, [String; 2], &str) -> [String; 2];

    /// A model that rotates queries and keys by tables of 16 rows.
    fn model() -> Model {
        model_with(|s, tables, length| {
            let zero = s.ints(&[0]);
            tables.map(|t| s.op("Slice", &[&t, &zero, length, &zero]))
        })
    }

    /// Lines of ones for positions, `[sequence, 16]`.
    fn ones(s: &mut Sketch, length: &str) -> String {
        let (zero, step, scalar) = (s.int(0), s.int(1), s.ints(&[]));
        let length = s.op("Reshape", &[length, &scalar]);
        let positions = s.op("Range", &[&zero, &length, &step]);
        let (depth, values) = (s.int(16), s.floats(&[2], [0.0, 1.0]));
        s.op("OneHot", &[&positions, &depth, &values])
    }

    fn model_with(picked: Picked) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let half = SIZE / 2;
        let angle = move |i: usize| {
            let pair = (i % SIZE % half) as f64;
            (i / SIZE) as f64 * 10_000f64.powf(-pair / half as f64)
        };
        let tables = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
            let numbers = (0..16 * SIZE).map(move |i| wave(angle(i)));
            s.floats(&[16, SIZE], numbers)
        });
        let shape = s.op("Shape", &[&x]);
        let one = s.ints(&[1]);
        let length = s.gather(&shape, &one, 0);
        let [cos, sin] = picked(&mut s, tables, &length);
        let [mut q, mut k, v] = [0; 3].map(|_| s.headed(&x));
        for y in [&mut q, &mut k] {
            let first = s.slice(y, 3, [0, half as i64, 1]);
            let second = s.slice(y, 3, [half as i64, SIZE as i64, 1]);
            let second = s.op("Neg", &[&second]);
            let other = s.concat(&[&second, &first], 3);
            let parts = [s.op("Mul", &[y, &cos]), s.op("Mul", &[&other, &sin])];
            *y = s.op("Add", &[&parts[0], &parts[1]]);
        }
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(17, &[&y])
    }

    #[test]
    fn tables_are_extended_up_to_a_memory_limit() {
        let rescaled = |wanted: usize| {
            let mut request = Request {
                scale: Some(LawName::Linear.into()),
                ..Request::default()
            };
            request.parameters.factor = Some(2.0);
            request.parameters.max_length = Some(wanted);
            let done = rewrite(&mut model(), &request);
            done.map(|_| ()).map_err(|why| why.to_string())
        };
        assert_eq!(rescaled(64), Ok(()));
        for wanted in [40_000_000, 1_000_000_000_000, i64::MAX as usize] {
            let why = rescaled(wanted).unwrap_err();
            assert!(why.contains(&format!("a table of [{wanted}, 8]")), "{why}");
        }
    }

    /// What a rescale by 2 makes of the tables: their rows.
    fn rows(mut model: Model, max_length: Option<usize>) -> Result<Vec<usize>, String> {
        let mut request = Request {
            scale: Some(LawName::Linear.into()),
            ..Request::default()
        };
        request.parameters.factor = Some(2.0);
        request.parameters.max_length = max_length;
        rewrite(&mut model, &request).map_err(|why| why.to_string())?;
        let graph = model.graph();
        let tables = graph.scope(graph.main()).initializers().iter();
        let dims = tables
            .filter_map(|v| graph.constant(*v))
            .map(|t| t.dims().to_vec());
        let tables = dims.filter(|d| d.len() == 2 && d[1] == SIZE && d[0] != HIDDEN);
        Ok(tables.map(|d| d[0]).collect())
    }

    #[test]
    fn lines_of_ones_get_longer_with_the_tables_that_they_pick_from() {
        let product: Picked = |s, tables, length| {
            let ones = ones(s, length);
            tables.map(|t| s.op("MatMul", &[&ones, &t]))
        };
        assert_eq!(rows(model_with(product), None), Ok(vec![32, 32]));
        assert_eq!(rows(model_with(product), Some(40)), Ok(vec![40, 40]));
    }

    #[test]
    fn lines_of_ones_that_cannot_get_longer_are_refused() {
        let shared: Picked = |s, tables, length| {
            let ones = ones(s, length);
            let other = s.weights(&[16, SIZE]);
            let other = s.op("MatMul", &[&ones, &other]);
            s.output(&other);
            tables.map(|t| s.op("MatMul", &[&ones, &t]))
        };
        let why = rows(model_with(shared), None).unwrap_err();
        assert!(why.contains("picks others too"), "{why}");
        let compared: Picked = |s, tables, length| {
            let (zero, step, scalar) = (s.int(0), s.int(1), s.ints(&[]));
            let length = s.op("Reshape", &[length, &scalar]);
            let positions = s.op("Range", &[&zero, &length, &step]);
            let positions = s.unsqueeze(&positions, &[1]);
            let all = s.ints(&(0..16).collect::<Vec<i64>>());
            let ones = s.op("Equal", &[&positions, &all]);
            let ones = s.with("Cast", &[&ones], &[("to", A::Int(1))]);
            tables.map(|t| s.op("MatMul", &[&ones, &t]))
        };
        let why = rows(model_with(compared), None).unwrap_err();
        assert!(why.contains("cannot be read back"), "{why}");
    }
}
