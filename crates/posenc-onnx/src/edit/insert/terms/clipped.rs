//! Vectors by clipped distance: their products with queries are added to the scores, their sums by
//! weights to the values.

use posenc_ir::{Attr, DType, Emitter, ValueId};

use super::Term;
use super::values::WeightedValues;
use crate::edit::insert::scores::cache::TermKey;
use crate::error::RewriteError;
use crate::plan::numbers::Numbers;
use crate::plan::swap::spec::TermSpec;
use posenc_encodings::families::shaw::emit;

impl Term<'_, '_> {
    pub(crate) fn clipped(
        mut self,
        out: &mut Emitter<'_>,
        spec: &TermSpec,
        max_distance: usize,
    ) -> Result<(), RewriteError> {
        let k = i64::try_from(max_distance).unwrap_or(i64::MAX);
        if let Some(table) = spec.tensor(0) {
            let form = (self.query_type(), self.product.on_keys);
            let vectors = self.vectors(out, "relative_key", k, table, form)?;
            let p = &self.product;
            let letters = [p.query, p.key, p.feature];
            let term = emit::meet(
                out,
                (vectors, &letters),
                (self.site.query.value, &p.content),
                &p.result,
                form.0,
            );
            self.join(out, term)?;
        }
        if let Some(table) = spec.tensor(1) {
            let values = WeightedValues::of(self.context, self.site)?;
            // Weights may have another type than queries.
            let form = (self.context.dtype(values.weights), 1.0);
            let vectors = self.vectors(out, "relative_value", k, table, form)?;
            // ONNX Runtime computes the product faster with the keys last.
            let label = "relative_value_by_key";
            let vectors = self.once(out, label, None, form, |out, _| {
                let perm = [("perm", Attr::Ints(vec![0, 2, 1]))];
                Ok(out.op_with("Transpose", &[vectors], &perm))
            })?;
            let [query, key, feature] = values.vectors;
            let term = emit::meet(
                out,
                (vectors, &[query, feature, key]),
                (values.weights, &values.content),
                &values.result,
                form.0,
            );
            let sum = out.op("Add", &[values.value, term]);
            out.redirect(values.value, sum)?;
        }
        Ok(())
    }

    /// The vector of each pair, `[query, key, feature]`.
    fn vectors(
        &mut self,
        out: &mut Emitter<'_>,
        label: &'static str,
        k: i64,
        table: &Numbers,
        form: (DType, f64),
    ) -> Result<ValueId, RewriteError> {
        let grid = self.spot.grid;
        self.once(out, label, None, form, |out, term| {
            let rows = term.shared(out, TermKey::Rows { grid, k }, |out, term| {
                let distances = term.scores.grids.distances(out, grid);
                emit::rows(out, term.context.opset(), distances, k)
            });
            let width = term.site.head_dim.unwrap_or(0);
            let count = usize::try_from(2 * k + 1).unwrap_or(0);
            let dims = [count, width];
            let table = term.constant(out, label, table, form, [&dims, &dims])?;
            Ok(out.op("Gather", &[table, rows]))
        })
    }
}
