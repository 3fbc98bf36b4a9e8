//! `Listener` and `Connection`: the Unix sockets over which endpoints connect and exchange packets.
//!
//! An endpoint listens on a Unix socket in the abstract namespace, whose name the kernel frees when
//! the process ends; or, with `FI_SHM_DIR`, in a directory. A peer connects when it posts its first
//! message, and sends a hello with the descriptors of its region and its doorbell. The response is
//! a hello, too. The connection stays open while both endpoints are open: a closed connection means
//! that the peer is disconnected.
//!
//! The kernel supplies the user and the process of a peer (`SO_PEERCRED`).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno as Sys;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    accept4, bind, connect, getsockopt, listen, recv, recvmsg, sendmsg, shutdown, socket, sockopt,
};
use selvedge::{Errno, Error, PeerCredentials};
use selvedge_kit::close_on_fork::CloseOnFork;
use selvedge_kit::rate_limit::warn_limited;

use crate::connect::directory::{Claim, Directory};
use crate::connect::discard::{DeferredClose, discard};
use crate::connect::liveness::{is_ready, pidfd};
use crate::connect::packet::{self, Packet};
use crate::connect::user;
use crate::peers::name::Name;

/// The maximum number of packets that one poll of the sockets receives from a peer.
pub(crate) const PACKETS_PER_POLL: usize = 16;
/// A number larger than the number of packets that a socket can hold: each takes some 700 bytes of
/// the socket's buffer, which an unprivileged process can enlarge to twice `net.core.wmem_max`.
pub(crate) const PACKETS_MAX: usize = 1024;
/// Length of the accept backlog.
pub(crate) const BACKLOG: i32 = 4096;
/// The maximum number of descriptors of a packet (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;
/// The maximum number of packets that are read from a refused connection.
const REFUSED_READS: usize = 16;
/// The number of descriptors that a new peer takes: its socket and pidfd, the outbox to it, its
/// region and doorbell, and a chunk of keys.
const DESCRIPTORS_PER_PEER: usize = 6;

/// The longest time that a process between fork and exec may hold a copy of a closed endpoint's
/// socket.
const BIND_TIMEOUT: Duration = Duration::from_millis(50);

/// The listening socket of an endpoint, bound to its name.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: CloseOnFork,
    /// The lock on the name, if the name is a file.
    claim: Option<Claim>,
}

impl Listener {
    /// Binds the name, in `directory` if there is one.
    pub(crate) fn bind(name: &Name, directory: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = directory else {
            return Self::listen_at(name, &abstract_addr(name)?, None);
        };
        let directory = Directory::open(path)?;
        let claim = Claim::take(&directory, name)?;
        Self::listen_in(&directory, name, claim)
    }

    /// Binds the name again after its files were removed.
    pub(crate) fn bind_again(&mut self, name: &Name, path: &Path) -> Result<Self, Error> {
        let directory = Directory::open(path)?;
        let claim = match self.claim.take_if(|claim| claim.is_in(&directory)) {
            Some(claim) => claim,
            None => Claim::take(&directory, name)?,
        };
        Self::listen_in(&directory, name, claim)
    }

    fn listen_in(directory: &Directory, name: &Name, claim: Claim) -> Result<Self, Error> {
        claim.clear(directory)?;
        Self::listen_at(name, &directory.addr(name)?, Some(claim))
    }

    fn listen_at(name: &Name, addr: &UnixAddr, claim: Option<Claim>) -> Result<Self, Error> {
        let action = || format!("listening as {}", name.to_address());
        let fd = packet_socket().map_err(|e| failed(action(), e))?;
        bind_with_retry(&fd, addr).map_err(|e| failed(action(), e))?;
        let backlog = Backlog::new(BACKLOG).map_err(|e| failed(action(), e))?;
        listen(&fd, backlog).map_err(|e| failed(action(), e))?;
        let fd = CloseOnFork::new(fd);
        Ok(Self { fd, claim })
    }

