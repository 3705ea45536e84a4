//! The plan of tables with more or fewer rows, of sines of divided positions and of biases by shorter distances,
//! made before anything changes.

pub(crate) mod distances;
mod numbers;
mod picked;
mod planner;

use posenc_encodings::bias::ScoreBias;
use posenc_encodings::families::learned::Learned;
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::LawName;
use posenc_encodings::resize::{Corners, Resizing, Weights};
use posenc_ir::ValueId;

use crate::detect::Found;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::request::{Request, ScaleType};
use distances::{ByDistance, is_by_distance};
pub(crate) use planner::plan;

/// Tables that get other rows, and the length that everything else has to hold.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The tables that change.
    pub(crate) tables: Vec<Table>,
    /// The computed sines and cosines whose positions are divided.
    pub(crate) waves: Vec<ComputedWaves>,
    /// The biases that are divided.
    pub(crate) biases: Vec<Divided>,
    /// The tables by distance that change.
    pub(crate) distances: Vec<ByDistance>,
    /// The longest sequence afterwards; `None` where nothing limits it.
    pub(crate) max_length: Option<usize>,
    /// Values that the request did not give.
    pub(crate) inferred: Vec<Inferred>,
}

/// A table that gets other rows.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// The constant.
    pub(crate) value: ValueId,
    /// Class tokens and the like before the first token.
    pub(crate) lead: usize,
    /// Rows before that of the first token, which stay: those of class tokens are among them.
    pub(crate) reserved: usize,
    /// Positions that have a row now.
    pub(crate) old: usize,
    /// Positions that have a row afterwards.
    pub(crate) new: usize,
    /// What these rows are.
    pub(crate) rows: Rows,
}

impl Table {
    /// How many of the first new rows are equal: half pixels before the first old row are that row.
    pub(crate) fn equal_at_the_start(&self) -> usize {
        let Rows::Resized { weights, .. } = &self.rows else {
            return 0;
        };
        let is_first = |own: &&Weights| own.iter().all(|(row, _)| *row == 0);
        weights.iter().take_while(is_first).count()
    }

    /// The encoding with these rows.
    pub(crate) fn after(&self, encoding: &Encoding) -> Encoding {
        match (encoding, &self.rows) {
            (Encoding::Learned(e), _) => Encoding::Learned(Learned {
                max_positions: self.lead + self.new,
                table_rows: self.reserved + self.new,
                ..e.clone()
            }),
            (_, Rows::Waves { code, .. }) => Encoding::Sinusoidal(Sinusoidal {
                offset: code.offset.saturating_sub(self.lead),
                max_positions: code.max_positions.map(|rows| self.lead + rows),
                ..code.clone()
            }),
            (other, Rows::Resized { .. }) => other.clone(),
        }
    }
}

/// The rows of positions.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    /// Sums of the old ones.
    Resized {
        /// How.
        by: Resizing,
        /// Which points of the old and the new rows coincide.
        corners: Corners,
        /// The old rows of each new one.
        weights: Vec<Weights>,
    },
    /// Sines and cosines; where only the length changes, the rows that are there stay.
    Waves {
        /// Their code.
        code: Sinusoidal,
        /// Rows that stay.
        kept: usize,
    },
}

/// Sines and cosines that the graph computes, of positions that are divided by a number.
#[derive(Clone, Debug)]
pub(crate) struct ComputedWaves {
    /// Their finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// The number.
    pub(crate) factor: f64,
    /// Their code afterwards.
    pub(crate) code: Sinusoidal,
}

/// A bias on scores that is divided by a number, as if tokens were nearer to each other.
#[derive(Clone, Debug)]
pub(crate) struct Divided {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// The number.
    pub(crate) factor: f64,
    /// By how much the bias of the original model is divided then.
    pub(crate) of_original: f64,
    /// Whether distances are divided, and not the bias.
    pub(crate) of_distances: bool,
    /// The bias afterwards.
    pub(crate) bias: Box<dyn ScoreBias>,
}

impl Plan {
    /// The table of a finding; `None` where it stays.
    pub(crate) fn table(&self, finding: usize) -> Option<&Table> {
        self.tables.iter().find(|table| table.finding == finding)
    }

    /// The computed sines and cosines of a finding; `None` where they stay.
    pub(crate) fn waves_of(&self, finding: usize) -> Option<&ComputedWaves> {
        self.waves.iter().find(|waves| waves.finding == finding)
    }

    /// The bias of a finding; `None` where it stays.
    pub(crate) fn bias(&self, finding: usize) -> Option<&Divided> {
        self.biases.iter().find(|bias| bias.finding == finding)
    }

