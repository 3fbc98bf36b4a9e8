//! The sides with which provider-independent tests run.

use crate::side::Side;

/// Pairs of sides, one for each kind of connection.
pub(crate) fn pairs() -> Vec<[Side; 2]> {
    vec![[Side::new(), Side::new()]]
}

/// Returns the name of a side in error texts.
pub(crate) fn name_in_errors(side: &Side) -> String {
    side.addr().to_string()
}
