//! Replaces tables of cos and sin, by constants or by rows that are computed while the graph runs.

use posenc_ir::{DType, Emitter, Tensor, ValueId};

use crate::detect::rotary::source::{Column, Table, Wave};
use crate::edit::rescale::Writer;
use crate::edit::rescale::emit;
use crate::error::RewriteError;
use crate::plan::swap::size::numbers_in;
use crate::request::TablePrecision;
use posenc_encodings::laws::{Dynamic, Scaling};

impl Writer<'_> {
    /// Replaces the rows of a table, and adds rows up to the new length.
    pub(crate) fn table(&self, out: &mut Emitter<'_>, t: &Table) -> Result<(), RewriteError> {
        let uses = self.uses(t.root, &t.cone);
        let dtype = self.dtype(t.root);
        let old = t.dims[t.axis];
        // A graph with a fixed length needs no more rows.
        let fixed = self.found.ports.fixed_sequence().is_some();
        let wanted = self.max_length.and_then(|n| i64::try_from(n).ok());
        let wanted = wanted.and_then(|n| usize::try_from(n.checked_sub(t.first)?).ok());
        let rows = match wanted {
            Some(wanted) if !fixed => wanted.max(old),
            _ => old,
        };
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

    use crate::graph::sketch::{A, SIZE, Sketch};
    use crate::request::{LawName, Request};
    use crate::rewrite::rewrite;

    /// A model that rotates queries and keys by tables of 16 rows.
    fn model() -> Model {
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
        let (zero, one) = (s.ints(&[0]), s.ints(&[1]));
        let length = s.gather(&shape, &one, 0);
        let [cos, sin] = tables.map(|t| s.op("Slice", &[&t, &zero, &length, &zero]));
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
}
