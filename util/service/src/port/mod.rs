//! `Port`: the endpoint of one transport, with its address vector and its buffers.

mod address;
mod buffers;
mod sends;
mod token;

pub(crate) use self::address::{Scheme, ServiceAddress};
pub(crate) use self::buffers::Buffers;
pub(crate) use self::sends::Sends;
pub(crate) use self::token::{Key, Token};

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use selvedge::owned::{Buf, Completions, Endpoint, Handle, SharedBuf, TryPostError};
use selvedge::{
    Address, AddressVector, Caps, Errno, FiAddr, Hints, PeerCredentials, TagMatch, av, cq, wait,
};

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

/// The endpoint of one transport.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) scheme: Scheme,
    ep: Endpoint,
    av: Arc<dyn AddressVector>,
    buffers: Mutex<Buffers>,
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
    /// Opens an endpoint at the address `local`, or at one that the provider chooses.
    ///
    /// # Errors
    /// [`Error::Transport`] with the provider's reason.
    pub(crate) fn open(
        scheme: Scheme,
        local: Option<&ServiceAddress>,
        options: &Options,
    ) -> Result<Self, Error> {
        let caps = Caps::MSG | Caps::TAGGED | Caps::TAGGED_DIRECTED_RECV;
        let hints = Hints::new()
            .provider(scheme.provider())
            .caps(caps | Caps::SOURCE | Caps::SOURCE_ERR);
        let registry = selvedge_providers::builtin().with_params(options.provider_params());
        let infos = registry
            .infos(&hints)
            .map_err(|error| opening(scheme, local, &error))?;
        let mut infos = infos.into_iter();
        let mut info = infos
            .next()
            .ok_or_else(|| Error::Transport(format!("the provider {scheme} has no endpoint")))?;
        info.src_addr = local.map(|local| local.address.clone());
        if local.is_some() {
            info.rx_attr.size = info.rx_attr.size.max(DEPTH);
        }
        let error = |error| opening(scheme, local, &error);
        let domain = info.open().map_err(error)?;
        let av = domain.av(&av::Attr::default()).map_err(error)?;
        let mut queue = cq::Attr::default();
        queue.wait_obj = wait::Object::Fd;
        // The hub polls before it waits, for as long as the options say.
        queue.spin_time = Some(Duration::ZERO);
        let ep = Endpoint::open_waiting(&*domain, &info, Arc::clone(&av), queue).map_err(error)?;
        let port = Self {
            scheme,
            ep,
            av,
            buffers: Mutex::new(Buffers::new(domain)),
            inject_size: info.tx_attr.inject_size,
        };
        for _ in 0..RECEIVES {
            port.receive_frame()?;
        }
        Ok(port)
    }

    /// The address that peers insert.
    pub(crate) fn address(&self) -> Result<Address, Error> {
        let address = self.ep.address();
        address.map_err(|errno| Error::operation("address of the endpoint", errno))
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
        self.take(HEADER.saturating_add(len)).map(Message::new)
    }

    /// A message with a copy of `bytes`.
    pub(crate) fn message_from(&self, bytes: &[u8]) -> Result<Message, Error> {
        let mut message = self.message(bytes.len())?;
        message.copy_from_slice(bytes);
        Ok(message)
    }

    /// A buffer of this length.
    pub(crate) fn take(&self, len: usize) -> Result<Buf, Error> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.take(len)
    }

    /// Posts a receive for the next frame of any peer.
    pub(crate) fn receive_frame(&self) -> Result<(), Error> {
        let buf = self.take(FRAME_LEN)?;
        let posted = self.ep.recv(buf, FiAddr::UNSPEC, Token::Frame.context());
        let failed = |error: TryPostError| Error::operation("receive", error.errno);
        posted.map(drop).map_err(failed)
    }

    /// Posts a receive that fails when `peer` ends.
    pub(crate) fn watch(&self, peer: FiAddr, key: Key) -> Result<Handle, Error> {
        let buf = self.take(1)?;
        let context = Token::End(key).context();
        let posted = self.ep.trecv(buf, peer, TagMatch::exact(END_TAG), context);
        posted.map_err(|error| Error::operation("receive", error.errno))
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

    /// Buffers that can be lent, if the transport can lend.
    pub(crate) fn lendable_buffers(&self) -> Buffers {
        let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        match self.scheme {
            Scheme::Shm => buffers.of_special_memory(),
            Scheme::Tcp => buffers.of_ordinary_memory(),
        }
    }

    /// Sends a frame. Returns whether there will be a completion: a short frame has none.
    pub(crate) fn send_frame(
        &self,
        buf: Buf,
        peer: FiAddr,
        key: Key,
        slot: u32,
    ) -> Result<bool, PostError> {
        // Over tcp, an injected frame may wait in this process, and nothing reports that it is
        // sent.
        if buf.len() > self.inject_size || self.scheme == Scheme::Tcp {
            return self.send(buf, peer, Token::Sent(key, slot)).map(|()| true);
        }
        match self.ep.inject(&buf, peer, None) {
            Ok(()) => Ok(false),
            Err(errno) => Err(PostError { errno, buf }),
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

/// The error of opening an endpoint, with the address that the application named.
fn opening(scheme: Scheme, local: Option<&ServiceAddress>, error: &selvedge::Error) -> Error {
    match local {
        Some(local) => Error::Address {
            address: local.text.clone(),
            reason: error.to_string(),
        },
        None => Error::Transport(format!("an endpoint of {scheme} cannot be opened: {error}")),
    }
}
