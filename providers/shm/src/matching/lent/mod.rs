//! Lent messages: the receiver reads a message in the sender's memory, and gives it back.
//!
//! The command of a lent message is the RTS of a message in special memory with a flag
//! ([`crate::transfers::iov`]). If the receive that matches it accepts lent messages, and this
//! process has mapped the block, [`handover`] reports the message without a copy. Otherwise the
//! message is received like any other. The response to the command gives the message back: after
//! the copy, or when the application drops its [`memory::LentMessage`].

pub(crate) mod handover;
pub(crate) mod memory;
pub(crate) mod views;
