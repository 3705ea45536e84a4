//! Decides what becomes of each table and bias.

mod again;
mod biases;
mod distances;
mod lengths;
mod waves;

use posenc_encodings::inferred::Inferred;
use posenc_encodings::kind::Kind;
use posenc_encodings::laws::LawName;
use posenc_encodings::resize::{Corners, ResizeError, Resizing};

use super::distances::is_by_distance;
use super::{ComputedWaves, Plan, Rows, Table, divided, resizing};
use crate::detect::absolute::input_of_coordinates;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::ports::{Port, Role};
use crate::plan::selection::chosen;
use crate::plan::swap::size;
use crate::record;
use crate::request::Request;

/// Plans the rows of the tables that the chosen sites see.
///
/// # Errors
/// When the request does not fit the tables, or the length is not given.
pub(crate) fn plan(context: &Context<'_>, request: &Request) -> Result<Plan, RewriteError> {
    size::check(&request.parameters)?;
    let found = context.found;
    let sites = chosen(found, request)?;
    let mut planner = Planner {
        context,
        request,
        sites,
        inferred: vec![],
    };
    let findings = planner.findings()?;
    let (mut tables, mut waves) = (vec![], vec![]);
    let (mut biases, mut distances) = (vec![], vec![]);
    for at in findings {
        let finding = &found.findings[at];
        match divided(finding, 1.0) {
            Some(_) => biases.extend(planner.bias(at)?),
            None if is_by_distance(finding) => distances.extend(planner.distances(at)?),
            None if planner.is_computed(finding) => waves.extend(planner.computed_waves(at)?),
            None => tables.extend(planner.table(at)?),
        }
    }
    planner.refuse_shared(&tables)?;
    planner.refuse_pooled(&tables)?;
    planner.refuse_inserted(&tables, &waves)?;
    planner.check_ways(&distances)?;
    let interpolates = |table: &Table| {
        let by = match table.rows {
            Rows::Resized { by, .. } => by,
            Rows::Waves { .. } => return false,
        };
        matches!(by, Resizing::Linear | Resizing::Cubic)
    };
    let are_same = tables.is_empty() && waves.is_empty();
    let changes = !(are_same && biases.is_empty() && distances.is_empty());
    if changes && request.parameters.corners == Corners::Aligned && !tables.iter().any(interpolates)
    {
        let why = "`align-corners` has no effect: no learned table on the embeddings is interpolated, and \
                   tables by distance keep their ends without it";
        return Err(Refusal::new(RefusalKind::NoEffect("align-corners"), why).into());
    }
    let longest = tables.iter().map(|table| table.new);
    let ends = distances.iter().filter_map(|tables| tables.new_length);
    let mut max_length = request.parameters.max_length.or(longest.chain(ends).max());
    let divided = biases.first().map(|bias| bias.factor);
    let divided = divided.or(waves.first().map(|waves| waves.factor));
    if let (None, Some(factor)) = (max_length, divided) {
        max_length = planner.longer(factor)?;
    }
    Ok(Plan {
        max_length,
        tables,
        waves,
        biases,
        distances,
        inferred: planner.inferred,
    })
}

struct Planner<'a> {
    context: &'a Context<'a>,
    request: &'a Request,
    /// The chosen sites, in rising order.
    sites: Vec<usize>,
    inferred: Vec<Inferred>,
}

