//! Sockets, lists of memory segments for one system call ([`vecs`]), and TLS sessions ([`tls`]).

mod stream;
pub(crate) mod tls;
pub(crate) mod vecs;

pub(crate) use stream::{
    BoundSocket, Socket, SocketOptions, bytes_sent_by_thread, is_not_ready, listen_at,
};
#[cfg(test)]
pub(crate) use stream::{call_count, count_call};
