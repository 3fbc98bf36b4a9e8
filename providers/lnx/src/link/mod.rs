//! A link: an endpoint of another provider, with posts whose memory the caller keeps.
//!
//! Frames are untagged messages. Control frames (responses) are tagged messages with
//! receives of their own, so they are received even while messages have no room. The bytes of a
//! large message have a tag of their own.
//!
//! The caller of a post keeps the memory in the state's table of operations until it has read the
//! completion or the link is closed.

#![expect(unsafe_code, reason = "raw posts to another provider")]

pub(crate) mod selection;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use selvedge::{
    Address, AddressVector, Bindings, CompletionQueue, Context, Counter, Desc, Domain, Endpoint,
    Error, FiAddr, Info, Iov, IovMut, OpFlags, Result, TagMatch, av, cntr, cq, msg, tagged, wait,
};
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::link::selection::{LinkDomain, tag_bits};
use crate::wire::{FRAME, HEADER, Header};

/// The largest number of segments in an iovec that lnx posts.
const IOV_LIMIT: usize = 4;

#[derive(Debug)]
pub(crate) struct Link {
    // Dropped before the other fields.
    ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    /// The indices of inserted addresses. Some providers give an address a new index each time.
    inserted: FxHashMap<Address, FiAddr>,
    known: FxHashSet<FiAddr>,
    tags: TagSpace,
    /// Whether receives from one peer fail when the peer does.
    pub(crate) is_watched: bool,
    /// The number of transmits for which the link has room.
    pub(crate) tx_size: usize,
    /// Counters of reads and writes by peers, if they are counted, and the values at the last call
    /// of [`Self::take_remote_counts`].
    remote_counters: [Option<(Arc<dyn Counter>, u64)>; 2],
}

/// The tags of a link, which have as many bits as the link's provider leaves to its users.
#[derive(Clone, Copy, Debug)]
struct TagSpace {
    largest: u64,
}

impl TagSpace {
    fn of(info: &Info) -> Self {
        let bits = tag_bits(info.ep_attr.mem_tag_format);
        Self {
            largest: u64::MAX >> (u64::BITS - bits),
        }
    }

    /// The tag of control frames.
    fn control(self) -> u64 {
        self.largest
    }

    /// The tag of receives that detect a peer's failure.
    fn watch(self) -> u64 {
        self.largest - 1
    }

    /// The number of tags for the bytes of large messages.
    fn bodies(self) -> u64 {
        (self.largest >> 4) + 1
    }
}

/// The memory of one frame.
#[derive(Debug)]
pub(crate) struct Frame {
    bytes: Box<[u8; FRAME]>,
    len: usize,
}

impl Frame {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Box::new([0; FRAME]),
            len: 0,
        }
    }

    /// Writes a header and a payload of `header.len` bytes, which `payload` fills; at most
    /// [`crate::wire::EAGER`] bytes.
    pub(crate) fn write(&mut self, header: &Header, payload: impl FnOnce(&mut [u8])) {
        self.bytes[..HEADER].copy_from_slice(&header.encode());
        self.len = HEADER + header.len;
        payload(&mut self.bytes[HEADER..HEADER + header.len]);
    }

    /// Writes a header alone; its `len` counts bytes that are sent later.
    pub(crate) fn write_header(&mut self, header: &Header) {
        self.bytes[..HEADER].copy_from_slice(&header.encode());
        self.len = HEADER;
    }

    /// The first `len` bytes that were received.
    pub(crate) fn received_bytes(&self, len: usize) -> &[u8] {
        &self.bytes[..len.min(FRAME)]
    }
}

/// Opens a completion queue with a descriptor, which a provider of another library may lack.
fn open_cq(domain: &dyn Domain, must_have_fd: bool) -> Result<Arc<dyn CompletionQueue>, Error> {
    let mut attr = cq::Attr::default();
    attr.wait_obj = wait::Object::Fd;
    match domain.cq(&attr) {
        Err(_) if !must_have_fd => {
            attr.wait_obj = wait::Object::None;
            domain.cq(&attr)
        }
        opened => opened,
    }
}

