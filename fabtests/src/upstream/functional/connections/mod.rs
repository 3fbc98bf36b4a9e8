//! Programs that check connection management.

mod cm;
mod sockets;

