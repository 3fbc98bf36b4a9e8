//! Programs that check messages and receives.

pub(super) mod cancel;
pub(super) mod completion_data;
pub(super) mod flood;
pub(super) mod greeting;
pub(super) mod inject;
pub(super) mod multi_recv;
pub(super) mod multicast;
pub(super) mod peek;
pub(super) mod unexpected;
