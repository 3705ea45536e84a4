//! The interface of the module of WebAssembly.

use std::collections::BTreeMap;
use std::panic;
use std::path::PathBuf;

use bytes::Bytes;
use posenc_cli::steps::Failure;
use wasm_bindgen::prelude::*;

use crate::model::{Opened, data_files};
use crate::options;
use crate::problem::problem;
use crate::rewrite::{Done, Given};

#[wasm_bindgen]
extern "C" {
    /// Given by the page: what a panic says. The module cannot be used afterwards.
    #[wasm_bindgen(js_namespace = globalThis, js_name = posencPanicked)]
    fn panicked(text: &str);
}

#[wasm_bindgen(start)]
fn start() {
    panic::set_hook(Box::new(|info| panicked(&info.to_string())));
}

/// What the form offers, as JSON.
#[wasm_bindgen]
pub fn options() -> String {
    options::options().to_string()
}

/// Files on their way into the memory of the module, piece by piece, so that each is there once.
#[wasm_bindgen]
#[derive(Debug, Default)]
pub struct Files {
    all: Vec<(String, Vec<u8>)>,
}

#[wasm_bindgen]
impl Files {
    /// None yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a file of this size.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn begin(&mut self, name: String, size: usize) -> Result<(), JsValue> {
        let mut bytes = vec![];
        let reserved = bytes.try_reserve_exact(size);
        reserved.map_err(|_| {
            let why = format!("{name}: there is no memory for {size} bytes");
            thrown(&Failure::usage(why).into())
        })?;
        self.all.push((name, bytes));
        Ok(())
    }

    /// The files that hold tensors of the first one, by their paths relative to it.
    pub fn data_files(&mut self) -> Vec<String> {
        let Some((_, first)) = self.all.first_mut() else {
            return vec![];
        };
        let bytes = Bytes::from(std::mem::take(first));
        let files = data_files(bytes.clone());
        // Nothing else holds them: they are not copied.
        *first = bytes.into();
        let names = files.iter().map(|path| path.display().to_string());
        names.collect()
    }

    /// Adds to the file that was begun last.
    pub fn push(&mut self, piece: &[u8]) {
        if let Some((_, bytes)) = self.all.last_mut() {
            bytes.extend_from_slice(piece);
        }
    }
}

/// A model, and the last result.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Work {
    opened: Opened,
    done: Option<Done>,
}

#[wasm_bindgen]
impl Work {
    /// Reads the first file as a model; the others may hold its tensors.
    ///
    /// # Errors
    /// As JSON: the exit code and the sentence of the command line.
    #[wasm_bindgen(constructor)]
    pub fn new(files: Files) -> Result<Self, JsValue> {
        let mut files = files.all.into_iter();
        let (name, bytes) = files.next().unwrap_or_default();
        let data = files.map(|(name, bytes)| (PathBuf::from(name), Bytes::from(bytes)));
        let data: BTreeMap<PathBuf, Bytes> = data.collect();
        let opened = Opened::read(&name, bytes, data).map_err(|e| thrown(&e))?;
        Ok(Self { opened, done: None })
    }

    /// What was found, as JSON.
    ///
    /// # Errors
    /// As [`Work::new`].
    pub fn inspect(&self) -> Result<String, JsValue> {
        let shown = self.opened.inspect().map_err(|e| thrown(&e))?;
        Ok(shown.to_string())
    }

    /// Rewrites the model as `options` say, a JSON object. `files` belong to the options of `names`.
    ///
    /// # Errors
    /// As [`Work::new`].
    pub fn rewrite(
        &mut self,
        options: &str,
        names: Vec<String>,
        files: Files,
    ) -> Result<String, JsValue> {
        self.done = None;
        let given = (names.into_iter().zip(files.all)).map(|(option, (name, bytes))| Given {
            option,
            name,
            bytes,
        });
        let done = self.opened.rewrite(options, given.collect());
        let done = done.map_err(|e| thrown(&e))?;
        let shown = done.shown.to_string();
        self.done = Some(done);
        Ok(shown)
    }

    /// The bytes of the result, once: they leave the memory of the module.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        self.done.as_mut()?.bytes.take()
    }

    /// The `config.json` of the result, where it was asked for.
    pub fn config(&self) -> Option<String> {
        self.done.as_ref()?.config.clone()
    }
}

fn thrown(error: &anyhow::Error) -> JsValue {
    problem(error).to_string().into()
}