    /// Whether the name's files were removed, so that no peer can connect. For a listener in a
    /// directory.
    pub(crate) fn has_lost_name(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| !claim.is_whole())
    }

    /// Accepts the next connection in the backlog. A connection of another user is closed without
    /// being read.
    ///
    /// # Errors
    /// The system's error; the connection stays in the backlog.
    pub(crate) fn accept(&self) -> Result<AcceptOutcome, Error> {
        match self.accept_any() {
            Ok(connection) => match connection.check_user() {
                Ok(()) => Ok(AcceptOutcome::Connection(connection)),
                Err(error) => {
                    warn_limited("selvedge::shm::ep_ctrl", format_args!("{error}"));
                    connection.discard();
                    Ok(AcceptOutcome::Rejected)
                }
            },
            Err(Sys::EAGAIN) => Ok(AcceptOutcome::Empty),
            Err(Sys::EINTR | Sys::ECONNABORTED) => Ok(AcceptOutcome::Rejected),
            Err(error) => Err(failed("accepting a peer".into(), error)),
        }
    }

    fn accept_any(&self) -> nix::Result<Connection> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        accept4(self.fd.as_raw_fd(), flags).map(|fd| Connection::new(take_ownership(fd)))
    }

    /// Checks that enough descriptors are free for another connection and the memory that its peer
    /// sends. A connection that is accepted with too few of them is lost with its packets.
    ///
    /// # Errors
    /// [`Errno::MFile`] or [`Errno::NFile`] when too few are free.
    pub(crate) fn check_descriptors(&self) -> Result<(), Error> {
        let action = "new peers wait until descriptors are free (RLIMIT_NOFILE)";
        match descriptor_shortage(self.fd.fd(), DESCRIPTORS_PER_PEER) {
            Some(cause) => Err(failed(action.into(), cause)),
            None => Ok(()),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.fd()
    }
}

/// The outcome of [`Listener::accept`].
#[derive(Debug)]
pub(crate) enum AcceptOutcome {
    /// The backlog is empty.
    Empty,
    /// A connection of another user, which was closed, or one that its peer had aborted.
    Rejected,
    /// A connection of this process's user.
    Connection(Connection),
}

impl Listener {
    /// Closes the listener and returns the connections of this process's user in the backlog.
    pub(crate) fn into_connections(self) -> Vec<Connection> {
        self.drain().collect()
    }

    /// Stops listening and accepts the whole backlog, without connections of other users.
    fn drain(&self) -> impl Iterator<Item = Connection> {
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
        let accepted = (0..=BACKLOG).map_while(|_| self.accept_any().ok());
        accepted.filter_map(|connection| match connection.check_user() {
            Ok(()) => Some(connection),
            Err(_) => {
                connection.discard();
                None
            }
        })
    }
}

/// Accepts the backlog before the listener is closed: the waiting packets may carry descriptors,
/// and closing the listener would close them in this thread.
impl Drop for Listener {
    fn drop(&mut self) {
        self.drain().for_each(drop);
    }
}

/// Binds an address that another endpoint may have released a moment ago: a child process of
/// another thread has a copy of the old socket until the child calls exec.
fn bind_with_retry(fd: &OwnedFd, addr: &UnixAddr) -> nix::Result<()> {
    let start = Instant::now();
    loop {
        match bind(fd.as_raw_fd(), addr) {
            Err(Sys::EADDRINUSE) if start.elapsed() < BIND_TIMEOUT => {
                sleep(Duration::from_millis(1))
            }
            result => return result,
        }
    }
}

/// A connection between two endpoints.
#[derive(Debug)]
pub(crate) struct Connection {
    fd: Arc<CloseOnFork>,
    /// Whether the peer's hello was received over this connection.
    has_received_hello: bool,
    /// The `epoll(7)` descriptor and the token under which the socket is watched.
    watched: Option<(Arc<Epoll>, u64)>,
    /// Whether the socket is removed from the `epoll(7)` descriptor at present.
    is_unwatched: bool,
    /// Whether the peer was refused.
    is_refused: bool,
    /// Defers the last close of the socket, because descriptors may wait in its queue. Dropped
    /// after `fd`.
    deferred_close: Option<DeferredClose>,
}

