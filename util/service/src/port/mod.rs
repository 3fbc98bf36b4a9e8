//! `Port`: the endpoint of one transport, with its address vector and its memory.

mod address;
mod buffers;
mod discovery;
mod memory;
mod sends;
mod token;

pub(crate) use self::address::{Scheme, ServiceAddress};
pub(crate) use self::buffers::Buffers;
pub(crate) use self::memory::Memory;
pub(crate) use self::sends::Sends;
pub(crate) use self::token::{Key, Token};

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::owned::{Buf, Completions, Endpoint, Handle, SharedBuf, TryPostError};
use selvedge::{Address, AddressVector, Errno, FiAddr, PeerCredentials, TagMatch, av, cq, wait};

use self::discovery::Side;
use crate::message::{Frame, SMALL_FRAME_MAX};
use crate::wire::HEADER;
use crate::{Error, Message, Options};

/// The length of a receive for frames, in bytes: the longest frame.
const FRAME_LEN: usize = 4096;
/// The number of receives for frames of all peers.
const RECEIVES: usize = 64;
/// The number of operations that a listener can have outstanding: each connection has a receive
/// that reports its end.
const DEPTH: usize = 1 << 14;
/// The tag of the receives that fail when their peer ends. No frame has it.
const END_TAG: u64 = 1 << 62;
/// The bit of the tags of announced payloads. The lower bits are the announcement's number.
const BULK_TAG: u64 = 1 << 63;

/// The endpoint of one transport. The lock of a hub protects it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) scheme: Scheme,
    /// The name of the provider.
    provider: String,
    ep: Endpoint,
    av: Arc<dyn AddressVector>,
    memory: Arc<Memory>,
    inject_size: usize,
}

/// A failed post, with its buffer.
#[derive(Debug)]
pub(crate) struct PostError {
    pub(crate) errno: Errno,
    pub(crate) buf: Buf,
}

impl From<TryPostError> for PostError {
    fn from(TryPostError { errno, buf, .. }: TryPostError) -> Self {
        Self { errno, buf }
    }
}

impl Port {
    /// Opens the endpoint of a server at its address.
    ///
    /// # Errors
    /// [`Error::Address`] with the provider's reason.
    pub(crate) fn listen(local: &ServiceAddress, options: &Options) -> Result<Self, Error> {
        Self::open(Side::Listen(local), options)
    }

    /// Opens the endpoint of a client of the server at an address.
    ///
    /// # Errors
    /// [`Error::Transport`] with the provider's reason.
    pub(crate) fn connect(remote: &ServiceAddress, options: &Options) -> Result<Self, Error> {
        Self::open(Side::Connect(remote), options)
    }

    fn open(side: Side<'_>, options: &Options) -> Result<Self, Error> {
        let ServiceAddress {
            scheme, provider, ..
        } = side.address();
        let mut info = side.discover(options)?;
        // Each connection of a listener has a receive that reports its end.
        if matches!(side, Side::Listen(_)) && scheme.reports_peers() {
            info.rx_attr.size = info.rx_attr.size.max(DEPTH);
        }
        let failed = |error| side.failed(&error);
        let domain = info.open().map_err(failed)?;
        let av = domain.av(&av::Attr::default()).map_err(failed)?;
        let mut queue = cq::Attr::default();
        queue.wait_obj = wait::Object::Fd;
        // The hub polls before it waits, for as long as the options say.
        queue.spin_time = Some(Duration::ZERO);
        let ep = Endpoint::open_waiting(&*domain, &info, Arc::clone(&av), queue).map_err(failed)?;
        // Elsewhere, an injected frame may wait in this process, and nothing reports that it is
        // sent.
        let inject_size = match scheme {
            Scheme::Shm => info.tx_attr.inject_size,
            Scheme::Tcp | Scheme::Ofi => 0,
        };
        let copies_short_frames = inject_size >= SMALL_FRAME_MAX;
        let buffers = Buffers::new(domain);
        let port = Self {
            scheme: *scheme,
            provider: provider.clone(),
            ep,
            av,
            memory: Arc::new(Memory::new(*scheme, copies_short_frames, buffers)),
            inject_size,
        };
        for _ in 0..RECEIVES {
            port.receive_frame(None)?;
        }
        Ok(port)
    }