impl Link {
    /// Opens an endpoint. `events` are those of the counters of reads and of writes by peers;
    /// `None` where they are not counted.
    ///
    /// # Errors
    /// The provider's error.
    pub(crate) fn open(
        info: &Info,
        link: &LinkDomain,
        events: [Option<cntr::Events>; 2],
    ) -> Result<Self, Error> {
        let domain = &*link.domain;
        let cq = open_cq(domain, link.is_watched)?;
        let av = domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let mut remote_counters = [None, None];
        for (slot, events) in remote_counters.iter_mut().zip(events) {
            if let Some(events) = events {
                let mut attr = cntr::Attr::default();
                attr.events = events;
                *slot = Some((domain.cntr(&attr)?, 0));
            }
        }
        let [reads, writes] = &remote_counters;
        let counter = |counter: &Option<(Arc<dyn Counter>, u64)>| {
            counter.as_ref().map(|(counter, _)| Arc::clone(counter))
        };
        (bind.cntrs.remote_read, bind.cntrs.remote_write) = (counter(reads), counter(writes));
        let ep = domain.endpoint(info, bind)?;
        Ok(Self {
            ep,
            cq,
            av,
            inserted: FxHashMap::default(),
            known: FxHashSet::default(),
            tags: TagSpace::of(info),
            is_watched: link.is_watched,
            tx_size: info.tx_attr.size,
            remote_counters,
        })
    }

    /// The endpoint, for one-sided operations.
    pub(crate) fn endpoint(&self) -> &dyn Endpoint {
        &*self.ep
    }

    /// Whether the link counts reads or writes by peers.
    pub(crate) fn counts_remote_access(&self) -> bool {
        self.remote_counters.iter().any(Option::is_some)
    }

    /// The numbers of reads and of writes by peers since the last call.
    pub(crate) fn take_remote_counts(&mut self) -> [u64; 2] {
        self.remote_counters.each_mut().map(|counter| {
            let Some((counter, last_count)) = counter else {
                return 0;
            };
            let count = counter.read();
            count.wrapping_sub(std::mem::replace(last_count, count))
        })
    }

    pub(crate) fn address(&self) -> Result<Address> {
        self.ep.address()
    }

    /// The index of an address.
    pub(crate) fn insert(&mut self, addr: &Address) -> Result<FiAddr> {
        if let Some(&index) = self.inserted.get(addr) {
            return Ok(index);
        }
        let index = self.av.insert_one(addr)?;
        self.inserted.insert(addr.clone(), index);
        self.known.insert(index);
        Ok(index)
    }

    /// The source of a completion. Providers of another library may report an index that was not
    /// inserted.
    pub(crate) fn known_source(&self, src: FiAddr) -> FiAddr {
        if self.is_watched || self.known.contains(&src) {
            src
        } else {
            FiAddr::UNSPEC
        }
    }

    /// The number of tags for the bytes of large messages.
    pub(crate) fn body_tags(&self) -> u64 {
        self.tags.bodies()
    }

