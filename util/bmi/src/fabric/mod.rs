//! The method over Selvedge: one endpoint of any provider.
//!
//! | BMI | the fabric |
//! |---|---|
//! | expected message | tagged message; its receive names peer and tag, with no ignored bits |
//! | unexpected message | untagged message into multi-receive buffers; tag and class are its data |
//! | peer | index in the address vector; an unknown sender is inserted when its message arrives |
//! | short message, immediate completion | injected message, or a completion that is available when the post returns |
//! | peer failure | error of a receive that names the peer |
//!
//! The method is called under the lock of its method instance. The domain is therefore opened with
//! `Threading::Domain` and takes no locks of its own.

mod endpoint;
mod method;
mod names;
mod open;
mod peers;
mod post;
mod progress;
mod unexpected;
mod wire;

pub use open::modules;
