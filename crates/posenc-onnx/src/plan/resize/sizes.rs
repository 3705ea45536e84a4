//! What other sizes change in a model.

use std::collections::BTreeMap;

use posenc_encodings::inferred::Inferred;
use posenc_ir::{Dim, Tensor, Use, ValueId};

use super::offsets::ResizedBias;
use super::rotations::ResizedRotation;
use super::table::{Interpolations, NewRows, ResizedTable};
use crate::detect::Found;
use crate::detect::finding::Encoding;
use crate::graph::extent::Extent;
use crate::plan::stretch::Table;
use crate::request::ImageSize;

/// Sizes that are written in the graph, and others that they become.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What the model is made for.
    pub(crate) wanted: Wanted,
    /// The tables that get other rows.
    pub(crate) tables: Vec<ResizedTable>,
    /// The biases by the offset of patches that get other numbers.
    pub(crate) biases: Vec<ResizedBias>,
    /// The rotations by rows and columns of patches that get other numbers.
    pub(crate) rotations: Vec<ResizedRotation>,
    /// Constants that follow, by where they are read.
    pub(crate) constants: BTreeMap<Use, (ValueId, Tensor)>,
    /// Constants of which the first rows are read, by where they are.
    pub(crate) cuts: BTreeMap<Use, (ValueId, Vec<Extent>)>,
    /// The axes of every value of which one changes.
    pub(crate) axes: BTreeMap<ValueId, Vec<Extent>>,
    /// Values that the request did not give.
    pub(crate) inferred: Vec<Inferred>,
}

/// What a model is made for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Images of this size.
    Image {
        /// Rows and columns of pixels.
        size: ImageSize,
        /// Rows and columns of pixels before.
        old: [usize; 2],
        /// How numbers of patches become others.
        by: Interpolations,
    },
    /// Sequences of this length.
    Length {
        /// Tokens.
        length: usize,
        /// The tables that get other rows.
        tables: Vec<Table>,
    },
    /// Sequences of this length in a trial of a graph for all lengths up to the old one.
    OpenLength {
        /// Tokens before.
        old: usize,
        /// Tokens in the trial.
        length: usize,
    },
}

impl Wanted {
    /// The length that is left open; `None` where another one is wanted, or another image.
    pub(super) fn opened(&self) -> Option<usize> {
        match self {
            Self::OpenLength { old, .. } => Some(*old),
            Self::Image { .. } | Self::Length { .. } => None,
        }
    }

    /// What else may be fed, as it is called in a refusal.
    pub(super) fn other(&self) -> &'static str {
        match self {
            Self::Image { .. } => "an image of another size",
            Self::Length { .. } | Self::OpenLength { .. } => "another number of tokens",
        }
    }

    /// What sizes follow, as it is called in a refusal.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::Length { .. } | Self::OpenLength { .. } => "sequence",
        }
    }
}

impl Plan {
    /// The encoding of a finding afterwards.
    pub(crate) fn after(&self, at: usize, encoding: &Encoding) -> Encoding {
        let table = self.tables.iter().find(|table| table.finding == at);
        let bias = self.biases.iter().find(|bias| bias.finding == at);
        let rotation = self.rotations.iter().find(|own| own.finding == at);
        match (table, bias, rotation) {
            (Some(table), _, _) => table.after(encoding),
            (_, Some(bias), _) => bias.after(encoding),
            (_, _, Some(rotation)) => rotation.after(encoding),
            _ => encoding.clone(),
        }
    }

    /// The length of sequences afterwards; `None` where it is that of images.
    pub(crate) fn length(&self) -> Option<usize> {
        match self.wanted {
            Wanted::Image { .. } => None,
            Wanted::Length { length, .. } | Wanted::OpenLength { length, .. } => Some(length),
        }
    }

    /// The findings whose encoding is made for other sizes: of an image all, of a sequence those of the
    /// tables.
    pub(crate) fn findings(&self, found: &Found) -> Vec<usize> {
        let is_meant = |at: &usize| match &self.wanted {
            Wanted::Image { .. } => !self.is_empty(),
            Wanted::Length { tables, .. } => tables.iter().any(|table| table.finding == *at),
            Wanted::OpenLength { .. } => false,
        };
        (0..found.findings.len()).filter(is_meant).collect()
    }

    /// Whether numbers of patches become others, that the graph does not compute itself.
    pub(crate) fn interpolates(&self) -> bool {
        let is_interpolated =
            |table: &ResizedTable| !table.is_computed && matches!(table.rows, NewRows::Grid(_));
        self.tables.iter().any(is_interpolated) || self.has_new_biases()
    }

    /// Whether biases by the offset of patches become others, that the graph does not compute itself.
    pub(crate) fn has_new_biases(&self) -> bool {
        self.biases.iter().any(|bias| !bias.is_computed)
    }

    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// The declared dimensions of a value afterwards; `None` where they stay.
    pub(crate) fn declared(&self, value: ValueId, declared: &[Dim]) -> Option<Vec<Dim>> {
        let axes = self.axes.get(&value)?;
        let pairs = declared.iter().zip(axes);
        let dims: Vec<Dim> = pairs
            .map(|(dim, axis)| match dim {
                Dim::Known(_) => Dim::Known(axis.after()),
                open => open.clone(),
            })
            .collect();
        (dims != declared).then_some(dims)
    }
}