    pub(crate) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.wait_fd()
    }

    /// Sends a frame, or a control frame.
    pub(crate) fn send(&self, frame: &Frame, dest: FiAddr, is_control: bool, key: usize) -> Result {
        let iov = [Iov::from_raw(frame.bytes.as_ptr().cast(), frame.len)];
        let context = Context(key as u64);
        if is_control {
            let msg = tagged::SendMsg {
                iov: &iov,
                desc: &[Desc::NONE],
                dest,
                tag: self.tags.control(),
                context,
                data: 0,
            };
            // SAFETY: the frame is kept unchanged until the completion of `key` is read.
            return unsafe { self.ep.tsendmsg(&msg, OpFlags::COMPLETION) };
        }
        let msg = msg::SendMsg {
            iov: &iov,
            desc: &[Desc::NONE],
            dest,
            context,
            data: 0,
        };
        // SAFETY: as above.
        unsafe { self.ep.sendmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Receives a frame from any peer.
    pub(crate) fn recv(&self, frame: &mut Frame, is_control: bool, key: usize) -> Result {
        let iov = [IovMut::from_raw(frame.bytes.as_mut_ptr().cast(), FRAME)];
        if is_control {
            // SAFETY: the frame is kept and not accessed until the completion of `key` is read.
            unsafe { self.trecv(&iov, FiAddr::UNSPEC, self.tags.control(), key) }
        } else {
            let msg = msg::RecvMsg {
                iov: &iov,
                desc: &[Desc::NONE],
                src: FiAddr::UNSPEC,
                context: Context(key as u64),
            };
            // SAFETY: as above.
            unsafe { self.ep.recvmsg(&msg, OpFlags::COMPLETION) }
        }
    }

    /// Sends the first bytes of a large message.
    pub(crate) fn send_body(
        &self,
        (buf, len): (&TxBuf, usize),
        dest: FiAddr,
        tag: u64,
        flags: OpFlags,
        key: usize,
    ) -> Result {
        let mut iov = [Iov::from_raw(std::ptr::null(), 0); IOV_LIMIT];
        let mut count = 0;
        for (slot, segment) in iov.iter_mut().zip(buf.segments(0, len)) {
            *slot = Iov::from_raw(segment.as_ptr().cast(), segment.len());
            count += 1;
        }
        let msg = tagged::SendMsg {
            iov: &iov[..count],
            desc: &[Desc::NONE; IOV_LIMIT][..count],
            dest,
            tag,
            context: Context(key as u64),
            data: 0,
        };
        // SAFETY: the caller that made the buffer promised that its memory is not written while the
        // buffer lives, and the buffer is kept until the completion of `key` is read.
        unsafe { self.ep.tsendmsg(&msg, flags | OpFlags::COMPLETION) }
    }

    /// Receives the bytes of a large message, as many as fit.
    pub(crate) fn recv_body(
        &self,
        buf: &mut RxBuf,
        len: usize,
        src: FiAddr,
        tag: u64,
        key: usize,
    ) -> Result {
        let mut iov = [IovMut::from_raw(std::ptr::NonNull::dangling().as_ptr(), 0); IOV_LIMIT];
        let mut count = 0;
        for (slot, segment) in iov.iter_mut().zip(buf.segments(0, len)) {
            *slot = IovMut::from_raw(segment.as_mut_ptr().cast(), segment.len());
            count += 1;
        }
        // SAFETY: as for `send_body`; no other code accesses the memory of a matched receive.
        unsafe { self.trecv(&iov[..count.max(1)], src, tag, key) }
    }

    /// Cancels an operation, if the provider can.
    pub(crate) fn cancel(&self, key: usize) {
        let _ = self.ep.cancel(Context(key as u64));
    }

    /// Posts a receive that fails when the peer fails.
    pub(crate) fn watch(&self, peer: FiAddr, key: usize) -> Result {
        let empty = [IovMut::from_raw(std::ptr::NonNull::dangling().as_ptr(), 0)];
        // SAFETY: no memory is named.
        unsafe { self.trecv(&empty, peer, self.tags.watch(), key) }
    }

    /// Posts a tagged receive.
    ///
    /// # Safety
    /// As [`selvedge::Tagged::trecvmsg`].
    unsafe fn trecv(&self, iov: &[IovMut], src: FiAddr, tag: u64, key: usize) -> Result {
        let msg = tagged::RecvMsg {
            iov,
            desc: &[Desc::NONE; IOV_LIMIT][..iov.len()],
            src,
            tag: TagMatch::exact(tag),
            context: Context(key as u64),
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }
}
