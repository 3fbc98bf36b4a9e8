//! The rendezvous: how two endpoints meet before they share memory.
//!
//! An endpoint listens on a Unix socket in the abstract namespace, so its name dies with it,
//! however it dies; or, with `FI_SHM_DIR`, in a directory. Whoever has a first message for it connects and sends a hello together with the
//! descriptors of its region and its doorbell; the answer is a hello too. The socket stays open for
//! life: its end is the news that the peer is gone.
//!
//! Who the peer is (user, process) is asked of the kernel.

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
use selvedge::{Errno, Error};
use selvedge_kit::close_on_fork::CloseOnFork;
use selvedge_kit::rate_limit::warn_limited;

use crate::connect::directory::{Claim, Directory};
use crate::connect::discard::{Keeper, discard};
use crate::connect::liveness::{is_ready, pidfd};
use crate::connect::packet::{self, Packet};
use crate::connect::user;
use crate::peers::name::Name;

/// Packets of a peer that one poll of the sockets takes. Those behind them are news again.
pub(crate) const PACKETS: usize = 16;
/// More packets than wait in a socket: each takes some 700 bytes of its buffer, which a process without
/// privileges makes as large as `net.core.wmem_max` twice.
pub(crate) const PACKETS_AHEAD: usize = 1024;
/// Pending connections that the kernel keeps for us.
pub(crate) const BACKLOG: i32 = 4096;
/// Descriptors that the kernel lets come with a packet (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;
/// Packets that are read of a connection that is refused.
const UNREAD: usize = 16;
/// Descriptors of a new peer: its socket and its process, our memory for it, its memory and doorbell,
/// and a chunk of keys.
const DESCRIPTORS: usize = 6;

/// How long the name of an endpoint that is closed may be taken by a process that is being started.
const HELD: Duration = Duration::from_millis(50);

/// Where an endpoint can be found.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: CloseOnFork,
    /// The right to the name, where it is a file.
    claim: Option<Claim>,
}

impl Listener {
    /// Takes the name, in a directory if there is one.
    pub(crate) fn bind(name: &Name, directory: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = directory else {
            return Self::listen_at(name, &abstract_addr(name)?, None);
        };
        let directory = Directory::open(path)?;
        let claim = Claim::take(&directory, name)?;
        Self::listen_in(&directory, name, claim)
    }

    /// Takes the name again after its files were removed.
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
        let what = || format!("listening as {}", name.to_address());
        let fd = packet_socket().map_err(|e| failed(what(), e))?;
        bind_patiently(&fd, addr).map_err(|e| failed(what(), e))?;
        let backlog = Backlog::new(BACKLOG).map_err(|e| failed(what(), e))?;
        listen(&fd, backlog).map_err(|e| failed(what(), e))?;
        let fd = CloseOnFork::new(fd);
        Ok(Self { fd, claim })
    }

    /// Whether nobody can come any more because the name's files were removed; for one in a
    /// directory.
    pub(crate) fn is_lost(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| !claim.is_whole())
    }

    /// Takes the next connection that waits, and hangs up on one of another user: what that has sent
    /// is not read.
    ///
    /// # Errors
    /// The system's; the connection waits on.
    pub(crate) fn accept(&self) -> Result<Accepted, Error> {
        match self.accept_any() {
            Ok(link) => match link.check_user() {
                Ok(()) => Ok(Accepted::Link(link)),
                Err(error) => {
                    warn_limited("selvedge::shm::ep_ctrl", format_args!("{error}"));
                    link.discard();
                    Ok(Accepted::Stranger)
                }
            },
            Err(Sys::EAGAIN) => Ok(Accepted::Nothing),
            Err(Sys::EINTR | Sys::ECONNABORTED) => Ok(Accepted::Stranger),
            Err(error) => Err(failed("accepting a peer".into(), error)),
        }
    }

    fn accept_any(&self) -> nix::Result<Link> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        accept4(self.fd.as_raw_fd(), flags).map(|fd| Link::new(owned(fd)))
    }

    /// Whether there are descriptors for another connection and all that comes with it. One that is
    /// taken without them is lost, and what was sent over it.
    ///
    /// # Errors
    /// [`Errno::MFile`] when there are not.
    pub(crate) fn check_descriptors(&self) -> Result<(), Error> {
        let what = "new peers have to wait until there are descriptors for them";
        match shortage(self.fd.fd(), DESCRIPTORS) {
            Some(cause) => Err(failed(what.into(), cause)),
            None => Ok(()),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.fd()
    }
}

