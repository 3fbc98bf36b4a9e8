//! The buffers of lent messages: at the sender a [`SharedBuf`], at the receiver a [`View`].

mod plain;
mod shared_buf;
mod view;

pub use plain::Plain;
pub use shared_buf::SharedBuf;
pub use view::View;
