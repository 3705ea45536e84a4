//! Tables by distance.

use posenc_encodings::families::transformer_xl;
use posenc_encodings::laws::LawName;
use posenc_encodings::resize::Resizing;
use posenc_encodings::resize::distances::{Sides, Widening};
use posenc_ir::{Use, ValueId};

use super::Planner;
use super::lengths::times;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::graph::region::shape_only;
use crate::plan::stretch::distances::{ByDistance, MOST_TOKENS, Number, Read, Rows, after};
use crate::plan::stretch::numbers::{self, Step};
use crate::plan::stretch::picked::{Picked, picked};
use crate::plan::swap::size;

/// How far the distances of a table reach afterwards.
#[derive(Clone, Copy)]
enum Reach {
    /// Rows on a side that ends get so many; sides at which distances are clamped stay.
    Rows(usize),
    /// Every side gets so many times the rows.
    Times(f64),
}

impl Planner<'_> {
    /// What becomes of the tables of a finding by distance; `None` where they stay.
    pub(super) fn distances(&mut self, at: usize) -> Result<Option<ByDistance>, RewriteError> {
        let finding = &self.context.found.findings[at];
        let is_waves = matches!(finding.encoding, Encoding::TransformerXl(_));
        let is_linear = self.request.scale == Some(LawName::Linear.into());
        if let Some(scale) = self.request.scale.filter(|_| !is_linear || is_waves) {
            let kind = finding.encoding.kind();
            let why = match is_waves {
                true => format!(
                    "`scale` {scale} of {kind} is not supported yet; its sinusoids go on with `max-length` \
                     alone"
                ),
                false => {
                    format!("`scale` {scale} applies to learned tables only; {kind} takes linear")
                }
            };
            return Err(self.refuse(finding, why));
        }
        let Some((reach, new_length)) = self.reach(finding, is_linear)? else {
            return Ok(None);
        };
        let found = picked(self.context, finding);
        let found = found.map_err(|(node, why)| self.context.refuse(node, why))?;
        if found.is_empty() {
            let why = "no operator is known that picks the rows of its table by distance";
            return Err(self.refuse(finding, why.to_owned()));
        }
        if is_linear {
            self.check_rows_are_original(finding, Resizing::Linear)?;
        }
        let (mut reads, mut all, mut rows) = (vec![], vec![], None);
        for picked in &found {
            let refuse = |why: &str| self.context.refuse(picked.node, why);
            let (old, clamped) = match is_waves {
                true => {
                    let waves = self.code(picked).ok_or_else(|| {
                        refuse(
                            "the sinusoids of the distance that are stored here could not be read",
                        )
                    })?;
                    let same = *rows.get_or_insert_with(|| waves.1.clone()) == waves.1;
                    if !same {
                        return Err(refuse("the tables of this encoding have several codes"));
                    }
                    (waves.0, [false; 2])
                }
                false => picked
                    .ways
                    .first()
                    .and_then(|way| numbers::read(&way.steps, picked.rows))
                    .ok_or_else(|| refuse("the row of distance 0 is not known here"))?,
            };
            let new = reach.of(old, clamped)?;
            if reads
                .iter()
                .any(|read: &Read| read.table == picked.table && [read.old, read.new] != [old, new])
            {
                return Err(refuse(
                    "the same table is read for other distances elsewhere",
                ));
            }
            let width = self.context.dims(picked.table).unwrap_or_default();
            let width = width.iter().product::<usize>() / picked.rows.max(1);
            size::numbers_in(&[new.rows(), width])?;
            for way in &picked.ways {
                let changed = numbers::changed(&way.steps, old, new);
                for number in changed.map_err(refuse)? {
                    if !all.contains(&number) {
                        all.push(number);
                    }
                }
            }
            let read = Read {
                node: picked.node,
                table: picked.table,
                axis: picked.axis,
                old,
                new,
            };
            let tokens = read.tokens([finding.max_length, new_length]);
            if let Some(tokens) = tokens.into_iter().find(|n| !is_waves && *n > MOST_TOKENS) {
                let why = format!(
                    "a table by distance can be compared up to {MOST_TOKENS} tokens, and the rows here are \
                     read by {tokens}; ask for fewer"
                );
                return Err(refuse(&why));
            }
            reads.push(read);
        }
        let rows = rows.unwrap_or(Rows::Widened(match is_linear {
            true => Widening::Interpolated,
            false => Widening::Clamped,
        }));
        let [first, ..] = &reads[..] else {
            return Ok(None);
        };
        let encoding = after(&finding.encoding, first.old, first.new);
        let Some(encoding) = encoding else {
            let why = "its distances are not known";
            return Err(self.refuse(finding, why.to_owned()));
        };
        Ok(Some(ByDistance {
            finding: at,
            reads,
            followed: followed(self.context, &found, &all),
            index: found.iter().flat_map(Picked::reads).collect(),
            numbers: all,
            rows,
            old_length: finding.max_length,
            new_length,
            after: encoding,
        }))
    }

    /// How far distances reach afterwards, and the longest sequence; `None` where they reach far enough.
    fn reach(
        &mut self,
        finding: &Finding,
        is_linear: bool,
    ) -> Result<Option<(Reach, Option<usize>)>, RewriteError> {
        self.check_factor()?;
        let p = &self.request.parameters;
        let Some(old) = finding.max_length else {
            let factor = match (is_linear, p.factor, p.max_length) {
                (false, ..) => return Ok(None),
                (_, Some(factor), _) => factor,
                (_, None, Some(_)) => {
                    let why = "distances are clamped, and nothing tells for which length that was meant; \
                               give `factor`";
                    return Err(Refusal::missing("factor", why).into());
                }
                (_, None, None) => self.usual_factor(),
            };
            if factor < 1.0 {
                let why =
                    format!("a table of distances gets no fewer rows, and `factor` is {factor}");
                return Err(Refusal::invalid(why).into());
            }
            return Ok((factor > 1.0).then_some((Reach::Times(factor), None)));
        };
        let new = match (is_linear, p.max_length) {
            (false, None) => return Ok(None),
            (false, Some(length)) => length.max(old),
            (true, _) => self.length(old)?,
        };
        if is_linear && (new < old || old < 2) {
            let why = format!("a table of distances for {old} tokens cannot become one for {new}");
            return Err(Refusal::invalid(why).into());
        }
        self.check_factor_makes(old, new)?;
        if is_linear {
            self.check_rows_did_not_go_on(finding)?;
        }
        let reach = match is_linear {
            true => Reach::Times((new - 1) as f64 / (old - 1) as f64),
            false => Reach::Rows(new - 1),
        };
        Ok((new != old).then_some((reach, Some(new))))
    }

    /// Refuses row numbers that are read for something else too, where they become others.
    pub(super) fn check_ways(&self, plans: &[ByDistance]) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let is_known = |at: &Use| plans.iter().any(|plan| plan.index.contains(at));
        for value in plans.iter().flat_map(|plan| &plan.followed) {
            let name = graph.name(*value);
            if graph.value(*value).is_output() {
                let why = format!("{name}, by which rows of distances are picked, is an output");
                return Err(Refusal::unsupported(why).into());
            }
            let mut uses = graph.uses(*value).iter();
            let other = uses.find(|at| !is_known(at) && !shape_only(graph, at.node));
            if let Some(at) = other {
                let why = format!(
                    "{name}, by which rows of distances are picked, is read here for something else"
                );
                return Err(self.context.refuse(at.node, why));
            }
        }
        Ok(())
    }

    /// The sides of a table of sinusoids of the distance, and their code.
    fn code(&self, picked: &Picked) -> Option<(Sides, Rows)> {
        let data = self.context.found.trace.get(picked.table).to_f64()?;
        let dims = data.shape().to_vec();
        let width = *dims.last()?;
        let is_line = picked.axis + 2 == dims.len() && picked.rows * width == data.len();
        let numbers: Vec<f64> = data.iter().copied().filter(|_| is_line).collect();
        let rows: Vec<&[f64]> = numbers.chunks(width.max(1)).collect();
        let is_center = |row: &&[f64]| {
            let zeros = row.iter().filter(|v| **v == 0.0).count();
            let ones = row.iter().filter(|v| **v == 1.0).count();
            zeros == ones && zeros + ones == width
        };
        let before = rows.iter().position(is_center)?;
        let sides = Sides {
            before,
            after: rows.len().checked_sub(before + 1)?,
        };
        [false, true].into_iter().find_map(|counts_up| {
            let sign = if counts_up { 1 } else { -1 };
            let place = |row: usize| sign * (row as i64 - before as i64);
            let pairs = rows.iter().enumerate();
            let pairs: Vec<(i64, Vec<f64>)> = pairs
                .map(|(row, code)| (place(row), code.to_vec()))
                .collect();
            let code = transformer_xl::identify(&pairs).ok()?.of_formula();
            let rows = Rows::Waves { code, counts_up };
            Some((sides, rows))
        })
    }
}