/// Sends packets over a connection from any thread while the connection is open.
#[derive(Debug)]
pub(crate) struct PacketSender(Weak<CloseOnFork>);

/// The reason why an attempt to connect failed.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// No endpoint has the name, or the endpoint has just closed. A later attempt may succeed.
    NotYet(&'static str),
    /// The endpoint exists and has no room for another connection now. A later attempt may succeed.
    Busy(&'static str),
    /// The endpoint has refused the connection, with its reason.
    Refused(Error),
    /// The endpoint violates the protocol, or does not have the authorization key.
    Untrusted(Error),
    /// A system error that a later attempt does not avoid.
    Failed(Error),
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ConnectError> for Errno {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NotYet(_) | ConnectError::Busy(_) => Self::ConnReset,
            ConnectError::Refused(_) | ConnectError::Untrusted(_) => Self::ConnRefused,
            ConnectError::Failed(error) => error.errno(),
        }
    }
}

impl Connection {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Arc::new(CloseOnFork::new(fd)),
            has_received_hello: false,
            watched: None,
            is_unwatched: false,
            is_refused: false,
            deferred_close: None,
        }
    }

    /// Connects to the endpoint called `name`, in `directory` if there is one.
    pub(crate) fn connect(name: &Name, directory: Option<&Path>) -> Result<Self, ConnectError> {
        let action = || format!("connecting to {}", name.to_address());
        let directory = directory.map(Directory::open).transpose()?;
        let addr = match &directory {
            Some(directory) => directory.addr(name)?,
            None => abstract_addr(name)?,
        };
        let fd = packet_socket().map_err(|e| failed(action(), e))?;
        match connect(fd.as_raw_fd(), &addr) {
            Ok(()) => {}
            Err(Sys::ECONNREFUSED | Sys::ENOENT) => {
                return Err(ConnectError::NotYet("no endpoint has this name"));
            }
            Err(Sys::EAGAIN | Sys::EINTR) => {
                return Err(ConnectError::Busy("its accept backlog is full"));
            }
            Err(error) => return Err(failed(action(), error).into()),
        }
        let connection = Self::new(fd);
        if let Err(error) = connection.check_user() {
            connection.discard();
            return Err(error.into());
        }
        Ok(connection)
    }

    /// A pidfd of the peer, which becomes readable when the process exits.
    pub(crate) fn peer_pidfd(&self) -> Option<OwnedFd> {
        getsockopt(self.fd.fd(), sockopt::PeerPidfd)
            .ok()
            .or_else(|| pidfd(self.peer_pid()))
    }

    /// The peer's process, from the kernel; 0 when its pid namespace is not visible.
    pub(crate) fn peer_pid(&self) -> i32 {
        getsockopt(self.fd.fd(), sockopt::PeerCredentials).map_or(0, |c| c.pid())
    }

    /// The peer's process with its user and group, from the kernel.
    pub(crate) fn peer_credentials(&self) -> nix::Result<PeerCredentials> {
        let peer = getsockopt(self.fd.fd(), sockopt::PeerCredentials)?;
        Ok(PeerCredentials::Process {
            pid: peer.pid(),
            uid: peer.uid(),
            gid: peer.gid(),
        })
    }

    fn check_user(&self) -> Result<(), Error> {
        let peer = getsockopt(self.fd.fd(), sockopt::PeerCredentials)
            .map_err(|e| failed("reading the peer's credentials".into(), e))?;
        user::check(peer.uid())
    }

    /// Watches the socket with `epoll` under `token`, in place of an earlier token.
    pub(crate) fn watch(&mut self, epoll: &Arc<Epoll>, token: u64) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        let mut event = EpollEvent::new(flags, token);
        match self.watched {
            Some(_) if !self.is_unwatched => epoll.modify(&*self.fd, &mut event)?,
            _ => epoll.add(&*self.fd, event)?,
        }
        self.watched = Some((Arc::clone(epoll), token));
        self.is_unwatched = false;
        Ok(())
    }

    /// Stops watching the socket until [`Self::rewatch`] or [`Self::watch`]. A packet that cannot
    /// be received yet would otherwise wake a parked thread again and again.
    pub(crate) fn unwatch(&mut self) {
        if let Some((epoll, _)) = &self.watched
            && !self.is_unwatched
        {
            self.is_unwatched = epoll.delete(&*self.fd).is_ok();
        }
    }

    /// Watches the socket again.
    ///
    /// # Errors
    /// The system's error; the socket stays unwatched.
    pub(crate) fn rewatch(&mut self) -> nix::Result<()> {
        match &self.watched {
            Some((epoll, token)) if self.is_unwatched => {
                let (epoll, token) = (Arc::clone(epoll), *token);
                self.watch(&epoll, token)
            }
            _ => Ok(()),
        }
    }

    /// Closes a connection to a refused process without reading its packets.
    fn discard(mut self) {
        self.is_refused = true;
    }

    /// Sends a packet with its descriptors.
    pub(crate) fn send(
        &self,
        packet: &packet::Bytes,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ConnectError> {
        send(&self.fd, packet, fds)
    }

    /// An object that sends packets without owning the connection.
    pub(crate) fn packet_sender(&self) -> PacketSender {
        PacketSender(Arc::downgrade(&self.fd))
    }

    /// Sends a refusal with the reason, if the peer still reads, and closes the connection.
    pub(crate) fn refuse(mut self, error: &Error) {
        self.is_refused = true;
        // Waiting packets are read first: if a socket is closed with unread packets, the kernel
        // discards the packets that were sent over it. A peer that sends more than the protocol
        // needs before a response gets no refusal.
        let is_more = |raw| matches!(raw, Ok(Some(RawPacket { len: 1.., .. })));
        (0..REFUSED_READS).any(|_| !is_more(self.receive_raw()));
        if self.send(&packet::encode_refusal(error), &[]).is_err() {
            log::debug!(
                target: "selvedge::shm::ep_ctrl",
                "a refusal was not sent: the connection is closed"
            );
        }
    }

    /// Receives the next packet. A packet stays in the queue while too few descriptors are free for
    /// those that it carries.
    ///
    /// # Errors
    /// [`Errno::Proto`] for a malformed packet, [`Errno::MFile`] when the packet carries more
    /// descriptors than this process can open.
    pub(crate) fn receive(&mut self) -> Result<ReceiveOutcome, Error> {
        let Some(count) = self.peek_descriptor_count()? else {
            return Ok(ReceiveOutcome::Empty);
        };
        if count > 0 && descriptor_shortage(self.fd.fd(), count).is_some() {
            return Ok(ReceiveOutcome::NoDescriptors);
        }
        let Some(raw) = self.receive_raw()? else {
            return Ok(ReceiveOutcome::Empty);
        };
        if raw.len == 0 {
            return Ok(ReceiveOutcome::Closed);
        }
        let packet = packet::parse(&raw.bytes[..raw.len], raw.fds)?;
        let is_hello = matches!(packet, Packet::Hello(_));
        if is_hello && std::mem::replace(&mut self.has_received_hello, true) {
            return Err(Error::new(
                Errno::Proto,
                "a peer sends two hellos over one connection",
            ));
        }
        Ok(ReceiveOutcome::Packet(Box::new(packet)))
    }

    /// Returns the number of descriptors of the next packet without receiving it; `None` if no
    /// packet waits. If a packet is received without room for its descriptors, they are lost.
    fn peek_descriptor_count(&self) -> Result<Option<usize>, Error> {
        let mut head = [0; packet::HEAD];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        loop {
            match recv(self.fd.as_raw_fd(), &mut head, flags) {
                Ok(len) => return Ok(Some(packet::descriptor_count(&head[..len]))),
                Err(Sys::EAGAIN) => return Ok(None),
                Err(Sys::EINTR) => {}
                // The kernel reports the reset once, ahead of packets that the peer had sent
                // before.
                Err(Sys::ECONNRESET) => return Ok(Some(0)),
                Err(error) => return Err(failed("receiving from a peer".into(), error)),
            }
        }
    }

    fn receive_raw(&self) -> Result<Option<RawPacket>, Error> {
        let mut bytes = [0; packet::SIZE];
        let mut space = nix::cmsg_space!([i32; MAX_FDS]);
        let mut was_reset = false;
        let (len, is_truncated) = loop {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
            let fd = self.fd.as_raw_fd();
            match recvmsg::<UnixAddr>(fd, &mut iov, Some(&mut space), flags) {
                Ok(message) => {
                    break (message.bytes, message.flags.contains(MsgFlags::MSG_CTRUNC));
                }
                Err(Sys::EAGAIN) => return Ok(None),
                Err(Sys::EINTR) => {}
                // The kernel reports the reset once, ahead of packets that the peer had sent
                // before.
                Err(Sys::ECONNRESET) if !was_reset => was_reset = true,
                Err(Sys::ECONNRESET) => break (0, false),
                Err(error) => return Err(failed("receiving from a peer".into(), error)),
            }
        };
        let fds = require_memory_files(take_descriptors(&space))?;
        if is_truncated {
            let reason = "too few descriptors are free for a peer's memory (RLIMIT_NOFILE)";
            return Err(Error::new(Errno::MFile, reason));
        }
        Ok(Some(RawPacket { len, bytes, fds }))
    }

    /// Whether the peer has closed the connection or died.
    pub(crate) fn has_ended(&self) -> bool {
        is_ready(self.fd.fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))
    }
}

