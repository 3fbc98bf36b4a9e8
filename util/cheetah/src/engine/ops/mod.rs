//! Operations between contexts: puts, gets, invocations and special memory.

mod get;
mod invoke;
pub(crate) mod op;
mod post;
mod put;
mod special;
