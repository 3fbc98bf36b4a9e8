//! How threads and tasks wait for a hub.

mod parker;
#[cfg(feature = "tokio")]
mod tokio_driver;
mod waiting;
mod waits;

pub(super) use self::parker::Parker;
pub(super) use self::waiting::Waiting;