    /// The memory of messages at this port.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// The address that peers insert.
    pub(crate) fn address(&self) -> Result<Address, Error> {
        let address = self.ep.address();
        address.map_err(|errno| Error::operation("address of the endpoint", errno))
    }

    /// The address as a program writes it.
    ///
    /// # Errors
    /// As [`Self::address`].
    pub(crate) fn service_address(&self) -> Result<String, Error> {
        let address = self.address()?.to_string();
        Ok(match self.scheme {
            Scheme::Shm => address.replacen("fi_shm", "shm", 1),
            Scheme::Tcp => format!("tcp://{address}"),
            Scheme::Ofi => {
                let provider = self.provider.trim_end_matches(";ofi");
                format!("ofi://{address}/{provider}")
            }
        })
    }

    /// Inserts the address of a peer.
    pub(crate) fn insert(&self, address: &Address) -> Result<FiAddr, Error> {
        self.av.insert_one(address).map_err(Error::transport)
    }

    /// The facts about a connected peer that the kernel or a certificate authority vouches for.
    pub(crate) fn identity(&self, peer: FiAddr) -> Option<PeerCredentials> {
        let credentials = self.ep.peer_credentials(peer);
        credentials
            .inspect_err(|errno| log::debug!("nothing vouches for {peer:?}: {errno}"))
            .ok()
    }

    /// Removes a peer.
    pub(crate) fn remove(&self, peer: FiAddr) {
        if let Err(errno) = self.av.remove(&[peer]) {
            log::debug!("{peer:?} cannot be removed: {errno}");
        }
    }

    /// A message of `len` bytes: zeros, or bytes of earlier messages.
    pub(crate) fn message(&self, len: usize) -> Result<Message, Error> {
        self.memory.message(len)
    }

    /// A message with a copy of `bytes`.
    pub(crate) fn message_from(&self, bytes: &[u8]) -> Result<Message, Error> {
        self.memory.message_from(bytes)
    }

    /// A buffer for a header and a payload of `len` bytes.
    pub(crate) fn take(&self, len: usize) -> Result<Buf, Error> {
        self.memory.take(HEADER.saturating_add(len))
    }

    /// The frame in a buffer of a pool.
    pub(crate) fn pooled(&self, frame: Frame) -> Result<Buf, Error> {
        self.memory.pooled(frame)
    }

    /// The frame in memory from which [`Self::send_frame`] sends.
    pub(crate) fn sendable(&self, frame: Frame) -> Result<Frame, Error> {
        self.memory.sendable(frame)
    }

    /// Posts a receive for the next frame of any peer, into a buffer of an earlier one if there is
    /// one.
    pub(crate) fn receive_frame(&self, spare: Option<Buf>) -> Result<(), Error> {
        let buf = match spare {
            Some(buf) => buf,
            None => self.memory.take(FRAME_LEN)?,
        };
        let posted = self.ep.recv(buf, FiAddr::UNSPEC, Token::Frame.context());
        let failed = |error: TryPostError| Error::operation("receive", error.errno);
        posted.map(drop).map_err(failed)
    }

    /// Posts a receive that fails when `peer` ends, if the transport reports that.
    pub(crate) fn watch(&self, peer: FiAddr, key: Key) -> Result<Option<Handle>, Error> {
        if !self.scheme.reports_peers() {
            return Ok(None);
        }
        let buf = self.memory.take(1)?;
        let context = Token::End(key).context();
        let posted = self.ep.trecv(buf, peer, TagMatch::exact(END_TAG), context);
        let posted = posted.map_err(|error| Error::operation("receive", error.errno))?;
        Ok(Some(posted))
    }