/// Shuts the socket down, because a forked child may hold a copy of the descriptor. The child never
/// drops its copy of a connection: see the drop of `Endpoint`.
impl Drop for Connection {
    fn drop(&mut self) {
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
        // The kernel may keep the socket for a while, and `epoll(7)` would report it as ready all
        // the time.
        self.unwatch();
        self.watched = None;
        self.deferred_close = if self.is_refused {
            Some(DeferredClose::of_refused(&self.fd))
        } else {
            DeferredClose::of_peer(&self.fd)
        };
    }
}

impl PacketSender {
    /// Sends a packet with its descriptors; `None` when the connection is closed.
    pub(crate) fn send(
        &self,
        packet: &packet::Bytes,
        fds: &[BorrowedFd<'_>],
    ) -> Option<Result<(), ConnectError>> {
        self.0.upgrade().map(|fd| send(&fd, packet, fds))
    }

    /// Whether the connection is open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

fn send(
    socket: &CloseOnFork,
    packet: &packet::Bytes,
    fds: &[BorrowedFd<'_>],
) -> Result<(), ConnectError> {
    let iov = [IoSlice::new(packet)];
    let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &iov, rights, flags, None) {
            Ok(_) => return Ok(()),
            Err(Sys::EINTR) => {}
            Err(Sys::EPIPE | Sys::ECONNRESET | Sys::ENOTCONN) => {
                return Err(ConnectError::NotYet("the peer has closed or died"));
            }
            Err(Sys::EAGAIN | Sys::ETOOMANYREFS | Sys::ENOBUFS) => {
                return Err(ConnectError::Busy("the socket's queue is full"));
            }
            Err(error) => return Err(failed("sending to a peer".into(), error).into()),
        }
    }
}

/// A received packet that is not parsed yet. Its length is 0 when the peer has closed.
struct RawPacket {
    len: usize,
    bytes: packet::Bytes,
    fds: Vec<OwnedFd>,
}

/// The outcome of [`Connection::receive`].
#[derive(Debug)]
pub(crate) enum ReceiveOutcome {
    /// No packet waits.
    Empty,
    /// A packet.
    Packet(Box<Packet>),
    /// A packet waits until enough descriptors are free for those that it carries.
    NoDescriptors,
    /// The peer has closed the connection.
    Closed,
}

/// Takes ownership of the descriptors in a buffer for control messages, which was zero-filled
/// before the call. Only `SCM_RIGHTS` can have arrived. nix's own parser leaks the descriptors of a
/// truncated message.
fn take_descriptors(space: &[u8]) -> Vec<OwnedFd> {
    let header = size_of::<libc::cmsghdr>();
    // A header begins with the length of header and content.
    let len = space
        .first_chunk()
        .map_or(0, |len| usize::from_ne_bytes(*len));
    let content = space.get(header..len.min(space.len())).unwrap_or(&[]);
    let (fds, _) = content.as_chunks();
    fds.iter()
        .map(|fd| take_ownership(i32::from_ne_bytes(*fd)))
        .collect()
}

/// Returns the descriptors if all of them are memory files; otherwise discards them with
/// [`Errno::Proto`]. The last close of any other kind of file may block.
fn require_memory_files(fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Error> {
    let is_memory = |fd: &OwnedFd| fcntl(fd, FcntlArg::F_GET_SEALS).is_ok();
    if fds.iter().all(is_memory) {
        return Ok(fds);
    }
    discard(fds);
    let reason = "a peer's packet was refused: one of its descriptors is not a memory file";
    Err(Error::new(Errno::Proto, reason))
}

/// Tests for `count` free descriptors by duplicating `fd`. Returns the system's error if there are
/// too few, and `None` otherwise.
fn descriptor_shortage(fd: &OwnedFd, count: usize) -> Option<Sys> {
    let spare: Result<Vec<_>, _> = (0..count).map(|_| fd.try_clone()).collect();
    let cause = Sys::from_raw(spare.err()?.raw_os_error()?);
    matches!(cause, Sys::EMFILE | Sys::ENFILE).then_some(cause)
}

fn packet_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

fn abstract_addr(name: &Name) -> Result<UnixAddr, Error> {
    let path = format!("selvedge-shm/{}/{name}", user::effective_uid()?);
    UnixAddr::new_abstract(path.as_bytes())
        .map_err(|e| failed(format!("the address {}", name.to_address()), e))
}

fn take_ownership(fd: i32) -> OwnedFd {
    take_fd::take_ownership(fd)
}

#[expect(
    unsafe_code,
    reason = "the kernel has just created the descriptor for this process"
)]
mod take_fd {
    use super::{FromRawFd, OwnedFd};

