//! The loops of messages, tagged and untagged.

pub(super) mod bandwidth;
pub(super) mod many_to_one;
pub(super) mod message_api;
pub(super) mod pingpong;
