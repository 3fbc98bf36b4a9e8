//! The order in which a turn of small accesses visits its lines.

/// Number of lines in a turn of small gets: too many for a prefetcher, and few enough for the
/// first-level cache of the process that writes them.
pub(crate) const LINES: usize = 256;
/// Distance between consecutive lines of a turn, in lines; coprime to [`LINES`].
pub(crate) const STRIDE: usize = 83;
