//! Whole models: the head, the graph, the functions.

use prost::Message;

use super::cursor::Cursor;
use super::graph::info;
use crate::error::Result;
use crate::field::{function, model as field};
use crate::proto::{FunctionProto, ModelProto, OperatorSetIdProto};
use crate::wire::put_bytes;

/// The encoded model.
pub(super) fn encode(text: &str) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(text);
    let mut out = cursor.head()?.encode_to_vec();
    put_bytes(field::GRAPH, &cursor.graph(0)?, &mut out);
    while !cursor.is_at_end() {
        put_bytes(field::FUNCTION, &cursor.function()?, &mut out);
    }
    Ok(out)
}

impl Cursor<'_> {
    /// `<key: value, …>` before the graph; may be missing.
    fn head(&mut self) -> Result<ModelProto> {
        let mut model = ModelProto::default();
        self.keys(|this, key| {
            match key {
                "ir_version" => model.ir_version = Some(this.int()?),
                "opset_import" => model.opset_import.extend(this.opsets()?),
                "producer_name" => model.producer_name = Some(this.string()?.into_owned()),
                "producer_version" => model.producer_version = Some(this.string()?.into_owned()),
                "domain" => model.domain = Some(this.string()?.into_owned()),
                "model_version" => model.model_version = Some(this.int()?),
                "doc_string" => model.doc_string = Some(this.string()?.into_owned()),
                "metadata_props" => {
                    this.expect(b'[')?;
                    if !this.eat(b']') {
                        model.metadata_props.extend(this.entries()?);
                        this.expect(b']')?;
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(model)
    }

    /// Calls `read` with each key to read its value; it returns whether it knows the key.
    fn keys(&mut self, mut read: impl FnMut(&mut Self, &str) -> Result<bool>) -> Result<()> {
        if !self.eat(b'<') {
            return Ok(());
        }
        loop {
            self.peek();
            let start = *self;
            let key = self.identifier()?;
            self.expect(b':')?;
            if !read(self, key)? {
                return Err(start.error(format!("unknown key {key}")));
            }
            if !self.eat(b',') {
                return self.expect(b'>');
            }
        }
    }

    /// `["domain" : version, …]`
    fn opsets(&mut self) -> Result<Vec<OperatorSetIdProto>> {
        let mut found = vec![];
        self.expect(b'[')?;
        if self.eat(b']') {
            return Ok(found);
        }
        loop {
            let domain = self.string()?.into_owned();
            self.expect(b':')?;
            found.push(OperatorSetIdProto {
                domain: Some(domain),
                version: Some(self.int()?),
            });
            if !self.eat(b',') {
                self.expect(b']')?;
                return Ok(found);
            }
        }
    }

    /// The encoded function from its head to its closing brace.
    fn function(&mut self) -> Result<Vec<u8>> {
        let mut head = FunctionProto::default();
        self.keys(|this, key| {
            match key {
                "opset_import" => head.opset_import.extend(this.opsets()?),
                "doc_string" => head.doc_string = Some(this.string()?.into_owned()),
                "domain" => head.domain = Some(this.string()?.into_owned()),
                "overload" => head.overload = Some(this.string()?.into_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let mut out = head.encode_to_vec();
        put_bytes(function::NAME, self.name()?.as_bytes(), &mut out);
        if self.eat(b'<') {
            loop {
                let name = self.name()?;
                match self.peek() {
                    b':' | b'=' => {
                        let attribute = self.attribute(&name, 0)?;
                        put_bytes(function::ATTRIBUTE_PROTO, &attribute, &mut out);
                    }
                    _ => put_bytes(function::ATTRIBUTE, name.as_bytes(), &mut out),
                }
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'>')?;
        }
        self.ports(function::INPUT, &mut out)?;
        self.arrow()?;
        self.ports(function::OUTPUT, &mut out)?;
        if self.eat(b'<') && !self.eat(b'>') {
            loop {
                let (name, ty) = self.value()?;
                put_bytes(function::VALUE_INFO, &info(&name, ty.as_ref()), &mut out);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'>')?;
        }
        self.nodes(function::NODE, 0, &mut out)?;
        Ok(out)
    }

    /// Inputs or outputs of a function: names as fields `number`, and types where they are given.
    fn ports(&mut self, number: u32, out: &mut Vec<u8>) -> Result<()> {
        self.expect(b'(')?;
        if self.eat(b')') {
            return Ok(());
        }
        loop {
            let (name, ty) = self.value()?;
            put_bytes(number, name.as_bytes(), out);
            if ty.is_some() {
                put_bytes(function::VALUE_INFO, &info(&name, ty.as_ref()), out);
            }
            if !self.eat(b',') {
                return self.expect(b')');
            }
        }
    }
}