    /// The tables by distance of a finding; `None` where they stay.
    pub(crate) fn by_distance(&self, finding: usize) -> Option<&ByDistance> {
        self.distances.iter().find(|all| all.finding == finding)
    }

    /// The findings that change.
    pub(crate) fn findings(&self) -> impl Iterator<Item = usize> {
        let tables = self.tables.iter().map(|table| table.finding);
        let biases = self.biases.iter().map(|bias| bias.finding);
        let distances = self.distances.iter().map(|all| all.finding);
        let waves = self.waves.iter().map(|waves| waves.finding);
        tables.chain(biases).chain(distances).chain(waves)
    }

    /// The encoding of a finding afterwards.
    pub(crate) fn after(&self, at: usize, encoding: &Encoding) -> Encoding {
        if let Some(all) = self.by_distance(at) {
            return all.after.clone();
        }
        if let Some(waves) = self.waves_of(at) {
            return Encoding::Sinusoidal(waves.code.clone());
        }
        match (self.table(at), self.bias(at), encoding) {
            (Some(table), ..) => table.after(encoding),
            (_, Some(bias), Encoding::ScoreBias(kind, _)) => {
                Encoding::ScoreBias(*kind, bias.bias.clone())
            }
            _ => encoding.clone(),
        }
    }

    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.findings().next().is_none()
    }
}

/// Whether a request without a kind is about what this module plans: nothing rotates, and there is a
/// table on the embeddings or, with a scaling of tables, a table by distance or a bias that can be divided, or only
/// a length is given.
pub(crate) fn is_meant(found: &Found, request: &Request) -> bool {
    let rotates = !found.rotary.is_empty()
        || !found.axial.is_empty()
        || !found.not_rotary.is_empty()
        || request.hf_config.is_some();
    let divides = request.scale == Some(LawName::Linear.into());
    let resizes = request
        .scale
        .is_some_and(|scale| scale.resizing().is_some());
    let is_own = |finding: &Finding| {
        finding.encoding.is_absolute()
            || (divides || resizes) && divided(finding, 1.0).is_some()
            || resizes && is_by_distance(finding)
    };
    // Where only a length is given, buffers may be all that ends.
    let is_length = request.scale.is_none() && request.parameters.max_length.is_some();
    !rotates && (found.findings.iter().any(is_own) || is_length)
}

/// The bias of a finding for a longer context; `None` where its family has none.
fn divided(finding: &Finding, factor: f64) -> Option<Box<dyn ScoreBias>> {
    match &finding.encoding {
        Encoding::ScoreBias(_, bias) => bias.stretch(factor),
        _ => None,
    }
}

/// Why a request about RoPE changes nothing in a model that does not rotate, with what it can change there.
pub(crate) fn nothing_rotates(found: &Found, scale: Option<ScaleType>) -> String {
    let mut kinds: Vec<String> = vec![];
    let mut advice: Vec<String> = vec![];
    for finding in &found.findings {
        let kind = finding.encoding.kind().to_string();
        if kinds.contains(&kind) {
            continue;
        }
        let scales = match &finding.encoding {
            Encoding::Learned(_) => Some("linear, cubic, tile, hierarchical or truncate"),
            other if other.is_absolute() => Some("linear"),
            _ => (divided(finding, 1.0).is_some() || is_by_distance(finding)).then_some("linear"),
        };
        advice.extend(scales.map(|scales| format!("`scale` {scales} for {kind}")));
        kinds.push(kind);
    }
    let what = match scale.filter(|scale| scale.resizing().is_none()) {
        Some(scale) => format!("`scale` {scale} applies to RoPE only, and "),
        None => String::new(),
    };
    let kinds = match kinds.is_empty() {
        true => "no positional encoding was found".to_owned(),
        false => format!("its encoding is {}", kinds.join(" and ")),
    };
    advice.push("`to` rope to insert RoPE".to_owned());
    let advice = advice.join(", or ");
    format!("{what}no attention of the model is rotary: {kinds}; give {advice}")
}

/// How rows are resized; `None` where that is not given.
///
/// # Errors
/// When the scale is one of rotations.
pub(crate) fn resizing(found: &Found, request: &Request) -> Result<Option<Resizing>, RewriteError> {
    let Some(scale) = request.scale else {
        return Ok(None);
    };
    let by = scale
        .resizing()
        .ok_or_else(|| Refusal::unsupported(nothing_rotates(found, Some(scale))))?;
    Ok(Some(by))
}
