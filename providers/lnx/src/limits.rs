//! The operation flags and the segments that endpoints support.

use selvedge::OpFlags;

/// The largest number of segments of a local iovec.
pub(crate) const IOV_LIMIT: usize = 4;

/// Flags that an endpoint may add to its sends by default.
pub(crate) const TX_DEFAULTS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT)
    .union(LEVELS)
    .union(CONFIRMED);
/// Flags that an endpoint may add to its receives by default.
pub(crate) const RX_DEFAULTS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MULTI_RECV);
/// Completion levels that a link implements.
pub(crate) const LEVELS: OpFlags = OpFlags::INJECT_COMPLETE.union(OpFlags::TRANSMIT_COMPLETE);
/// Completion levels that the peer has to confirm.
pub(crate) const CONFIRMED: OpFlags = OpFlags::DELIVERY_COMPLETE.union(OpFlags::MATCH_COMPLETE);

pub(crate) const TX_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE);
