//! Plain types that every interface uses: errors, flags, addresses, and descriptions of memory.

mod addr;
mod credentials;
mod errno;
mod error;
mod flags;
mod iov;
pub(crate) mod names;

pub use addr::{AddrFormat, Address, FiAddr};
pub use credentials::PeerCredentials;
pub use errno::{Errno, Result};
pub use error::Error;
pub use flags::{Caps, CompletionFlags, InfoFlags, Mode, MrAccess, MrMode, MsgOrder, OpFlags};
pub use iov::{Context, Desc, Iov, IovMut};
