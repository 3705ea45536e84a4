//! An encoding with its parameters, whichever the family.

use posenc_ir::{NodeId, Use, ValueId};

use posenc_encodings::bias::ScoreBias;
use posenc_encodings::encoding;
use posenc_encodings::families::axial::Axial;
use posenc_encodings::families::conv::Conv;
use posenc_encodings::families::disentangled::Disentangled;
use posenc_encodings::families::learned::Learned;
use posenc_encodings::families::shaw::Shaw;
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::families::transformer_xl::TransformerXl;
use posenc_encodings::kind::{Form, Kind};
use posenc_encodings::params::Params;

/// An encoding other than a rotation by one position, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Encoding {
    /// A learned table added to the embeddings.
    Learned(Learned),
    /// Sines and cosines added to the embeddings.
    Sinusoidal(Sinusoidal),
    /// A bias on the scores.
    ScoreBias(Kind, Box<dyn ScoreBias>),
    /// Learned vectors per distance that meet queries or keys.
    Shaw(Shaw),
    /// Projected sinusoids of the distance that meet queries.
    TransformerXl(TransformerXl),
    /// Content-to-position and position-to-content terms.
    Disentangled(Disentangled),
    /// A convolution added to its input.
    Conv(Conv),
    /// Rotations by rows and columns.
    Axial(Axial),
    /// Position acts, but no family fits.
    Unknown,
}

/// An encoding at the place where it was found.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The encoding.
    pub encoding: Encoding,
    /// The attention sites that see it, by their place in [`Found::attention`].
    ///
    /// [`Found::attention`]: crate::detect::Found::attention
    pub sites: Vec<usize>,
    /// Where it enters: uses of values that carry position and no content.
    pub entries: Vec<Use>,
    /// The constant that holds its rows, where they are added to the embeddings.
    pub table: Option<ValueId>,
    /// The operators that it consists of.
    pub form: Form,
    /// The largest difference between the graph's numbers and the family's formula; `None` where
    /// the family has none.
    pub fit_error: Option<f64>,
    /// The longest sequence that it can encode; `None` without an end.
    pub max_length: Option<usize>,
    /// Class tokens and the like before the first token, which have rows of their own.
    pub lead: usize,
    /// What indicates an encoding that no family fits.
    pub evidence: Vec<String>,
}

impl Finding {
    /// The node at which it enters first.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.entries.first().map(|u| u.node)
    }

    /// Adds the places and sites of the same encoding.
    pub(crate) fn merge(&mut self, more: Self) {
        self.entries.extend(more.entries);
        self.sites.extend(more.sites);
        self.sites.sort_unstable();
        self.sites.dedup();
        self.evidence.extend(more.evidence);
        self.evidence.dedup();
    }
}

impl Encoding {
    /// The encoding as its family has it; `None` where no family fits.
    pub(crate) fn known(&self) -> Option<&dyn encoding::Encoding> {
        Some(match self {
            Self::Learned(e) => e,
            Self::Sinusoidal(e) => e,
            Self::ScoreBias(_, bias) => &**bias,
            Self::Shaw(e) => e,
            Self::TransformerXl(e) => e,
            Self::Disentangled(e) => e,
            Self::Conv(e) => e,
            Self::Axial(e) => e,
            Self::Unknown => return None,
        })
    }

    /// Whether it is of patches of an image or of frames, and not of tokens.
    pub(crate) fn is_of_patches(&self) -> bool {
        match self {
            Self::Learned(e) => e.grid.is_some() || e.prefix > 0,
            Self::Sinusoidal(e) => e.image.is_some(),
            _ => false,
        }
    }

    /// The family.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::ScoreBias(kind, _) => *kind,
            _ => self.known().map_or(Kind::Unknown, |e| Kind::of(e.word())),
        }
    }

    /// The parameters by the names of the report.
    pub(crate) fn params(&self) -> Params {
        self.known().map_or_else(Params::new, |e| e.params())
    }

    /// Whether it is added to the residual stream, before all sites at once.
    pub(crate) fn is_absolute(&self) -> bool {
        self.kind().is_absolute()
    }
}
