//! The loops of messages, tagged and untagged.

mod bandwidth;
mod many_to_one;
mod message_api;
mod pingpong;

