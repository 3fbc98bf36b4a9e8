//! The sides with which provider-independent tests run.

use crate::side::Side;

/// Pairs of sides, one for each kind of connection.
pub(crate) fn pairs() -> Vec<[Side; 2]> {
    vec![[Side::new(), Side::new()]]
}

/// The name of a side in error texts.
pub(crate) fn shown(side: &Side) -> String {
    side.addr().to_string()
}
