//! BMI, the Buffered Message Interface of the Parallel Virtual File System, on the fabric.
//!
//! BMI carries messages between clients and servers of a parallel file system. A client sends a
//! request that the server did not expect; from then on both post sends and receives that match by
//! peer and tag. Every operation is posted and tested for later. Messages are whole, ordered and
//! reliable; there are no connections to open.
//!
//! | module | contents |
//! |---|---|
//! | [`Bmi`] | an instance, opened by `BMI_initialize`, with the application's interface |
//! | [`method`] | the traits that a transport implements; [`fabric`] has the methods over Selvedge |
//! | [`support`] | building blocks of methods: queues, ids, logging |
//! | [`process`] | the one instance of a process, reference-counted as by `BMI_initialize` |
//!
//! A buffer that is sent or received moves into the operation and comes back with its completion
//! ([`Buffer`]). The C API posts addresses instead ([`Bmi::post_send_raw`] and the other `_raw`
//! functions).
//!
//! # Examples
//!
//! A server and its client in one process:
//!
//! ```
//! use std::time::Duration;
//!
//! use selvedge_bmi::{Bmi, Config, Post, Posted};
//!
//! let server = Bmi::initialize(Config::server("shm://NULL:13334"))?;
//! let client = Bmi::initialize(Config::client())?;
//! let context = client.open_context()?;
//! let peer = client.addr_lookup("shm://localhost:13334")?;
//! let sent = client.post_sendunexpected(Post::new(peer, b"read file 7".to_vec(), 7, context), 0)?;
//!
//! let mut requests = Vec::new();
//! while requests.is_empty() {
//!     server.testunexpected(1, 0, Duration::from_millis(100), |m| requests.push(m))?;
//! }
//! assert_eq!((&*requests[0].buffer, requests[0].tag), (&b"read file 7"[..], 7));
//! if let Posted::Pending(id) = sent {
//!     while client.wait(id, context)?.is_none() {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod code;
mod control;
pub mod fabric;
mod ids;
mod memory;
pub mod method;
mod owned;
pub mod process;
pub mod support;
mod url;

pub use code::{Code, Error, Result};
pub use control::queues::{Completion, MethodQueues, Unexpected};
pub use control::{Bmi, Config, Limit, Post, Posted, WAIT, transports};
pub use ids::{Addr, CONTEXTS, ContextId, METHODS, OpId, OpKey};
pub use memory::{Buffer, Memory};
pub use method::{Method, Module};
pub use owned::{Buffers, PostError};
pub use url::{MAX_ADDR_LEN, Url};
