//! Products of queries with projected sinusoids of the distance, and learned biases on queries.

use posenc_ir::{Attr, Emitter, Use, ValueId};

use super::product::FREE;
use super::{EINSUM, Term};
use crate::edit::insert::scores::cache::TermKey;
use crate::edit::insert::scores::head_order;
use crate::edit::insert::scores::layout::{Layout, LayoutAxis};
use crate::error::{Refusal, RewriteError};
use crate::plan::numbers::Numbers;
use crate::plan::swap::spec::TermSpec;
use posenc_encodings::families::shaw::emit::meet;
use posenc_encodings::families::transformer_xl::Code;

impl Term<'_, '_> {
    pub(crate) fn projected(
        mut self,
        out: &mut Emitter<'_>,
        spec: &TermSpec,
        [heads, head_dim, dim]: [usize; 3],
    ) -> Result<(), RewriteError> {
        let [
            Some(content_bias),
            Some(position_bias),
            Some(position_projection),
        ] = [0, 1, 2].map(|i| spec.tensor(i))
        else {
            return Err(self.refuse("it has no biases on queries or no projection"));
        };
        if dim == 0 || dim % 2 == 1 {
            let why = format!("the width of sines and cosines must be even, got {dim}");
            return Err(Refusal::invalid(why).into());
        }
        head_order::check(self.context, self.site, &self.spot.path)?;
        let queries = self.layout(heads)?;
        let sizes = [heads, head_dim];
        let content = self.biased(out, "content_bias", content_bias, &queries, sizes)?;
        let position = self.biased(out, "position_bias", position_bias, &queries, sizes)?;
        let sizes = [heads, head_dim, dim];
        let vectors = self.vectors_of(out, position_projection, &queries, sizes)?;
        let met = self.met(out, position, vectors, &queries)?;
        let places = self.places(out, heads)?;
        let axis = self.product.axis(self.product.key).unwrap_or(0);
        let axis = [("axis", Attr::Int(axis as i64))];
        let term = out.op_with("GatherElements", &[met, places], &axis);
        let at = Use::new(self.product.node, self.product.slot);
        out.redirect_use(self.site.query.value, at, content)?;
        self.join(out, term)
    }

    /// The layout of heads in queries.
    fn layout(&self, heads: usize) -> Result<Layout, RewriteError> {
        head_order::check_queries(self.context, self.site)?;
        let query = self.site.query;
        let dims = self.context.dims(query.value).unwrap_or_default();
        let plane = query.lane.feature.map(|f| [query.lane.sequence, f]);
        let layout = plane.and_then(|plane| Layout::of(dims, plane, heads));
        layout.ok_or_else(|| self.refuse("the heads of its queries are not known"))
    }

    /// Queries with a bias added.
    fn biased(
        &mut self,
        out: &mut Emitter<'_>,
        label: &'static str,
        numbers: &Numbers,
        layout: &Layout,
        [heads, width]: [usize; 2],
    ) -> Result<ValueId, RewriteError> {
        let form = (self.query_type(), self.product.on_queries);
        let query = self.site.query.value;
        let bias = self.once(out, label, Some(layout), form, |out, term| {
            let shape = [&layout.lead()[..], &[1, width]].concat();
            let bias = term.constant(out, label, numbers, form, [&[heads, width], &shape])?;
            Ok(layout.bring(
                out,
                term.context.opset(),
                bias,
                &layout.heads_first(),
                query,
            ))
        })?;
        Ok(out.op("Add", &[query, bias]))
    }

    /// The vectors of all distances, `[heads.., feature, distance]`.
    fn vectors_of(
        &mut self,
        out: &mut Emitter<'_>,
        projection: &Numbers,
        layout: &Layout,
        [heads, width, dim]: [usize; 3],
    ) -> Result<ValueId, RewriteError> {
        let label = "position_projection";
        let (grid, dtype) = (self.spot.grid, self.query_type());
        let form = (dtype, self.product.on_keys);
        let query = self.site.query.value;
        self.once(out, label, Some(layout), form, |out, term| {
            let code = term.shared(out, TermKey::Code { grid, dim, dtype }, |out, term| {
                let grids = &mut term.scores.grids;
                let ends = [grids.last_key(out, grid), grids.queries(out, grid)];
                Code::of_width(dim).emit(out, ends, dtype)
            });
            let shape = [&layout.lead()[..], &[width, dim]].concat();
            let dims = [heads * width, dim];
            let weight = term.constant(out, label, projection, form, [&dims, &shape])?;
            let vectors = out.op("MatMul", &[weight, code]);
            // Heads are the first axis here.
            Ok(layout.spread(out, vectors, query, [0, shape.len() - 1]))
        })
    }

    /// The products of queries with the vectors of all distances. It has the axes of the product of
    /// queries and keys, with distances instead of keys.
    fn met(
        &self,
        out: &mut Emitter<'_>,
        queries: ValueId,
        vectors: ValueId,
        layout: &Layout,
    ) -> Result<ValueId, RewriteError> {
        let p = &self.product;
        let rest = p.content.iter().filter(|c| **c != p.feature);
        let plain: Vec<char> = rest.copied().chain([p.key]).collect();
        if layout.is_plain() && plain == p.result {
            return Ok(out.op("MatMul", &[queries, vectors]));
        }
        if self.context.opset() < EINSUM {
            let why = format!("{} of this product needs opset 12 or later", self.word);
            return Err(self.refuse(&why));
        }
        let heads = layout.head_axes().filter_map(|a| p.content.get(a).copied());
        let letters: Vec<char> = heads.chain([p.feature, FREE]).collect();
        let distance = |c: &char| if *c == p.key { FREE } else { *c };
        let result: Vec<char> = p.result.iter().map(distance).collect();
        let vectors = (vectors, &letters[..]);
        let content = (queries, &p.content[..]);
        Ok(meet(out, vectors, content, &result, self.query_type()))
    }

    /// The index of the distance of each pair among the vectors, for each sequence and head.
    fn places(&mut self, out: &mut Emitter<'_>, heads: usize) -> Result<ValueId, RewriteError> {
        let grid = self.spot.grid;
        let product = self.product.value;
        let dims = self.context.dims(product).unwrap_or_default();
        let plane = self
            .product
            .axis(self.product.query)
            .zip(self.product.axis(self.product.key));
        let layout = plane.and_then(|(q, k)| Layout::of(dims, [q, k], heads));
        let layout = layout.ok_or_else(|| self.refuse("the heads of its scores are not known"))?;
        let key = TermKey::Places {
            grid,
            layout: layout.clone(),
        };
        Ok(self.shared(out, key, |out, term| {
            let grids = &mut term.scores.grids;
            let (last, distances) = (grids.last_key(out, grid), grids.distances(out, grid));
            let places = out.op("Add", &[distances, last]);
            let axes = [LayoutAxis::Row, LayoutAxis::Column];
            let places = layout.bring(out, term.context.opset(), places, &axes, product);
            let shape = out.op("Shape", &[product]);
            out.op("Expand", &[places, shape])
        }))
    }
}
