//! A link: an endpoint of another provider, and its posts of memory that we keep.
//!
//! Frames go as untagged messages, those that answer as tagged ones of [`CONTROL`], which have
//! receives of their own: answers are heard also while messages have no room. The bytes of large
//! messages go under tags of their own.
//!
//! Whoever posts here keeps the memory in the state's table of operations until the completion is
//! read, or the link is gone.

#![expect(unsafe_code, reason = "posts on the raw face of another provider")]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use selvedge::{
    Address, AddressVector, Bindings, CompletionQueue, Context, Counter, Desc, Domain, Endpoint,
    Error, FiAddr, Info, Iov, IovMut, OpFlags, Result, TagMatch, av, cntr, cq, msg, tagged, wait,
};
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::wire::{FRAME, HEADER, Header};

/// The tag of answers.
const CONTROL: u64 = u64::MAX;
/// The tag of receives that wait for the end of a peer.
const WATCH: u64 = u64::MAX - 1;
/// Pieces of a list of ours.
const PIECES: usize = 4;

#[derive(Debug)]
pub(crate) struct Link {
    // Closed before the rest goes.
    ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    /// What peers have read and written, where that is counted, and how far we have told of it.
    told: [Option<(Arc<dyn Counter>, u64)>; 2],
}

/// Memory for a message of a link.
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

    /// Writes a header, and what `payload` adds behind it; at most [`crate::wire::EAGER`] bytes.
    pub(crate) fn write(&mut self, header: &Header, payload: impl FnOnce(&mut [u8])) {
        self.bytes[..HEADER].copy_from_slice(&header.encode());
        self.len = HEADER + header.len;
        payload(&mut self.bytes[HEADER..HEADER + header.len]);
    }

    /// A header alone, whose `len` is of bytes that are not here.
    pub(crate) fn write_header(&mut self, header: &Header) {
        self.bytes[..HEADER].copy_from_slice(&header.encode());
        self.len = HEADER;
    }

    /// The first `len` bytes that came.
    pub(crate) fn received(&self, len: usize) -> &[u8] {
        &self.bytes[..len.min(FRAME)]
    }
}

impl Link {
    /// Opens an endpoint; `counts` says whether reads and writes by peers are counted, and how.
    ///
    /// # Errors
    /// The provider's.
    pub(crate) fn open(
        info: &Info,
        domain: &dyn Domain,
        counts: [Option<cntr::Events>; 2],
    ) -> Result<Self, Error> {
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Fd;
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let mut told = [None, None];
        for (told, events) in told.iter_mut().zip(counts) {
            if let Some(events) = events {
                let mut attr = cntr::Attr::default();
                attr.events = events;
                *told = Some((domain.cntr(&attr)?, 0));
            }
        }
        let [reads, writes] = &told;
        let counter =
            |told: &Option<(Arc<dyn Counter>, u64)>| told.as_ref().map(|it| Arc::clone(&it.0));
        (bind.cntrs.remote_read, bind.cntrs.remote_write) = (counter(reads), counter(writes));
        let ep = domain.endpoint(info, bind)?;
        Ok(Self { ep, cq, av, told })
    }

    /// Where one-sided operations are posted.
    pub(crate) fn endpoint(&self) -> &dyn Endpoint {
        &*self.ep
    }

    /// Whether [`Self::news_of_peers`] may have any.
    pub(crate) fn counts_peers(&self) -> bool {
        self.told.iter().any(Option::is_some)
    }

    /// What peers have read and written since the last call.
    pub(crate) fn news_of_peers(&mut self) -> [u64; 2] {
        self.told.each_mut().map(|told| {
            let Some((counter, before)) = told else {
                return 0;
            };
            let now = counter.read();
            now.wrapping_sub(std::mem::replace(before, now))
        })
    }

    pub(crate) fn address(&self) -> Result<Address> {
        self.ep.address()
    }

    pub(crate) fn insert(&self, addr: &Address) -> Result<FiAddr> {
        Ok(self.av.insert_one(addr)?)
    }

