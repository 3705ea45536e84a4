//! Bias and mask of every site; equal sites are evaluated once.

use std::sync::Arc;

use posenc_ir::Model;
use posenc_ir::eval::Trace;
use rustc_hash::FxHashMap;

use crate::attention::plane::Plane;
use crate::attention::scores::plane;
use crate::attention::site::Site;
use crate::graph::dataflow::Classes;
use crate::graph::lane::Lane;
use crate::graph::region::{Aspect, Region};
use crate::graph::signature::Signatures;

/// The planes so far.
#[derive(Default)]
pub(crate) struct Planes {
    signatures: Signatures,
    known: FxHashMap<PlaneKey, Option<Arc<Plane>>>,
}

/// What sites with the same plane share: the path, the heads, and the axes of the scores.
type PlaneKey = (usize, Option<usize>, Option<[usize; 2]>, Option<usize>);

impl Planes {
    pub(crate) fn of(
        &mut self,
        model: &Model,
        classes: &Classes,
        trace: &Trace,
        site: &Site,
    ) -> Option<Arc<Plane>> {
        let read = || plane(model, classes, trace, site).map(Arc::new);
        let Some(path) = score_path(site) else {
            return read();
        };
        let graph = model.graph();
        let aspects = path.aspects(graph, classes, Aspect::Numbers);
        let signature = self.signatures.region(graph, &path, trace, aspects);
        let key = (signature, site.heads, site.plane, site.keys(trace));
        self.known.entry(key).or_insert_with(read).clone()
    }
}

/// The region from the product to the softmax.
pub(crate) fn score_path(site: &Site) -> Option<Region> {
    let lane = Lane::of_sequence(0);
    Some(Region {
        input: site.product?,
        input_lane: lane,
        output: site.scores?,
        output_lane: lane,
        entries: vec![],
        inside: None,
    })
}
