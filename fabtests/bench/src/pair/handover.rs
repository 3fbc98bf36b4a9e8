//! Transfer of descriptors to a child process over the control socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, bail};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Number of descriptors: shared memory, TCP socket, Unix socket, local eventfd and the peer's
/// eventfd.
pub(super) const COUNT: usize = 5;

/// Sends descriptors to a child process.
///
/// # Errors
/// The system's error.
pub(super) fn send(control: &UnixStream, fds: &[BorrowedFd<'_>; COUNT]) -> anyhow::Result<()> {
    let fds = fds.map(|fd| fd.as_raw_fd());
    let rights = [ControlMessage::ScmRights(&fds)];
    let mark = [IoSlice::new(MARK)];
    sendmsg::<()>(control.as_raw_fd(), &mark, &rights, MsgFlags::empty(), None)
        .context("cannot send descriptors")?;
    Ok(())
}

/// Receives the descriptors of a [`send`].
///
/// # Errors
/// The system's error, or an error for a message with other contents.
pub(super) fn receive(control: &UnixStream) -> anyhow::Result<[OwnedFd; COUNT]> {
    let mut mark = [0; MARK.len()];
    let mut space = nix::cmsg_space!([RawFd; COUNT]);
    let mut iov = [IoSliceMut::new(&mut mark)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(control.as_raw_fd(), &mut iov, Some(&mut space), flags)
        .context("cannot receive descriptors")?;
    for cmsg in message
        .cmsgs()
        .context("the control message with the descriptors was truncated")?
    {
        if let ControlMessageOwned::ScmRights(fds) = cmsg {
            let owned: Vec<_> = fds.into_iter().map(into_owned_fd).collect();
            let count = owned.len();
            return owned
                .try_into()
                .map_err(|_| anyhow::anyhow!("received {count} descriptors, not {COUNT}"));
        }
    }
    bail!("received no descriptors over the control socket")
}

#[expect(unsafe_code, reason = "the kernel hands descriptors over as numbers")]
fn into_owned_fd(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just opened the descriptor for this process, and no other code uses
    // it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The bytes that carry the descriptors: a message needs at least one.
const MARK: &[u8] = b"\n";
