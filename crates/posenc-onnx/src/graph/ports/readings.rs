//! Other readings of inputs whose declared shapes or uses leave them open.

use posenc_ir::Dim;

use super::port::Reading;
use super::symbols::{Axis, symbols};
use super::{Port, Ports, Role};

impl Ports {
    /// The same inputs with other readings of their open dimensions.
    pub(crate) fn others(&self) -> Vec<Self> {
        let tied = self.symbols.values().any(|axis| *axis == Axis::Encoder);
        let short_mask = self.ports.iter().any(|p| self.is_short_mask(p));
        let readings = [(tied, false), (false, short_mask), (tied, short_mask)];
        let mut others: Vec<Self> = vec![];
        for (tied, short_mask) in readings {
            let reading = Reading {
                tied,
                short_mask,
                ..self.reading
            };
            let known = |p: &Self| p.reading == reading;
            if !known(self) && !others.iter().any(known) {
                others.push(Self {
                    reading,
                    ..self.clone()
                });
            }
        }
        others
    }

    /// The same inputs with so many sequences in a batch; `None` where there are as many anyway.
    pub(crate) fn of_batch(&self, batch: usize) -> Option<Self> {
        let mut fixed = self.clone();
        fixed.reading.batch = Some(batch);
        (self.fixed_batch() != Some(batch)).then_some(fixed)
    }

    /// The same inputs with tokens along the first axis, where any may have them there.
    pub(crate) fn turned(&self) -> Option<Self> {
        let mut turned = self.clone();
        for port in &mut turned.ports {
            let rank = port.dims.len();
            port.turned = match port.role {
                Role::Tokens | Role::TokenTypes | Role::Positions => rank == 2,
                Role::Content => rank == 2 || rank == 3,
                _ => false,
            };
        }
        turned.symbols = symbols(&turned.ports, &turned.fixed);
        turned
            .ports
            .iter()
            .any(|port| port.turned)
            .then_some(turned)
    }

    /// The same inputs where numbers that are compared with places are positions of new tokens and no lengths of
    /// sequences, where any may be.
    pub(crate) fn of_places(&self) -> Option<Self> {
        let mut placed = self.clone();
        let is_open = |port: &Port| match &port.dims[..] {
            [Dim::Symbol(s)] => !self.symbols.contains_key(s),
            dims => dims == [Dim::Unknown],
        };
        let mut any = false;
        for port in &mut placed.ports {
            if port.role == Role::Counts && is_open(port) {
                port.role = Role::Positions;
                any = true;
            }
        }
        any.then_some(placed)
    }

    /// The same inputs with so many samples of sound beside ids, where there is sound of an open length.
    pub(crate) fn of_samples(&self, samples: usize) -> Option<Self> {
        let is_open = |dim: &Dim| match dim {
            Dim::Known(_) => false,
            Dim::Symbol(name) => self.symbols.get(name) != Some(&Axis::Batch),
            Dim::Unknown => true,
        };
        let is_sound = |port: &&Port| {
            port.role == Role::Content
                && port.dtype.is_float()
                && matches!(&port.dims[..], [_, last] if is_open(last))
        };
        let sound: Vec<&Port> = self.ports.iter().filter(is_sound).collect();
        let has_ids = self.ports.iter().any(|port| port.role == Role::Tokens);
        (has_ids && !sound.is_empty()).then(|| {
            let mut heard = self.clone();
            let axes = sound.iter().map(|port| ((port.value, 1), samples));
            heard.fixed.extend(axes);
            heard
        })
    }

    /// Whether a mask is declared as long as the new tokens, though tokens are cached.
    pub(super) fn is_short_mask(&self, port: &Port) -> bool {
        let sequence =
            |d: &Dim| matches!(d, Dim::Symbol(s) if self.symbols.get(s) == Some(&Axis::Sequence));
        port.role == Role::Padding && self.has_past() && port.dims.last().is_some_and(sequence)
    }
}
