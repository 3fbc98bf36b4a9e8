//! Tests of messages and receives.

pub(super) mod datagrams;
pub(super) mod messages;
pub(super) mod pressure;
pub(super) mod receives;
pub(super) mod tagged;
