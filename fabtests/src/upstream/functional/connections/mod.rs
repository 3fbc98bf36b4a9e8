//! Programs that check connection management.

pub(super) mod cm;
pub(super) mod sockets;
