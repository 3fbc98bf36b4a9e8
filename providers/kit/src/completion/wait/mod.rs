//! Blocking waits at a queue or counter: a thread polls for a while, then parks until it is woken.
//!
//! A waiting thread polls first, because the awaited event is often about to happen, and then parks
//! in the kernel. Before it parks, every attached endpoint must promise to wake it
//! ([`crate::cq::Progress::arm`]), and every push from then on calls `WaitObject::wake`. How peers
//! wake an endpoint is the provider's part.

mod epoll_set;
mod policy;
mod spin;
mod spin_hint;
mod wait_object;
mod waiters;
mod waiting;

pub use super::progress::ArmOutcome;
pub use policy::PollPolicy;
pub(crate) use spin::{LONG_GAP, SHARED_GAP};
pub use spin::{SPIN, Spin, Spinning};
pub use spin_hint::SpinHint;
pub(crate) use wait_object::WaitObject;
pub use waiters::Waiters;
pub(crate) use waiting::WaitCondition;
