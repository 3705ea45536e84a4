//! The keys of a configuration that are a length.

use serde_json::{Map, Value};

use posenc_encodings::kind::Stack;

use crate::report::{Limit, LimitCause, Limits};

/// The keys of the length of an encoder.
const ENCODER: [&str; 2] = ["max_source_positions", "max_encoder_position_embeddings"];

/// The keys of the length of a decoder.
const DECODER: [&str; 2] = ["max_target_positions", "max_decoder_position_embeddings"];

/// The keys of a `config.json` that are the length of the model, or the rows of its table.
pub(super) const KEYS: [&str; 10] = [
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    DECODER[0],
    DECODER[1],
    ENCODER[0],
    ENCODER[1],
];

/// From here on, a number in a file stands for no bound: 2³¹ − 1 and 10³⁰ are usual.
const UNBOUNDED: usize = 1_000_000_000;

/// Lengths that became others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lengths {
    /// Each length that changed.
    pub(super) spans: Vec<Span>,
    /// Lengths of tables that stay although others change.
    pub(super) kept: Vec<usize>,
}

/// A length that became another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// The longest sequence before.
    pub(super) old: usize,
    /// The longest sequence after.
    pub(super) new: usize,
    /// Rows of the table that no position reads, which a config may count.
    pub(super) reserved: usize,
    /// Whose length it is; `None` where that is not known.
    pub(super) stack: Option<Stack>,
}

impl Span {
    /// A length of the whole model.
    pub(super) fn of_model(old: usize, new: usize) -> Self {
        Self {
            old,
            new,
            reserved: 0,
            stack: None,
        }
    }

    fn is_of(&self, key: &str) -> bool {
        match key {
            _ if ENCODER.contains(&key) => self.stack != Some(Stack::Decoder),
            _ if DECODER.contains(&key) => self.stack != Some(Stack::Encoder),
            _ => true,
        }
    }

    /// What becomes of a number that is the old length; `None` where it is not.
    fn replaced(&self, number: usize) -> Option<usize> {
        let counts = [0, self.reserved].into_iter();
        let mut all = counts.map(|more| (self.old.checked_add(more), self.new.checked_add(more)));
        all.find_map(|(old, new)| new.filter(|_| old == Some(number)))
    }
}

/// What became of the lengths of a `config.json`.
#[derive(Debug, Default)]
pub(super) struct Edited {
    /// Whether a key was the old length, or is the new one already.
    is_named: bool,
    /// Keys that are the length of both stacks, of which one has another length now.
    ambiguous: Vec<String>,
}

impl Lengths {
    /// The length at which a graph ends, where that became another.
    pub(super) fn of_limits(limits: &Limits) -> Self {
        let [before, after] = [&limits.before, &limits.after].map(|limits| shortest(limits));
        let changed = before.zip(after).filter(|(old, new)| old != new);
        let span = changed.map(|(old, new)| Span::of_model(old, new));
        Self {
            spans: span.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds a length that changes.
    pub(super) fn add(&mut self, span: Span) {
        if !self.spans.contains(&span) {
            self.spans.push(span);
        }
    }

    /// The new length in place of the old one in these keys, where they are the old one.
    pub(super) fn edit(&self, config: &mut Map<String, Value>, keys: &[&str]) -> Edited {
        let mut edited = Edited::default();
        for key in keys {
            let Some(value) = config.get_mut(*key) else {
                continue;
            };
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
            let Some(number) = number else { continue };
            let spans = || self.spans.iter().filter(|span| span.is_of(key));
            edited.is_named |= spans().any(|span| number == span.new + span.reserved)
                || spans().any(|span| number == span.new);
            let Some(new) = spans().find_map(|span| span.replaced(number)) else {
                continue;
            };
            edited.is_named = true;
            if !is_of_stack(key) && self.kept.contains(&number) {
                edited.ambiguous.push((*key).to_owned());
            } else {
                *value = new.into();
            }
        }
        edited
    }

    /// The new length in place of the old one in these keys, and of every other one that a shorter model no
    /// longer reaches: they are bounded by the length of the model. What bounds nothing stays.
    pub(super) fn edit_bounded(&self, config: &mut Map<String, Value>, keys: &[&str]) {
        self.edit(config, keys);
        for key in keys {
            let Some(value) = config.get_mut(*key) else {
                continue;
            };
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
            let number = number.filter(|number| *number < UNBOUNDED);
            let is_beyond = |span: &&Span, number| span.new < span.old && span.new < number;
            let span = number.and_then(|n| self.spans.iter().find(|span| is_beyond(span, n)));
            if let Some(span) = span {
                *value = span.new.into();
            }
        }
    }

    /// The lengths of several graphs of one model.
    pub(super) fn union<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut union = Self::default();
        for lengths in all {
            lengths.spans.iter().for_each(|span| union.add(*span));
            union.kept.extend(&lengths.kept);
        }
        union
    }

    /// What a user should know of lengths in a config whose objects were edited so.
    pub(super) fn warnings(&self, edited: &[Edited]) -> Vec<String> {
        let mut warnings = vec![];
        for key in edited.iter().flat_map(|edited| &edited.ambiguous) {
            let warning = format!(
                "{key} of the config stays: it is the length of both stacks, and one has another now"
            );
            add(&mut warnings, warning);
        }
        if let Some(span) = self.spans.first()
            && !edited.iter().any(|edited| edited.is_named)
        {
            let mut old: Vec<String> = vec![];
            for span in &self.spans {
                add(&mut old, span.old.to_string());
            }
            let (old, new) = (old.join(" or "), span.new);
            warnings.push(format!(
                "no key of the config is the old length ({old}), so none is the new one ({new})"
            ));
        }
        warnings
    }
}

/// Whether a key is the length of an encoder or of a decoder.
pub(super) fn is_of_stack(key: &str) -> bool {
    [ENCODER, DECODER].iter().flatten().any(|own| *own == key)
}

/// Adds a sentence, once.
pub(super) fn add(sentences: &mut Vec<String>, sentence: String) {
    if !sentences.contains(&sentence) {
        sentences.push(sentence);
    }
}

/// The length at which a graph ends.
pub(super) fn shortest(limits: &[Limit]) -> Option<usize> {
    let of_graph = limits.iter().filter(|l| l.cause != LimitCause::Runtime);
    of_graph.map(|limit| limit.length).min()
}
