//! The searches for a law, one after the other.

/// What a search looks for. The first in which a law fits ends the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// Frequencies of some pairs, where the slower ones of the head are 0. The samples contain those
    /// that rotate.
    Resting,
    /// Geometric frequencies that do not start at 1.
    Geometric,
    /// Other frequencies that start at 1, by the parameters that most models have.
    Usual,
    /// The same for more bases θ than the frequencies show.
    Widened,
    /// The same by a ramp that is not rounded, where the factor on cos and sin speaks for it.
    Unrounded,
    /// Other frequencies that start at 1, by any parameters.
    Unusual,
}
