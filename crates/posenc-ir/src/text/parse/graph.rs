//! Graphs, bodies and their nodes.

use std::borrow::Cow;

use prost::Message;

use super::cursor::Cursor;
use crate::error::Result;
use crate::field::{graph as field, node};
use crate::graph::read::MAX_DEPTH;
use crate::proto::{TypeProto, ValueInfoProto};
use crate::wire::put_bytes;

impl<'a> Cursor<'a> {
    /// The encoded graph from its name to its closing brace.
    pub(super) fn graph(&mut self, depth: usize) -> Result<Vec<u8>> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("graphs are nested more than {MAX_DEPTH} deep")));
        }
        let mut out = vec![];
        put_bytes(field::NAME, self.name()?.as_bytes(), &mut out);
        if self.eat(b'(') {
            self.values(b')', Some(field::INPUT), field::INPUT, &mut out)?;
        }
        self.arrow()?;
        self.expect(b'(')?;
        self.values(b')', None, field::OUTPUT, &mut out)?;
        if self.eat(b'<') {
            self.values(b'>', Some(field::VALUE_INFO), field::VALUE_INFO, &mut out)?;
        }
        self.nodes(field::NODE, depth, &mut out)?;
        Ok(out)
    }

    /// Values up to the closing character, as fields `number`. With `initial`, values may have a
    /// payload and are initializers then; they are also inputs where it is the field of inputs.
    fn values(
        &mut self,
        close: u8,
        initial: Option<u32>,
        number: u32,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if self.eat(close) {
            return Ok(());
        }
        loop {
            let (name, ty) = self.value()?;
            let payload = initial.is_some() && self.eat(b'=');
            if !payload || initial == Some(field::INPUT) {
                put_bytes(number, &info(&name, ty.as_ref()), out);
            }
            if payload {
                let tensor = self.tensor(&ty.unwrap_or_default(), &name)?;
                put_bytes(field::INITIALIZER, &tensor, out);
            }
            if !self.eat(b',') {
                return self.expect(close);
            }
        }
    }

    /// A name, after its type where there is one.
    pub(super) fn value(&mut self) -> Result<(Cow<'a, str>, Option<TypeProto>)> {
        let ty = if self.is_type() {
            Some(self.type_proto()?)
        } else {
            None
        };
        Ok((self.name()?, ty))
    }

    /// The nodes between braces, as fields `number`.
    pub(super) fn nodes(&mut self, number: u32, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        self.expect(b'{')?;
        while !self.eat(b'}') {
            put_bytes(number, &self.node(depth)?, out);
        }
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        if self.eat(b'[') {
            if let Some(name) = self.name_if_any()? {
                put_bytes(node::NAME, name.as_bytes(), &mut out);
            }
            self.expect(b']')?;
        }
        self.names(node::OUTPUT, &mut out)?;
        self.expect(b'=')?;
        let mut op = self.word();
        let mut domain = String::new();
        while self.eat(b'.') {
            if !domain.is_empty() {
                domain.push('.');
            }
            domain.push_str(op);
            op = self.identifier()?;
        }
        put_bytes(node::OP, op.as_bytes(), &mut out);
        if !domain.is_empty() {
            put_bytes(node::DOMAIN, domain.as_bytes(), &mut out);
        }
        if self.eat(b':') {
            put_bytes(node::OVERLOAD, self.name()?.as_bytes(), &mut out);
        }
        let mut attributes = self.attributes(depth)?;
        self.expect(b'(')?;
        self.names(node::INPUT, &mut out)?;
        self.expect(b')')?;
        if attributes.is_empty() {
            attributes = self.attributes(depth)?;
        }
        for attribute in attributes {
            put_bytes(node::ATTRIBUTE, &attribute, &mut out);
        }
        Ok(out)
    }

    /// Names separated by commas, as fields `number`. A name that is missing before a comma is empty; a
    /// comma at the end is ignored.
    pub(super) fn names(&mut self, number: u32, out: &mut Vec<u8>) -> Result<()> {
        loop {
            match self.name_if_any()? {
                Some(name) => put_bytes(number, name.as_bytes(), out),
                None if self.peek() == b',' => put_bytes(number, b"", out),
                None => return Ok(()),
            }
            if !self.eat(b',') {
                return Ok(());
            }
        }
    }
}

/// An encoded `ValueInfoProto`.
pub(super) fn info(name: &str, ty: Option<&TypeProto>) -> Vec<u8> {
    let info = ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: ty.cloned(),
        ..Default::default()
    };
    info.encode_to_vec()
}
