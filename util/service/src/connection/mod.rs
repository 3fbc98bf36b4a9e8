//! Both sides of a connection: messages, requests and streams.

mod byte_stream;
mod client;
mod messages;
mod peer;
mod response;
mod sending;
#[cfg(any(feature = "bytemuck", feature = "postcard"))]
mod typed;

pub use self::byte_stream::ByteStream;
pub use self::client::{Connecting, Connection, Receiving, connect, connect_with};
pub use self::messages::Messages;
pub use self::peer::Peer;
pub use self::response::Response;
pub use self::sending::Sending;
