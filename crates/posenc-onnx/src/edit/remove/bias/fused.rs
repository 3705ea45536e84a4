//! Biases of fused operators: an input that is left out, or becomes the mask alone.

use posenc_ir::{Attr, Emitter, Use, ValueId};

use super::Biases;
use crate::attention::Site;
use crate::edit::remove::bias::splitter::MaskPart;
use crate::error::RewriteError;

impl Biases<'_> {
    /// Takes out what is bias of an input of the operator; whether anything was.
    pub(crate) fn fused(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        entry: Use,
        value: ValueId,
    ) -> Result<bool, RewriteError> {
        let context = self.context;
        if !context.dtype(value).is_float() {
            return Ok(false);
        }
        let Some(left) = self.splitter.mask_part(out, value, 1.0)? else {
            self.leave_out(out, site, entry)?;
            return Ok(true);
        };
        if left.value == value {
            return Ok(false);
        }
        if entry.node != site.node {
            let why = "a mask is joined with the bias that is gated here";
            return Err(context.refuse(entry.node, why));
        }
        let key = (site.scope, value);
        let mask = match self.fitted.get(&key) {
            Some(mask) => *mask,
            None => self.fit(out, site, value, left)?,
        };
        self.fitted.insert(key, mask);
        out.redirect_use(value, entry, mask)?;
        Ok(true)
    }

    /// Writes the operator anew without the input that the bias comes in by.
    fn leave_out(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        entry: Use,
    ) -> Result<(), RewriteError> {
        let context = self.context;
        let graph = context.graph();
        let node = graph.node(site.node);
        // A bias that content gates enters through the operator that gates it.
        let slot = match entry.node == site.node {
            true => Some(entry.slot()),
            false => {
                let gated = graph.node(entry.node).output(0);
                (0..node.inputs().len()).find(|slot| gated.is_some() && node.input(*slot) == gated)
            }
        };
        let Some(slot) = slot else {
            return Err(context.refuse(entry.node, "its bias is used elsewhere"));
        };
        let mut inputs = node.inputs().to_vec();
        inputs[slot] = None;
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        out.set_scope(node.scope());
        let made = out.copy(site.node, &inputs, &[])?;
        let pairs = node.outputs().iter().flatten();
        for (old, new) in pairs.zip(made.into_iter().flatten()) {
            out.redirect(*old, new)?;
        }
        Ok(())
    }

    /// The mask in the rank that the operator was given, and with its queries and keys: runtimes
    /// broadcast it along sequences and heads only.
    fn fit(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        old: ValueId,
        left: MaskPart,
    ) -> Result<ValueId, RewriteError> {
        let context = self.context;
        out.set_scope(site.scope);
        let dims = context.dims(old).unwrap_or_default();
        let missing = dims.len().saturating_sub(left.dims.len());
        let mut value = left.value;
        let mut kept = left.dims;
        if missing > 0 {
            let axes: Vec<i64> = (0..missing as i64).collect();
            value = context.opset().unsqueeze(out, value, &axes);
            kept.splice(0..0, vec![1; missing]);
        }
        let [.., rows, columns] = dims else {
            return Ok(value);
        };
        match kept[..] {
            [.., r, c] if r == *rows && c == *columns => Ok(value),
            [.., 1, c] if c == *columns => {
                let ones = vec![1; dims.len() - 2];
                let length = self.length(out, site);
                let (ones, one) = (out.ints("shape", &ones), out.ints("shape", &[1]));
                let shape = [ones, length, one];
                let shape = out.op_with("Concat", &shape, &[("axis", Attr::Int(0))]);
                Ok(out.op("Expand", &[value, shape]))
            }
            _ => {
                let why = "its mask is the same for all keys, which it does not take";
                Err(context.refuse(site.node, why))
            }
        }
    }

    /// The number of queries, `[1]`.
    fn length(&self, out: &mut Emitter<'_>, site: &Site) -> ValueId {
        let shape = out.op("Shape", &[site.query.value]);
        let axis = out.ints("axis", &[site.query.lane.sequence as i64]);
        out.op_with("Gather", &[shape, axis], &[("axis", Attr::Int(0))])
    }
}