    /// Posts a receive for the announced payload with this number.
    pub(crate) fn receive_bulk(
        &self,
        buf: Buf,
        peer: FiAddr,
        key: Key,
        number: u64,
    ) -> Result<Handle, PostError> {
        let tag = TagMatch::exact(bulk_tag(number));
        let posted = self.ep.trecv(buf, peer, tag, Token::Bulk(key).context());
        posted.map_err(PostError::from)
    }

    /// Sends an announced payload.
    pub(crate) fn send_bulk(
        &self,
        buf: Buf,
        peer: FiAddr,
        key: Key,
        number: u64,
        slot: u32,
    ) -> Result<(), PostError> {
        let context = Token::Sent(key, slot).context();
        let posted = self.ep.tsend(buf, peer, bulk_tag(number), context);
        posted.map(drop).map_err(PostError::from)
    }

    /// Posts a receive for the announced payload with this number, which the peer may lend: see
    /// [`crate::message::Body::received`].
    pub(crate) fn receive_lent(
        &self,
        buf: Buf,
        peer: FiAddr,
        key: Key,
        number: u64,
    ) -> Result<Handle, PostError> {
        let (tag, context) = (
            TagMatch::exact(bulk_tag(number)),
            Token::Bulk(key).context(),
        );
        let posted = self.ep.trecv_lent(buf, peer, tag, context);
        posted.map_err(PostError::from)
    }

    /// Lends an announced payload. A transport that cannot lend sends it.
    pub(crate) fn lend_bulk(
        &self,
        payload: &SharedBuf,
        peer: FiAddr,
        key: Key,
        number: u64,
    ) -> Result<(), Errno> {
        let (tag, context) = (bulk_tag(number), Token::Lent(key).context());
        let posted = self.ep.tlend_shared(payload, peer, tag, context);
        posted.map(drop).map_err(|error| error.errno)
    }

    /// Sends a frame. Returns whether there will be a completion: a short frame has none.
    ///
    /// # Errors
    /// The error returns the frame.
    pub(crate) fn send_frame(
        &self,
        frame: Frame,
        peer: FiAddr,
        key: Key,
        slot: u32,
    ) -> Result<bool, (Errno, Frame)> {
        match frame {
            Frame::Pooled(buf) if buf.len() > self.inject_size => {
                let posted = self.send(buf, peer, Token::Sent(key, slot));
                let failed = |PostError { errno, buf }| (errno, Frame::Pooled(buf));
                posted.map(|()| true).map_err(failed)
            }
            frame => match self.ep.inject(frame.bytes(), peer, None) {
                Ok(()) => Ok(false),
                Err(errno) => Err((errno, frame)),
            },
        }
    }

    /// Sends a frame whose result is reported as `token`.
    pub(crate) fn send(&self, buf: Buf, peer: FiAddr, token: Token) -> Result<(), PostError> {
        let posted = self.ep.send(buf, peer, token.context());
        posted.map(drop).map_err(PostError::from)
    }

    /// Cancels a receive. It is too late for one that has completed.
    pub(crate) fn cancel(&self, handle: Handle) {
        let _ = self.ep.cancel(handle);
    }

    /// Drives progress, and appends completions to `done`.
    pub(crate) fn poll(&self, done: &mut Completions) -> Result<usize, Error> {
        let polled = self.ep.poll(done);
        polled.map_err(|errno| Error::operation("completion queue", errno))
    }

    /// Whether a thread may block on [`Self::wait_fd`]. If not, poll again.
    pub(crate) fn try_wait(&self) -> Result<bool, Error> {
        match self.ep.try_wait() {
            Ok(()) => Ok(true),
            Err(Errno::Again) => Ok(false),
            Err(errno) => Err(Error::operation("wait", errno)),
        }
    }

    /// The descriptor that is readable when completions may have arrived.
    pub(crate) fn wait_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.ep.wait_fd().map_err(Error::transport)
    }
}

/// The number of the announcement whose payload has this tag.
pub(crate) const fn bulk_number(tag: u64) -> u64 {
    tag & !BULK_TAG
}

const fn bulk_tag(number: u64) -> u64 {
    BULK_TAG | (number & !(END_TAG | BULK_TAG))
}