    pub(crate) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.wait_fd()
    }

    /// Sends a frame, or one that answers.
    pub(crate) fn send(&self, frame: &Frame, to: FiAddr, is_answer: bool, key: usize) -> Result {
        let iov = [Iov::from_raw(frame.bytes.as_ptr().cast(), frame.len)];
        let context = Context(key as u64);
        if is_answer {
            let msg = tagged::SendMsg {
                iov: &iov,
                desc: &[Desc::NONE],
                dest: to,
                tag: CONTROL,
                context,
                data: 0,
            };
            // SAFETY: the frame is kept and not written until the completion of `key` is read.
            return unsafe { self.ep.tsendmsg(&msg, OpFlags::COMPLETION) };
        }
        let msg = msg::SendMsg {
            iov: &iov,
            desc: &[Desc::NONE],
            dest: to,
            context,
            data: 0,
        };
        // SAFETY: as above.
        unsafe { self.ep.sendmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Receives a frame of anybody.
    pub(crate) fn recv(&self, frame: &mut Frame, is_answer: bool, key: usize) -> Result {
        let iov = [IovMut::from_raw(frame.bytes.as_mut_ptr().cast(), FRAME)];
        match is_answer {
            // SAFETY: the frame is kept and not touched until the completion of `key` is read.
            true => unsafe { self.trecv(&iov, FiAddr::UNSPEC, CONTROL, key) },
            false => {
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
    }

    /// Sends the bytes of a large message.
    pub(crate) fn send_body(
        &self,
        buf: &TxBuf,
        to: FiAddr,
        tag: u64,
        flags: OpFlags,
        key: usize,
    ) -> Result {
        let mut iov = [Iov::from_raw(std::ptr::null(), 0); PIECES];
        let mut count = 0;
        for (place, piece) in iov.iter_mut().zip(buf.segments(0, usize::MAX)) {
            *place = Iov::from_raw(piece.as_ptr().cast(), piece.len());
            count += 1;
        }
        let msg = tagged::SendMsg {
            iov: &iov[..count],
            desc: &[Desc::NONE; PIECES][..count],
            dest: to,
            tag,
            context: Context(key as u64),
            data: 0,
        };
        // SAFETY: whoever made the buffer promised that its memory is left alone while it lives, and
        // it is kept until the completion of `key` is read.
        unsafe { self.ep.tsendmsg(&msg, flags | OpFlags::COMPLETION) }
    }

    /// Receives the bytes of a large message, as many as fit.
    pub(crate) fn recv_body(
        &self,
        buf: &mut RxBuf,
        len: usize,
        from: FiAddr,
        tag: u64,
        key: usize,
    ) -> Result {
        let mut iov = [IovMut::from_raw(std::ptr::NonNull::dangling().as_ptr(), 0); PIECES];
        let mut count = 0;
        for (place, piece) in iov.iter_mut().zip(buf.segments(0, len)) {
            *place = IovMut::from_raw(piece.as_mut_ptr().cast(), piece.len());
            count += 1;
        }
        // SAFETY: as for `send_body`; nothing else touches the memory of a receive that is met.
        unsafe { self.trecv(&iov[..count.max(1)], from, tag, key) }
    }

    /// Waits for the end of a peer.
    pub(crate) fn watch(&self, peer: FiAddr, key: usize) -> Result {
        let nothing = [IovMut::from_raw(std::ptr::NonNull::dangling().as_ptr(), 0)];
        // SAFETY: no memory is named.
        unsafe { self.trecv(&nothing, peer, WATCH, key) }
    }

    /// # Safety
    /// As [`selvedge::Tagged::trecvmsg`].
    unsafe fn trecv(&self, iov: &[IovMut], src: FiAddr, tag: u64, key: usize) -> Result {
        let msg = tagged::RecvMsg {
            iov,
            desc: &[Desc::NONE; PIECES][..iov.len()],
            src,
            tag: TagMatch::exact(tag),
            context: Context(key as u64),
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }
}
