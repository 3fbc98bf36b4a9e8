//! The sides with which provider-independent tests run.

use crate::endpoint::CopyingEndpoint;

/// Pairs of sides, one for each kind of connection.
pub(crate) fn pairs() -> Vec<[CopyingEndpoint; 2]> {
    vec![[CopyingEndpoint::new(), CopyingEndpoint::new()]]
}

/// Returns the name of a side in error texts.
pub(crate) fn name_in_errors(side: &CopyingEndpoint) -> String {
    side.addr().to_string()
}
