//! Messages, requests and responses between processes, over shared memory and TCP.
//!
//! A server listens at addresses; clients connect to one of them. The same program runs over
//! shared memory (`shm://NAME`) on one machine and over TCP (`tcp://HOST:PORT`) between machines. A
//! list such as `shm://kv,tcp://192.0.2.7:7000` stands for both.
//!
//! A server that responds to requests, and its client:
//!
//! ```no_run
//! use selvedge_service::{Error, Event, Listener, connect};
//!
//! fn serve() -> Result<(), Error> {
//!     let listener = Listener::bind("shm://upper")?;
//!     loop {
//!         if let Event::Request(request) = listener.event().wait()? {
//!             request.respond(&request.to_ascii_uppercase());
//!         }
//!     }
//! }
//!
//! fn ask() -> Result<(), Error> {
//!     let connection = connect("shm://upper").wait()?;
//!     let response = connection.request(b"hello").wait()?;
//!     assert_eq!(&*response, b"HELLO");
//!     Ok(())
//! }
//! ```
//!
//! - **Waiting.** Every operation is a future that also has a blocking form: `.await`, `.wait()`,
//!   `.wait_timeout(..)`. A waiting thread parks in the kernel. [`Options::spin`] has it poll first.
//! - **Executors.** With the feature `tokio`, futures work in any task of a tokio runtime. Without a
//!   runtime, [`run`] runs a future. Under any other executor, a
//!   [`Driver`] has a descriptor to wait for. The crate starts no thread.
//! - **Cancellation.** A dropped future has either done its work or none of it. A dropped request is
//!   cancelled: the server's [`Request::is_cancelled`] says so, and [`Listener::serve`] drops the
//!   handler's future.
//! - **Messages** arrive whole and in order, up to [`Options::max_message`]. The receiver allocates
//!   memory for a message of more than 4 KiB when the message is announced, and the transport stores
//!   the message there.
//! - **Backpressure.** A receiver keeps a bounded number of messages for its application
//!   ([`Options::window`]). The sender's further messages wait at the sender, and its `send` waits.
//! - **Failures.** The kernel reports the death of a peer: its connection ends with an [`End`], its
//!   requests fail, and an idle listener reports [`Event::Lost`].

#![deny(missing_docs)]

mod connection;
mod error;
mod executor;
mod hub;
mod machine;
mod message;
mod options;
mod port;
mod server;
mod topic;
mod wire;

pub use connection::{
    ByteStream, Connecting, Connection, Messages, Peer, Receiving, Response, Sending, connect,
    connect_with,
};
pub use error::{End, Error};
pub use executor::{Driver, run};
pub use message::Message;
pub use options::Options;
pub use selvedge::PeerCredentials;
pub use selvedge::owned::Plain;
pub use server::{Event, Listener, NextEvent, Request};
pub use topic::{
    NextPublication, Publication, PublicationMut, Publisher, Start, Subscriber, Subscribing,
    subscribe, subscribe_with,
};