impl Planner<'_> {
    /// The encodings that are added to the embeddings of the chosen sites, by their places.
    fn findings(&self) -> Result<Vec<usize>, RewriteError> {
        let found = self.context.found;
        let sees = |finding: &Finding| finding.sites.iter().any(|site| self.sites.contains(site));
        let all = found.findings.iter().enumerate();
        let mut own = vec![];
        let all = all.filter(|(_, finding)| sees(finding) && !self.is_by_coordinates(finding));
        let all = all.filter(|(_, finding)| !self.is_beside_tokens(finding));
        for (at, finding) in all {
            let kind = finding.encoding.kind();
            match finding.encoding {
                Encoding::Learned(_) | Encoding::Sinusoidal(_) => own.push(at),
                _ if is_by_distance(finding)
                    && (finding.max_length.is_some()
                        || self.request.scale.is_some() && !self.has_learned()) =>
                {
                    own.push(at);
                }
                _ if self.request.scale == Some(LawName::Linear.into())
                    && !self.has_learned()
                    && divided(finding, 1.0).is_some() =>
                {
                    own.push(at);
                }
                // What has no end stays as it is.
                _ if (self.request.scale.is_none() || self.has_learned())
                    && kind != Kind::Unknown
                    && finding.max_length.is_none() => {}
                _ => {
                    let other = self
                        .request
                        .scale
                        .filter(|_| divided(finding, 1.0).is_some());
                    let why = match other {
                        Some(scale) if !self.has_learned() => {
                            format!(
                                "`scale` {scale} applies to learned tables only; {kind} takes linear"
                            )
                        }
                        _ => format!("{kind} is not supported yet in a rescale"),
                    };
                    return Err(self.refuse(finding, why));
                }
            }
            let is_chosen =
                |site: &usize| self.sites.contains(site) || found.attention[*site].cross;
            if !finding.sites.iter().all(is_chosen) {
                let why = match finding.encoding.is_absolute() {
                    true => "a table on the embeddings serves all layers of its stack",
                    false => "layers with the same bias are rescaled together",
                };
                return Err(Refusal::invalid(format!("{why}; remove `layers`")).into());
            }
        }
        let is_length =
            self.request.scale.is_none() && self.request.parameters.max_length.is_some();
        if own.is_empty() && !is_length {
            let why = "the chosen layers have no table, no ALiBi and no RoPE, and nothing else can be \
                       rescaled yet";
            return Err(Refusal::unsupported(why).into());
        }
        let is_image = |port: &Port| port.role == Role::Content && port.dims.len() == 4;
        if own.is_empty() && found.ports.iter().all(is_image) {
            let why =
                "`max-length` is of sequences, and this model takes images; give `image-size`";
            return Err(Refusal::new(RefusalKind::NoEffect("max-length"), why).into());
        }
        Ok(own)
    }

    /// Refuses a table that another encoding reads too, which keeps its rows.
    fn refuse_shared(&self, tables: &[Table]) -> Result<(), RewriteError> {
        let found = self.context.found;
        let is_changed = |at: usize| tables.iter().any(|table| table.finding == at);
        for table in tables {
            let mut others = found.findings.iter().enumerate();
            let shared =
                others.any(|(at, other)| other.table == Some(table.value) && !is_changed(at));
            if shared {
                let why = "the other stack reads the same table; remove `stack`".to_owned();
                return Err(self.refuse(&found.findings[table.finding], why));
            }
        }
        Ok(())
    }

    /// Refuses tables of one stack whose rows are of other tokens each, as behind a layer that pools them: one length is
    /// not that of all.
    fn refuse_pooled(&self, tables: &[Table]) -> Result<(), RewriteError> {
        if self.request.parameters.max_length.is_none() {
            return Ok(());
        }
        let found = self.context.found;
        let first = |table: &Table| {
            let sites = found.findings[table.finding].sites.iter();
            let mut own = sites.map(|site| &found.attention[*site]);
            own.find(|site| !site.cross)
        };
        let sites: Vec<_> = tables.iter().map(first).collect();
        for (table, site) in tables.iter().zip(&sites) {
            let Some(site) = site else { continue };
            let keys = site.keys(&found.trace);
            let mut others = sites.iter().flatten();
            let other = others.find(|other| {
                let has_others = other.keys(&found.trace).zip(keys);
                other.place.stack == site.place.stack && has_others.is_some_and(|(a, b)| a < b)
            });
            if let Some(other) = other {
                let why = format!(
                    "the tokens at {} are others, as behind a pooling, and tables of both are not resized to one \
                     length; give `factor` alone",
                    other.name
                );
                return Err(self.refuse(&found.findings[table.finding], why));
            }
        }
        Ok(())
    }

    /// Refuses to change what an earlier rewrite inserted, whose record would no longer hold.
    fn refuse_inserted(
        &self,
        tables: &[Table],
        waves: &[ComputedWaves],
    ) -> Result<(), RewriteError> {
        let inserted = record::swap::read(self.context.model).and_then(Result::ok);
        if !inserted.is_some_and(|record| record.to.is_absolute()) {
            return Ok(());
        }
        let why = match (tables, waves) {
            ([], []) => return Ok(()),
            ([], _) => {
                "an earlier rewrite inserted the sines and cosines, and its record would no longer hold"
            }
            _ => {
                "an earlier rewrite inserted the table, and its record would no longer hold; give \
                 `max-length` to that rewrite"
            }
        };
        Err(Refusal::unsupported(why).into())
    }

    /// What becomes of one table; `None` where it stays.
    fn table(&mut self, at: usize) -> Result<Option<Table>, RewriteError> {
        let finding = &self.context.found.findings[at];
        if finding.encoding.is_of_patches() {
            let why = self.patches().to_owned();
            return Err(self.refuse(finding, why));
        }
        if self.has_rows(finding) {
            return Ok(None);
        }
        match &finding.encoding {
            Encoding::Learned(e) => {
                let lead = finding.lead;
                let reserved = e.offset + lead;
                let old = e.max_positions.saturating_sub(lead);
                let wanted = self.request.parameters.max_length;
                if self.request.scale.is_none() && wanted.is_some_and(|wanted| wanted <= old) {
                    return Ok(None);
                }
                let by = self.resizing()?;
                let new = self.length(old)?;
                size::numbers_in(&[reserved + new, e.dim])?;
                let corners = self.request.parameters.corners;
                match new == old {
                    true => self.check_law(finding, by)?,
                    false => self.check_rows_are_original(finding, by)?,
                }
                let weights = by.weights(old, new, corners);
                let weights = weights.map_err(|why| self.no_rows(finding, &why))?;
                let rows = Rows::Resized {
                    by,
                    corners,
                    weights,
                };
                self.changed(at, [reserved, old, new], rows)
            }
            Encoding::Sinusoidal(e) => self.waves(at, e),
            _ => Ok(None),
        }
    }

    /// Whether these are positions of patches, and another stack has those of tokens, which a length is about: as where
    /// text and images meet behind their stacks.
    fn is_beside_tokens(&self, finding: &Finding) -> bool {
        let mut others = self.context.found.findings.iter();
        let are_tokens = |other: &Finding| {
            let is_apart = !other.sites.iter().any(|site| finding.sites.contains(site));
            is_apart
                && !other.sites.is_empty()
                && other.encoding.is_absolute()
                && !other.encoding.is_of_patches()
                && !self.is_by_coordinates(other)
        };
        finding.encoding.is_of_patches() && others.any(are_tokens)
    }

    /// Why the positions of patches get no other length.
    fn patches(&self) -> &'static str {
        let has = |rank: usize| {
            let mut ports = self.context.found.ports.iter();
            ports.any(|port| port.role == Role::Content && port.dims.len() == rank)
        };
        match (has(4), has(5)) {
            (true, _) => {
                "these are the positions of a grid of patches; give `image-size` instead of a length"
            }
            (false, true) => {
                "these are the positions of patches of frames, and others are not supported yet"
            }
            (false, false) => {
                "these are the positions of patches, and another number of them is not supported yet"
            }
        }
    }

    /// Whether a table has rows enough, of which the graph takes as many as are written in it.
    fn has_rows(&self, finding: &Finding) -> bool {
        let rows = match &finding.encoding {
            Encoding::Learned(e) => Some(e.max_positions),
            Encoding::Sinusoidal(e) => e.max_positions,
            _ => None,
        };
        let rows = rows.map(|rows| rows.saturating_sub(finding.lead));
        let p = &self.request.parameters;
        let fixed = self.context.found.ports.fixed_sequence();
        let (Some(rows), Some(fixed), Some(wanted)) = (rows, fixed, p.max_length) else {
            return false;
        };
        fixed < rows && wanted <= rows && p.factor.is_none()
    }

    /// A table with these rows; `None` where they are those that are there.
    fn changed(
        &self,
        at: usize,
        [reserved, old, new]: [usize; 3],
        rows: Rows,
    ) -> Result<Option<Table>, RewriteError> {
        let finding = &self.context.found.findings[at];
        let same = match &rows {
            Rows::Resized { .. } => old == new,
            Rows::Waves { kept, .. } => *kept == new,
        };
        if same {
            return Ok(None);
        }
        let value = finding.table.ok_or_else(|| {
            self.refuse(
                finding,
                "its table cannot be told from what is added".to_owned(),
            )
        })?;
        Ok(Some(Table {
            finding: at,
            value,
            lead: finding.lead,
            reserved,
            old,
            new,
            rows,
        }))
    }

    /// Whether coordinates of the input pick its rows, which are as many at every length.
    fn is_by_coordinates(&self, finding: &Finding) -> bool {
        let (graph, found) = (self.context.graph(), self.context.found);
        input_of_coordinates(graph, found, finding).is_some()
    }

    fn has_learned(&self) -> bool {
        let is_learned = |finding: &Finding| {
            matches!(finding.encoding, Encoding::Learned(_)) && !self.is_by_coordinates(finding)
        };
        self.context.found.findings.iter().any(is_learned)
    }

    /// How rows are resized.
    fn resizing(&self) -> Result<Resizing, RewriteError> {
        resizing(self.context.found, self.request)?.ok_or_else(|| {
            let why = "a learned table has no formula for new rows; give `scale` linear, cubic, tile or \
                       hierarchical";
            Refusal::missing("scale", why).into()
        })
    }

    /// Why these rows cannot be made; where another length could, it is the value that is wrong.
    fn no_rows(&self, finding: &Finding, why: &ResizeError) -> RewriteError {
        match (why, finding.node()) {
            (ResizeError::NotShorter { .. } | ResizeError::NotLonger { .. }, Some(node)) => {
                let place = self.context.graph().place(node);
                Refusal::invalid(why.to_string()).at(place).into()
            }
            _ => self.refuse(finding, why.to_string()),
        }
    }

    fn refuse(&self, finding: &Finding, why: String) -> RewriteError {
        self.context.refuse_finding(Some(finding), why)
    }
}
