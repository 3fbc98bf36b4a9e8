//! Lent messages: which messages travel by reference, when they return to their senders, and what
//! a view shows after its sender or receiver has ended.

mod common;
mod ends;
mod matching;
mod protocols;
mod sharing;
