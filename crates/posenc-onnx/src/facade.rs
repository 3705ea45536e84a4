//! What a program uses: a model, a plan of what changes, the result.

mod model;
mod plan;
mod rescale;
mod resize;
mod rewritten;
mod swap;
mod verification;
mod verify;

pub use model::Model;
pub use plan::{Plan, PlannedEdit};
pub use rescale::Rescale;
pub use resize::Resize;
pub use rewritten::Rewritten;
pub use swap::{Alibi, Learned, RelativeBias, Rope, Shaw, Sinusoidal, Swap, T5Bias};
pub use verification::{Unverified, Verification};
pub use verify::verify;