    pub(super) fn take_ownership(fd: i32) -> OwnedFd {
        // SAFETY: called only with descriptors that accept(2) or recvmsg(2) has just created for
        // this process.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }
}

fn failed(action: String, cause: Sys) -> Error {
    Error::new(Errno::from_raw(cause as i32), action).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no other run of the tests uses.
    fn unique_name(prefix: &str) -> Name {
        Name::plain(&format!("{prefix}-{}", std::process::id())).unwrap()
    }

    #[test]
    fn a_name_held_by_a_process_being_started_is_bound_after_its_exec() {
        let name = unique_name("held");
        let listener = Listener::bind(&name, None).unwrap();
        let copy = listener.fd().try_clone().unwrap();
        drop(listener);
        let child = std::thread::spawn(move || {
            sleep(BIND_TIMEOUT / 5);
            drop(copy);
        });
        let second = Listener::bind(&name, None);
        child.join().unwrap();
        assert!(second.is_ok(), "{second:?}");
    }

    #[test]
    fn a_refused_connection_with_a_full_queue_is_read_a_limited_number_of_times() {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (local, remote) =
            nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
                .unwrap();
        let unread = local.try_clone().unwrap();
        let send_wake = || {
            send(
                &CloseOnFork::new(remote.try_clone().unwrap()),
                &packet::encode_wake(),
                &[],
            )
        };
        let count = (0..100).take_while(|_| send_wake().is_ok()).count();
        Connection::new(local).refuse(&Error::new(Errno::Proto, "nonsense"));
        let receive = || recv(unread.as_raw_fd(), &mut [0; 1], MsgFlags::empty());
        let unread = (0..count)
            .take_while(|_| matches!(receive(), Ok(1)))
            .count();
        assert_eq!(count - unread, REFUSED_READS);
    }

    #[test]
    fn a_name_in_use_is_refused() {
        let name = unique_name("taken");
        let _listener = Listener::bind(&name, None).unwrap();
        let error = Listener::bind(&name, None).unwrap_err();
        assert_eq!(error.errno(), Errno::AddrInUse);
    }
}
