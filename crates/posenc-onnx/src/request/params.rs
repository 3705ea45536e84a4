//! Learned numbers from a safetensors file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posenc_ir::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};

use crate::attention::StackLayer;
use crate::error::{Refusal, RewriteError};
use crate::request::Tensors;
use posenc_encodings::kind::Stack;

/// The tensors of a file by name.
#[derive(Debug, Default)]
pub(crate) struct Params {
    path: String,
    tensors: BTreeMap<String, Arc<Tensor>>,
    /// Names that something has used.
    read: RefCell<BTreeSet<String>>,
    /// Names that were looked for and not found, with the first place that has none.
    missing: RefCell<BTreeMap<String, StackLayer>>,
}

impl Params {
    /// Reads a file.
    ///
    /// # Errors
    /// Where it is no safetensors file, or contains another type than float32, float16 and bfloat16.
    pub(crate) fn read(file: &Tensors) -> Result<Self, RewriteError> {
        let path = file.name().to_owned();
        let fail = |why: String| Refusal::invalid(format!("{path}: {why}"));
        let file = SafeTensors::deserialize(file.bytes())
            .map_err(|e| fail(format!("not a safetensors file: {e}")))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F16 => DType::F16,
                Dtype::BF16 => DType::BF16,
                other => {
                    let why = format!("{name} is {other:?}; give float32, float16 or bfloat16");
                    return Err(fail(why).into());
                }
            };
            let data = bytes::Bytes::copy_from_slice(view.data());
            let tensor = Tensor::new(dtype, view.shape().to_vec(), data)
                .ok_or_else(|| fail(format!("{name} is cut off")))?;
            let finite = |i| tensor.get_f64(i).is_some_and(f64::is_finite);
            if !(0..tensor.len()).all(finite) {
                return Err(fail(format!("{name} contains a number that is not finite")).into());
            }
            tensors.insert(name, Arc::new(tensor));
        }
        if tensors.is_empty() {
            return Err(fail("contains no tensor".to_owned()).into());
        }
        Ok(Self {
            path,
            tensors,
            read: RefCell::default(),
            missing: RefCell::default(),
        })
    }

    /// The tensor of a name for a site, with its full name, from the nearest to the most general
    /// place: that of its stack and layer, of its stack, of its layer, of all.
    pub(crate) fn at(&self, place: StackLayer, name: &str) -> Option<(String, Arc<Tensor>)> {
        let layer = format!("layers.{}.{name}", place.layer);
        let stack = place.stack.map(|stack| match stack {
            Stack::Encoder => "encoder",
            Stack::Decoder => "decoder",
        });
        let own = |rest: &str| stack.map(|stack| format!("{stack}.{rest}"));
        let names = [
            own(&layer),
            own(name),
            Some(layer.clone()),
            Some(name.to_owned()),
        ];
        let found = names.into_iter().flatten().find_map(|name| {
            let tensor = self.tensors.get(&name)?;
            Some((name, tensor.clone()))
        });
        match &found {
            Some((name, _)) => {
                self.read.borrow_mut().insert(name.clone());
            }
            None => {
                let mut missing = self.missing.borrow_mut();
                missing.entry(name.to_owned()).or_insert(place);
            }
        }
        found
    }

    /// Whether nothing of a file was used.
    pub(crate) fn is_unread(&self) -> bool {
        self.read.borrow().is_empty()
    }

    /// Refuses a file of which something is not used, as a misspelled name would not be, and one that gives a tensor for
    /// some of the layers only.
    ///
    /// # Errors
    /// With the first such name.
    pub(crate) fn check_use(&self) -> Result<(), RewriteError> {
        let path = &self.path;
        let read = self.read.borrow();
        if let Some(name) = self.tensors.keys().find(|name| !read.contains(*name)) {
            let why = format!(
                "{path}: no tensor named {name} is used by this encoding; remove or rename it"
            );
            return Err(Refusal::invalid(why).into());
        }
        for (name, place) in &*self.missing.borrow() {
            let ending = format!(".{name}");
            if let Some(given) = read.iter().find(|given| given.ends_with(&ending)) {
                let layer = place.layer;
                let of = place.stack.map(|stack| format!(" of the {stack}"));
                let of = of.unwrap_or_default();
                let why = format!(
                    "{path}: {given} is given, but layer {layer}{of} has no {name}; give it for all layers that are \
                     selected, or select fewer"
                );
                return Err(Refusal::invalid(why).into());
            }
        }
        Ok(())
    }
}