/// What becomes another number on the ways to the rows.
fn followed(context: &Context<'_>, found: &[Picked], changed: &[Number]) -> Vec<ValueId> {
    let is_changed = |step: &Step| changed.iter().any(|n| n.at.node == step.node());
    let mut all = vec![];
    for way in found.iter().flat_map(|picked| &picked.ways) {
        let first = way.steps.iter().position(is_changed);
        let steps = &way.steps[first.unwrap_or(way.steps.len())..];
        all.extend(
            steps
                .iter()
                .filter_map(|step| context.graph().node(step.node()).output(0)),
        );
    }
    all
}

impl Reach {
    /// The sides of a table afterwards; `clamped` says on which distances have no end.
    ///
    /// # Errors
    /// Where a side would have more rows than a table may have numbers.
    fn of(self, old: Sides, clamped: [bool; 2]) -> Result<Sides, RewriteError> {
        let side = |rows: usize, is_clamped: bool| match self {
            _ if rows == 0 => Ok(0),
            Self::Rows(_) if is_clamped => Ok(rows),
            Self::Rows(most) => Ok(rows.max(most)),
            Self::Times(factor) => times(rows, factor),
        };
        Ok(Sides {
            before: side(old.before, clamped[0])?,
            after: side(old.after, clamped[1])?,
        })
    }
}
