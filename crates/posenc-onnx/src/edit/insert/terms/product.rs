//! The product of queries and keys that a term is added to.

use posenc_ir::{NodeId, ValueId};

use crate::attention::scale;
use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::product::Letters;

/// The product, with a letter for each axis.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) node: NodeId,
    pub(crate) value: ValueId,
    /// The slot of the queries.
    pub(crate) slot: usize,
    /// The axes of the queries.
    pub(crate) content: Vec<char>,
    /// The axes of the result.
    pub(crate) result: Vec<char>,
    pub(crate) query: char,
    pub(crate) key: char,
    pub(crate) feature: char,
    /// The factor on queries before the product.
    pub(crate) on_queries: f64,
    /// The factor on keys before the product, times the factor of the product itself.
    pub(crate) on_keys: f64,
}

impl Product {
    /// The product of a site.
    ///
    /// # Errors
    /// If a term cannot be added to it.
    pub(crate) fn of(context: &Context<'_>, site: &Site) -> Result<Self, RewriteError> {
        let refuse = |why: &str| context.refuse(site.node, why);
        let (graph, trace) = (context.graph(), &context.found.trace);
        let Some((value, (node, _))) = site
            .product
            .and_then(|value| Some((value, graph.producer(value)?)))
        else {
            return Err(refuse(
                "a term cannot be added to fused attention; decompose it into plain operators \
                 first",
            ));
        };
        let named = Named::of(context, node)
            .ok_or_else(|| refuse("its product of queries and keys is not supported"))?;
        let is_query = |slot: usize| graph.node(node).input(slot) == Some(site.query.value);
        let slot = usize::from(!is_query(0));
        let (query, key) = (site.query.lane, site.key.lane);
        let found = || {
            let (content, other) = (&named.operands[slot], &named.operands[1 - slot]);
            let feature = *content.get(query.feature?)?;
            let (query, key) = (*content.get(query.sequence)?, *other.get(key.sequence)?);
            let known = |c: &char| content.contains(c) || *c == key;
            let summed = !named.result.contains(&feature) && named.result.contains(&query);
            let whole = summed && query != key && named.result.iter().all(known);
            whole.then_some((content.clone(), query, key, feature))
        };
        let (content, query, key, feature) = found()
            .filter(|_| is_query(slot) && site.head_dim.is_some())
            .ok_or_else(|| refuse("the axes of its queries and keys are not known"))?;
        let classes = &context.found.classes;
        let factor = |of: &Operand| scale::before(graph, classes, trace, of);
        Ok(Self {
            node,
            value,
            slot,
            content,
            result: named.result,
            query,
            key,
            feature,
            on_queries: factor(&site.query),
            on_keys: factor(&site.key) * named.factor,
        })
    }

    /// The axis of the result with this letter.
    pub(crate) fn axis(&self, letter: char) -> Option<usize> {
        self.result.iter().position(|c| *c == letter)
    }
}

/// A product of two operands with a letter for each axis, and its factor.
pub(crate) struct Named {
    pub(crate) operands: [Vec<char>; 2],
    pub(crate) result: Vec<char>,
    pub(crate) factor: f64,
}

/// A letter that no axis of a product has.
pub(crate) const FREE: char = 'z';

impl Named {
    pub(crate) fn of(context: &Context<'_>, id: NodeId) -> Option<Self> {
        let graph = context.graph();
        let node = graph.node(id);
        let letters = Letters::of(graph, &context.found.trace, id)?;
        // The factor of a `FusedMatMul`.
        let factor = node.float("alpha").ok()?.unwrap_or(1.0);
        let mut seen: Vec<char> = vec![];
        // Letters that are valid in an equation.
        let mut plain = |all: &[char]| -> Option<Vec<char>> {
            let letter = |c: &char| {
                let at = seen.iter().position(|s| s == c).unwrap_or_else(|| {
                    seen.push(*c);
                    seen.len() - 1
                });
                (b'a'..=b'y').nth(at).map(char::from)
            };
            all.iter().map(letter).collect()
        };
        let [a, b] = &letters.operands;
        Some(Self {
            operands: [plain(a)?, plain(b)?],
            result: plain(&letters.result)?,
            factor,
        })
    }
}
