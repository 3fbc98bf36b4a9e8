//! What tests that hold for every provider are run with.

use crate::side::Side;

/// Two sides, for each way of joining them.
pub(crate) fn pairs() -> Vec<[Side; 2]> {
    vec![[Side::new(), Side::new()]]
}

/// What errors call a side.
pub(crate) fn shown(side: &Side) -> String {
    side.addr().to_string()
}
