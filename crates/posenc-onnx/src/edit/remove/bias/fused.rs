//! Removes biases of fused operators: the input is omitted, or replaced by the mask.

use posenc_ir::{Attr, Emitter, Use, ValueId};

use super::Biases;
use crate::attention::Site;
use crate::edit::redirect::redirect_outputs;
use crate::edit::remove::bias::splitter::MaskPart;
use crate::error::RewriteError;

impl Biases<'_> {
    /// Removes the bias from an input of the operator. Returns whether there was one.
    pub(crate) fn remove_fused(
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
        let Some(mask) = self.splitter.mask_part(out, value, 1.0)? else {
            self.omit_input(out, site, entry)?;
            return Ok(true);
        };
        if mask.value == value {
            return Ok(false);
        }
        let key = (site.scope, value);
        let fitted = match self.fitted.get(&key) {
            Some(fitted) => *fitted,
            None => self.fit(out, site, value, mask)?,
        };
        self.fitted.insert(key, fitted);
        out.redirect_use(value, entry, fitted)?;
        Ok(true)
    }

    /// Replaces the operator by one without the input for the bias.
    fn omit_input(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        entry: Use,
    ) -> Result<(), RewriteError> {
        let node = self.context.graph().node(site.node);
        let mut inputs = node.inputs().to_vec();
        inputs[entry.slot()] = None;
        while inputs.pop_if(|v| v.is_none()).is_some() {}
        out.set_scope(node.scope());
        let made = out.copy(site.node, &inputs, &[])?;
        Ok(redirect_outputs(out, node, &made)?)
    }

    /// The mask with the rank of `old` and with an axis of queries and one of keys: runtimes
    /// broadcast it along sequences and heads only.
    fn fit(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        old: ValueId,
        mask: MaskPart,
    ) -> Result<ValueId, RewriteError> {
        let context = self.context;
        out.set_scope(site.scope);
        let dims = context.dims(old).unwrap_or_default();
        let missing = dims.len().saturating_sub(mask.dims.len());
        let mut value = mask.value;
        let mut own = mask.dims;
        if missing > 0 {
            let axes: Vec<i64> = (0..missing as i64).collect();
            value = context.opset().unsqueeze(out, value, &axes);
            own.splice(0..0, vec![1; missing]);
        }
        let [.., rows, columns] = dims else {
            return Ok(value);
        };
        match own[..] {
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
                let why =
                    "cannot keep the mask: it has no axis of keys, which this operator requires";
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
