//! Adds terms of vectors by distance: rows of a table, or projected sines and cosines.
//!
//! A term is added to the product of queries and keys before any scale. It reads queries as they
//! enter the product. If the graph has scaled keys before the product, vectors are scaled likewise.

mod clipped;
mod product;
mod projected;
mod values;

use posenc_ir::{DType, Emitter, ValueId};

use super::scores::cache::{ScoreCache, SiteScores, TermKey};
use super::scores::layout::Layout;
use crate::attention::Site;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::numbers::Numbers;
use crate::plan::swap::Group;
use crate::plan::swap::spec::TermSpec;
use posenc_encodings::opset::Opset;
use posenc_encodings::score_term::Vectors;
use product::Product;
pub(crate) use values::WeightedValues;

/// The first version of ai.onnx with `Einsum`.
const EINSUM: Opset = Opset(12);

/// Adds the terms of a group.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    scores: &mut ScoreCache<'_>,
    group: &Group,
    spec: &TermSpec,
) -> Result<(), RewriteError> {
    let mut made = vec![];
    for site in &group.sites {
        let site = context.site(*site);
        if !scores.claim(site, &group.new)? {
            continue;
        }
        let vectors = spec.term.vectors();
        if context.opset() < EINSUM && matches!(vectors, Vectors::Clipped { .. }) {
            let why = format!("{} needs opset 12 or later", spec.term.word());
            return Err(context.refuse(site.node, why));
        }
        out.set_scope(site.scope);
        let product = Product::of(context, site)?;
        let spot = scores.site_scores(site)?;
        let term = Term {
            context,
            scores,
            site,
            word: spec.term.word(),
            product,
            spot,
            made: &mut made,
        };
        match vectors {
            Vectors::Clipped { max_distance } => term.clipped(out, spec, max_distance)?,
            Vectors::Projected {
                heads,
                head_dim,
                dim,
            } => term.projected(out, spec, [heads, head_dim, dim])?,
        }
    }
    out.set_scope(context.graph().main());
    Ok(())
}

/// Constants and vectors that the sites of a group share, by label, grid, layout, type and factor.
type Made = Vec<((&'static str, usize, Option<Layout>, DType, u64), ValueId)>;

/// Adds one term.
struct Term<'a, 'g> {
    context: &'a Context<'a>,
    scores: &'a mut ScoreCache<'g>,
    site: &'a Site,
    /// The word of the family.
    word: &'static str,
    product: Product,
    spot: SiteScores,
    made: &'a mut Made,
}

impl Term<'_, '_> {
    fn refuse(&self, why: &str) -> RewriteError {
        self.context.refuse(self.site.node, why)
    }

    /// The type of queries, and so that of their product with keys.
    fn query_type(&self) -> DType {
        self.context.dtype(self.site.query.value)
    }

    /// Makes a value once for a group, by label, layout, type and the factor on its numbers.
    fn once(
        &mut self,
        out: &mut Emitter<'_>,
        label: &'static str,
        layout: Option<&Layout>,
        (dtype, factor): (DType, f64),
        make: impl FnOnce(&mut Emitter<'_>, &mut Self) -> Result<ValueId, RewriteError>,
    ) -> Result<ValueId, RewriteError> {
        let grid = self.spot.grid;
        let key = (label, grid, layout.cloned(), dtype, factor.to_bits());
        if let Some((_, known)) = self.made.iter().find(|(k, _)| *k == key) {
            return Ok(*known);
        }
        let made = make(out, self)?;
        self.made.push((key, made));
        Ok(made)
    }

    /// Makes a value once for all groups.
    fn shared(
        &mut self,
        out: &mut Emitter<'_>,
        key: TermKey,
        make: impl FnOnce(&mut Emitter<'_>, &mut Self) -> ValueId,
    ) -> ValueId {
        if let Some((_, known)) = self.scores.shared.iter().find(|(k, _)| *k == key) {
            return *known;
        }
        let made = make(out, self);
        self.scores.shared.push((key, made));
        made
    }

    /// Numbers times a factor as a constant of the main graph, which bodies share.
    fn constant(
        &self,
        out: &mut Emitter<'_>,
        label: &str,
        numbers: &Numbers,
        (dtype, factor): (DType, f64),
        [dims, shape]: [&[usize]; 2],
    ) -> Result<ValueId, RewriteError> {
        let values: Vec<f64> = numbers.values(dims)?.iter().map(|v| v * factor).collect();
        if values.len() != shape.iter().product::<usize>() {
            return Err(self.refuse("the given numbers do not fit its heads"));
        }
        out.set_scope(self.context.graph().main());
        let tensor = posenc_ir::Tensor::from_f64(dtype, shape, &values);
        let constant = out.constant(label, tensor);
        out.set_scope(self.site.scope);
        Ok(constant)
    }

    /// Adds a term to the product for the readers that lead to the softmax.
    fn join(&self, out: &mut Emitter<'_>, term: ValueId) -> Result<(), RewriteError> {
        let product = self.product.value;
        let sum = out.op("Add", &[product, term]);
        for at in self.spot.path.uses(self.context, self.site, product) {
            out.redirect_use(product, at, sum)?;
        }
        Ok(())
    }
}