/// What [`Listener::accept`] found.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// No connection waits.
    Nothing,
    /// A connection of another user, which is over, or one that was over already.
    Stranger,
    /// A connection of our own user.
    Link(Link),
}

impl Listener {
    /// The connections of our own user that wait, when the listener is given up.
    pub(crate) fn into_links(self) -> Vec<Link> {
        self.drain().collect()
    }

    /// Takes what waits: from here on connecting fails. Strangers are turned away.
    fn drain(&self) -> impl Iterator<Item = Link> {
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
        let accepted = (0..=BACKLOG).map_while(|_| self.accept_any().ok());
        accepted.filter_map(|link| match link.check_user() {
            Ok(()) => Some(link),
            Err(_) => {
                link.discard();
                None
            }
        })
    }
}

/// Connections that were not taken may have brought descriptors, which closing the listener would
/// close, too.
impl Drop for Listener {
    fn drop(&mut self) {
        self.drain().for_each(drop);
    }
}

/// Takes an address that was given up a moment ago: whoever is just being started by another thread has
/// a copy of the old socket until it runs its own program.
fn bind_patiently(fd: &OwnedFd, addr: &UnixAddr) -> nix::Result<()> {
    let start = Instant::now();
    loop {
        match bind(fd.as_raw_fd(), addr) {
            Err(Sys::EADDRINUSE) if start.elapsed() < HELD => sleep(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

/// The socket between two endpoints.
#[derive(Debug)]
pub(crate) struct Link {
    fd: Arc<CloseOnFork>,
    /// Whether the peer's hello has come this way.
    has_heard_hello: bool,
    /// Where the socket is watched and under which token, if it is.
    watched: Option<(Arc<Epoll>, u64)>,
    /// Whether its news is not reported there at present.
    is_muted: bool,
    /// Whether the other process was refused.
    is_refused: bool,
    /// Keeps the socket while it is closed: descriptors may wait in its queue. Dropped after `fd`.
    keeper: Option<Keeper>,
}

/// Says things over a link from any thread, as long as the link is there.
#[derive(Debug)]
pub(crate) struct Speaker(Weak<CloseOnFork>);

/// Why a contact did not come about.
#[derive(Debug)]
pub(crate) enum ContactError {
    /// No endpoint has the name, or the endpoint that had it has just closed: worth another try.
    NotYet(&'static str),
    /// The endpoint exists and has no room for another connection now: worth another try.
    Busy(&'static str),
    /// The endpoint does not talk to us, and says why.
    Refused(Error),
    /// The endpoint does not keep to the rules, or does not have our authorization key.
    Untrusted(Error),
    /// Something that another try does not mend.
    Failed(Error),
}

impl From<Error> for ContactError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ContactError> for Errno {
    fn from(error: ContactError) -> Self {
        match error {
            ContactError::NotYet(_) | ContactError::Busy(_) => Self::ConnReset,
            ContactError::Refused(_) | ContactError::Untrusted(_) => Self::ConnRefused,
            ContactError::Failed(error) => error.errno(),
        }
    }
}

impl Link {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Arc::new(CloseOnFork::new(fd)),
            has_heard_hello: false,
            watched: None,
            is_muted: false,
            is_refused: false,
            keeper: None,
        }
    }

    /// Connects to the endpoint called `name`, in a directory if there is one.
    pub(crate) fn connect(name: &Name, directory: Option<&Path>) -> Result<Self, ContactError> {
        let what = || format!("connecting to {}", name.to_address());
        let directory = directory.map(Directory::open).transpose()?;
        let addr = match &directory {
            Some(directory) => directory.addr(name)?,
            None => abstract_addr(name)?,
        };
        let fd = packet_socket().map_err(|e| failed(what(), e))?;
        match connect(fd.as_raw_fd(), &addr) {
            Ok(()) => {}
            Err(Sys::ECONNREFUSED | Sys::ENOENT) => {
                return Err(ContactError::NotYet("no endpoint has this name"));
            }
            Err(Sys::EAGAIN | Sys::EINTR) => {
                return Err(ContactError::Busy("too many are connecting to it"));
            }
            Err(error) => return Err(failed(what(), error).into()),
        }
        let link = Self::new(fd);
        if let Err(error) = link.check_user() {
            link.discard();
            return Err(error.into());
        }
        Ok(link)
    }

    /// A descriptor that becomes readable when the peer's process dies.
    pub(crate) fn peer_pidfd(&self) -> Option<OwnedFd> {
        getsockopt(self.fd.fd(), sockopt::PeerPidfd)
            .ok()
            .or_else(|| pidfd(self.peer_pid()))
    }

    /// The peer's process, as the kernel knows it; 0 when it is in a namespace that we cannot see.
    pub(crate) fn peer_pid(&self) -> i32 {
        getsockopt(self.fd.fd(), sockopt::PeerCredentials).map_or(0, |c| c.pid())
    }

    fn check_user(&self) -> Result<(), Error> {
        let peer = getsockopt(self.fd.fd(), sockopt::PeerCredentials)
            .map_err(|e| failed("asking who the peer is".into(), e))?;
        user::check(peer.uid())
    }

    /// Reports the socket's news to `epoll` under `token`, in place of an earlier token.
    pub(crate) fn watch(&mut self, epoll: &Arc<Epoll>, token: u64) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        let mut event = EpollEvent::new(flags, token);
        match self.watched {
            Some(_) if !self.is_muted => epoll.modify(&*self.fd, &mut event)?,
            _ => epoll.add(&*self.fd, event)?,
        }
        self.watched = Some((Arc::clone(epoll), token));
        self.is_muted = false;
        Ok(())
    }

    /// Reports no news of the socket until [`Self::unmute`] or [`Self::watch`]: its next packet
    /// cannot be taken yet, and a thread that waits for news would find it again and again.
    pub(crate) fn mute(&mut self) {
        if let Some((epoll, _)) = &self.watched
            && !self.is_muted
        {
            self.is_muted = epoll.delete(&*self.fd).is_ok();
        }
    }

    /// Reports news of the socket again.
    ///
    /// # Errors
    /// The system's; it stays mute.
    pub(crate) fn unmute(&mut self) -> nix::Result<()> {
        match &self.watched {
            Some((epoll, token)) if self.is_muted => {
                let (epoll, token) = (Arc::clone(epoll), *token);
                self.watch(&epoll, token)
            }
            _ => Ok(()),
        }
    }

    /// Ends a connection to a process that was refused, and reads nothing of what that has sent.
    fn discard(mut self) {
        self.is_refused = true;
    }

    /// Sends a packet with its descriptors.
    pub(crate) fn send(
        &self,
        packet: &packet::Bytes,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ContactError> {
        send(&self.fd, packet, fds)
    }

    /// Who may send packets without having the link.
    pub(crate) fn speaker(&self) -> Speaker {
        Speaker(Arc::downgrade(&self.fd))
    }

    /// Says why there will be no contact, if the peer still listens, and ends it.
    pub(crate) fn refuse(mut self, error: &Error) {
        self.is_refused = true;
        // What was said is read first: a socket that is closed over unread packets takes back its
        // own last words. A peer that has said more than peers say before an answer gets none.
        let is_more = |raw| matches!(raw, Ok(Some(Raw { len: 1.., .. })));
        (0..UNREAD).any(|_| !is_more(self.receive_raw()));
        if self.send(&packet::encode_refusal(error), &[]).is_err() {
            log::debug!(target: "selvedge::shm::ep_ctrl", "nobody is left to be refused");
        }
    }

    /// What arrived next. A packet stays where it is while there are no descriptors to take what
    /// comes along.
    ///
    /// # Errors
    /// [`Errno::Proto`] for what makes no sense, [`Errno::MFile`] when more descriptors came along
    /// than there was room for.
    pub(crate) fn receive(&mut self) -> Result<Heard, Error> {
        let Some(count) = self.descriptors_ahead()? else {
            return Ok(Heard::Nothing);
        };
        if count > 0 && shortage(self.fd.fd(), count).is_some() {
            return Ok(Heard::Short);
        }
        let Some(raw) = self.receive_raw()? else {
            return Ok(Heard::Nothing);
        };
        if raw.len == 0 {
            return Ok(Heard::End);
        }
        let packet = packet::parse(&raw.bytes[..raw.len], raw.fds)?;
        let is_hello = matches!(packet, Packet::Hello(_));
        if is_hello && std::mem::replace(&mut self.has_heard_hello, true) {
            return Err(Error::new(Errno::Proto, "a peer says hello twice"));
        }
        Ok(Heard::Packet(Box::new(packet)))
    }

    /// How many descriptors come with the next packet, if there is one: the descriptors of a packet
    /// that is taken without room for them are lost.
    fn descriptors_ahead(&self) -> Result<Option<usize>, Error> {
        let mut head = [0; packet::HEAD];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        loop {
            match recv(self.fd.as_raw_fd(), &mut head, flags) {
                Ok(len) => return Ok(Some(packet::descriptors(&head[..len]))),
                Err(Sys::EAGAIN) => return Ok(None),
                Err(Sys::EINTR) => {}
                // Reported once, ahead of what the peer had said before.
                Err(Sys::ECONNRESET) => return Ok(Some(0)),
                Err(error) => return Err(failed("hearing from a peer".into(), error)),
            }
        }
    }

    fn receive_raw(&self) -> Result<Option<Raw>, Error> {
        let mut bytes = [0; packet::SIZE];
        let mut space = nix::cmsg_space!([i32; MAX_FDS]);
        let mut was_reset = false;
        let (len, is_short) = loop {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
            let fd = self.fd.as_raw_fd();
            match recvmsg::<UnixAddr>(fd, &mut iov, Some(&mut space), flags) {
                Ok(message) => {
                    break (message.bytes, message.flags.contains(MsgFlags::MSG_CTRUNC));
                }
                Err(Sys::EAGAIN) => return Ok(None),
                Err(Sys::EINTR) => {}
                // Reported once, ahead of what the peer had said before.
                Err(Sys::ECONNRESET) if !was_reset => was_reset = true,
                Err(Sys::ECONNRESET) => break (0, false),
                Err(error) => return Err(failed("hearing from a peer".into(), error)),
            }
        };
        let fds = memory_files(rights(&space))?;
        if is_short {
            let what = "no descriptors are left for a peer's memory";
            return Err(Error::new(Errno::MFile, what));
        }
        Ok(Some(Raw { len, bytes, fds }))
    }

    /// Whether the peer has closed its end or died.
    pub(crate) fn is_over(&self) -> bool {
        is_ready(self.fd.fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))
    }
}

/// Ends the connection for everybody: a child may hold a copy of the descriptor. (The child's copy of
/// a link is never dropped: see the end of `Endpoint`.)
impl Drop for Link {
    fn drop(&mut self) {
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
        // The kernel may keep the socket for a while, and it would have news without end.
        self.mute();
        self.watched = None;
        self.keeper = match self.is_refused {
            true => Some(Keeper::of_refused(&self.fd)),
            false => Keeper::of_peer(&self.fd),
        };
    }
}

impl Speaker {
    /// Sends a packet with its descriptors; `None` when the link is closed.
    pub(crate) fn send(
        &self,
        packet: &packet::Bytes,
        fds: &[BorrowedFd<'_>],
    ) -> Option<Result<(), ContactError>> {
        self.0.upgrade().map(|fd| send(&fd, packet, fds))
    }

    /// Whether the link is still there.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

fn send(
    socket: &CloseOnFork,
    packet: &packet::Bytes,
    fds: &[BorrowedFd<'_>],
) -> Result<(), ContactError> {
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
                return Err(ContactError::NotYet("it has just closed or died"));
            }
            Err(Sys::EAGAIN | Sys::ETOOMANYREFS | Sys::ENOBUFS) => {
                return Err(ContactError::Busy("too many greetings are on their way"));
            }
            Err(error) => return Err(failed("sending to a peer".into(), error).into()),
        }
    }
}

/// What arrived, not yet understood; nothing at the end.
struct Raw {
    len: usize,
    bytes: packet::Bytes,
    fds: Vec<OwnedFd>,
}

/// What [`Link::receive`] found.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A packet.
    Packet(Box<Packet>),
    /// A packet that waits until there are descriptors for what comes along.
    Short,
    /// The peer has closed its end.
    End,
}

/// Takes over the descriptors in a zero-filled space for control messages, in which only
/// `SCM_RIGHTS` can have arrived. nix's own reader forgets those that came when some did not.
fn rights(space: &[u8]) -> Vec<OwnedFd> {
    let header = size_of::<libc::cmsghdr>();
    // A header begins with the length of both.
    let len = space
        .first_chunk()
        .map_or(0, |len| usize::from_ne_bytes(*len));
    let content = space.get(header..len.min(space.len())).unwrap_or(&[]);
    let (fds, _) = content.as_chunks();
    fds.iter()
        .map(|fd| owned(i32::from_ne_bytes(*fd)))
        .collect()
}

/// What came along, if all of it is memory. The last close of anything else may block.
fn memory_files(fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Error> {
    let is_memory = |fd: &OwnedFd| fcntl(fd, FcntlArg::F_GET_SEALS).is_ok();
    if fds.iter().all(is_memory) {
        return Ok(fds);
    }
    discard(fds);
    let what = "a peer's packet was refused: a descriptor that came along is no memory file";
    Err(Error::new(Errno::Proto, what))
}

/// Why so many descriptors cannot be made, if that is a shortage of them; `any` is copied to see.
fn shortage(any: &OwnedFd, count: usize) -> Option<Sys> {
    let spare: Result<Vec<_>, _> = (0..count).map(|_| any.try_clone()).collect();
    let cause = Sys::from_raw(spare.err()?.raw_os_error()?);
    matches!(cause, Sys::EMFILE | Sys::ENFILE).then_some(cause)
}

fn packet_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

fn abstract_addr(name: &Name) -> Result<UnixAddr, Error> {
    let path = format!("selvedge-shm/{}/{name}", user::own()?);
    UnixAddr::new_abstract(path.as_bytes())
        .map_err(|e| failed(format!("the address {}", name.to_address()), e))
}

fn owned(fd: i32) -> OwnedFd {
    take_fd::owned(fd)
}

#[expect(unsafe_code, reason = "the kernel has just given the descriptor to us")]
mod take_fd {
    use super::{FromRawFd, OwnedFd};

    pub(super) fn owned(fd: i32) -> OwnedFd {
        // SAFETY: called only with descriptors that accept(2) or recvmsg(2) has just made for us.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }
}

fn failed(what: String, cause: Sys) -> Error {
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that no other run of the tests has.
    fn own_name(what: &str) -> Name {
        Name::plain(&format!("{what}-{}", std::process::id())).unwrap()
    }

    #[test]
    fn a_name_is_free_again_when_who_was_started_meanwhile_runs_its_own_program() {
        let name = own_name("held");
        let listener = Listener::bind(&name, None).unwrap();
        let copy = listener.fd().try_clone().unwrap();
        drop(listener);
        let child = std::thread::spawn(move || {
            sleep(HELD / 5);
            drop(copy);
        });
        let again = Listener::bind(&name, None);
        child.join().unwrap();
        assert!(again.is_ok(), "{again:?}");
    }

    #[test]
    fn a_connection_that_talks_without_end_is_read_a_little_when_it_is_refused() {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
                .unwrap();
        let unread = ours.try_clone().unwrap();
        let said = || {
            send(
                &CloseOnFork::new(theirs.try_clone().unwrap()),
                &packet::encode_wake(),
                &[],
            )
        };
        let count = (0..100).take_while(|_| said().is_ok()).count();
        Link::new(ours).refuse(&Error::new(Errno::Proto, "nonsense"));
        let left = || recv(unread.as_raw_fd(), &mut [0; 1], MsgFlags::empty());
        let left = (0..count).take_while(|_| matches!(left(), Ok(1))).count();
        assert_eq!(count - left, UNREAD);
    }

    #[test]
    fn a_name_that_somebody_has_stays_his() {
        let name = own_name("taken");
        let _listener = Listener::bind(&name, None).unwrap();
        let error = Listener::bind(&name, None).unwrap_err();
        assert_eq!(error.errno(), Errno::AddrInUse);
    }
}
