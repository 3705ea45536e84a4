//! The attention sites that a request names.

use crate::attention::Site;
use crate::detect::Found;
use crate::error::{Refusal, RewriteError};
use crate::request::Request;

/// The sites of a request: self-attention, of the stack and the layers that it names, in rising
/// order.
///
/// # Errors
/// When the model has no attention, or lacks the stack or a layer that is named.
pub(crate) fn chosen(found: &Found, request: &Request) -> Result<Vec<usize>, RewriteError> {
    let all = &found.attention;
    if all.is_empty() {
        return Err(Refusal::no_site("the model has no attention to work on").into());
    }
    let own = |site: &Site| {
        let stack = request.stack;
        stack.is_none_or(|stack| site.place.stack == Some(stack))
    };
    let own: Vec<usize> = (0..all.len())
        .filter(|i| !all[*i].cross && own(&all[*i]) && !found.has_no_positions(*i))
        .collect();
    if own.is_empty() && !found.latent.is_empty() {
        let why = "attention is by learned queries alone, which have no positions, and the encodings of what they \
                   attend to are not supported yet";
        return Err(Refusal::no_site(why).into());
    }
    if let (true, Some(stack)) = (own.is_empty(), request.stack) {
        let why = if all.iter().any(|s| s.place.stack.is_some()) {
            format!("the model has no self-attention in its {stack}")
        } else {
            format!("the model has one stack; remove `stack` {stack}")
        };
        return Err(Refusal::invalid(why).into());
    }
    if let Some(layers) = &request.layers {
        let layer = |i: &usize| all[*i].place.layer;
        let last = own.iter().map(layer).max().unwrap_or(0);
        if let Some(layer) = layers.beyond(last + 1) {
            let why = format!("`layers` names layer {layer}, and the last one is {last}");
            return Err(Refusal::invalid(why).into());
        }
    }
    let named = |i: &usize| request.names(&all[*i]);
    Ok(own.into_iter().filter(named).collect())
}
