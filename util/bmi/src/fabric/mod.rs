//! The method over Selvedge: one endpoint of any provider.
//!
//! | BMI | the fabric |
//! |---|---|
//! | expected message | tagged message; its receive names peer and tag, with no ignored bits |
//! | unexpected message | untagged message into multi-receive buffers; tag and class are its data |
//! | peer | index in the address vector; an unknown sender is inserted when its message arrives |
//! | short message, immediate completion | injected message, or a completion that is available when the post returns |
//! | peer failure | error of a receive that names the peer |
//!
//! The method is called under the lock of its method instance. The domain is therefore opened with
//! `Threading::Domain` and takes no locks of its own.

mod names;
mod open;
mod peers;
mod post;
mod progress;
mod unexpected;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::{
    AddressVector, Allocation, CompletionQueue, Context, Domain, Endpoint, Errno, FiAddr, Info,
    Iov, MrAccess, alloc,
};

pub use open::modules;

use crate::control::queues::MethodQueues;
use crate::ids::OpKey;
use crate::method::{Limits, Method, MethodAddr, RecvPost, SendPost, TryWait};
use crate::support::gossip;
use crate::url::Url;
use crate::{Code, Error, Result};
use peers::Peers;
use unexpected::Slabs;

/// An active method of the fabric.
#[derive(Debug)]
struct Fabric {
    // Dropped first: a closed endpoint accesses no memory any more.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    domain: Arc<dyn Domain>,
    info: Info,
    /// Largest message in bytes that is injected.
    inject_size: usize,
    /// The provider may hold an injected message until the next progress call. Network providers do
    /// so: they send the messages of several posts with one system call.
    defers_sends: bool,
    wait_fd: Option<OwnedFd>,
    /// Array that completions are read into.
    entries: Box<[Entry; BATCH]>,
    sources: Box<[FiAddr; BATCH]>,
    peers: Peers,
    slabs: Slabs,
    listen: Option<Url>,
}

/// Completions that are read at a time.
const BATCH: usize = 32;

/// Bits of a context that mark the method's own operations. The key of an application's operation
/// has neither bit.
mod context_flags {
    /// A multi-receive buffer; its index follows.
    pub(super) const SLAB: u64 = 1 << 63;
    /// A receive that matches no message and fails when its peer disconnects; the peer's index
    /// follows.
    pub(super) const WATCH: u64 = 1 << 62;
}

#[expect(unsafe_code, reason = "implements the unsafe trait `Method`")]
// SAFETY: memory is passed to the endpoint only. An operation is reported as complete when its
// completion was read; by the endpoint's contract it accesses the memory no more. A queued post
// copies nothing and is dropped with the method.
unsafe impl Method for Fabric {
    fn limits(&self) -> Limits {
        Limits {
            size: self.info.ep_attr.max_msg_size as u64,
            unexpected: unexpected::SIZE as u64,
            segments: self.info.tx_attr.iov_limit.min(self.info.rx_attr.iov_limit),
        }
    }

    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error> {
        let addr = names::resolve(&*self.av, &self.info, url)?;
        Ok(self.peers.insert_named(addr))
    }

    fn addr_forget(&mut self, addr: MethodAddr) {
        self.forget(addr);
    }

    fn host(&self, addr: MethodAddr) -> String {
        let address = self.av.lookup(Peers::addr(addr));
        address.map_or_else(|_| "UNKNOWN".to_owned(), |address| names::host(&address))
    }

    fn is_in_range(&self, addr: MethodAddr, pattern: &str, netmask: Option<u8>) -> Result<bool> {
        let address = self.av.lookup(Peers::addr(addr)).map_err(Code::from)?;
        names::is_in_range(&address, pattern, netmask)
    }

    unsafe fn send_now(&mut self, post: &SendPost<'_>) -> Result<bool> {
        if self.defers_sends {
            // Only a completion proves that the message was sent. It may be available right after
            // the post.
            return Ok(false);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.inject(post) }
    }

    unsafe fn post_send(
        &mut self,
        key: OpKey,
        post: &SendPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.send(key, post, queues) }?;
        self.report_ready(queues);
        Ok(())
    }

    unsafe fn post_recv(
        &mut self,
        key: OpKey,
        post: &RecvPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.recv(key, post) }?;
        self.report_ready(queues);
        if self.peers.has_disconnected(post.src) {
            self.cancel_unmatched(key, queues);
        }
        Ok(())
    }

    fn cancel(&mut self, key: OpKey, queues: &mut MethodQueues) {
        if self.peers.remove_queued(key) {
            return queues.complete(key, Err(Self::cancel_code(key, queues)));
        }
        match self.ep.cancel(Context(key.0)) {
            Ok(()) => self.report_ready(queues),
            // The operation has begun and continues.
            Err(Errno::NoEnt) => {}
            Err(errno) => gossip::err(format_args!("operation {key:?} is not cancelled: {errno}")),
        }
    }

    #[inline]
    fn progress(&mut self, queues: &mut MethodQueues) {
        self.progress_endpoint(queues);
    }

    fn try_wait(&mut self, queues: &mut MethodQueues) -> TryWait {
        if self.peers.has_backlog() || self.slabs.should_post(queues) {
            return TryWait::ParkAtMost(post::RETRY);
        }
        match self.cq.try_wait() {
            Ok(()) => TryWait::Park,
            Err(Errno::Again) => TryWait::Ready,
            Err(_) => TryWait::ParkAtMost(post::RETRY),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd.as_ref().map(AsFd::as_fd)
    }

    fn memalloc(&mut self, len: usize) -> Option<Arc<dyn Allocation>> {
        // Injected messages are copied from any memory.
        if len <= self.inject_size {
            return None;
        }
        let attr = alloc::Attr::new(MrAccess::SEND | MrAccess::RECV);
        let allocated = self.domain.alloc(len, &attr);
        allocated
            .inspect_err(|error| gossip::err(format_args!("{error}")))
            .ok()
    }

    fn listen_port(&self) -> Option<u16> {
        Some(self.listen.as_ref()?.port.unwrap_or_default())
    }
}

/// The fabric tag of a BMI tag.
#[inline]
const fn wire_tag(tag: i32) -> u64 {
    tag as u32 as u64
}

/// The only segment of a message; `None` for a list.
#[inline]
fn single_segment(segments: &[Iov]) -> Option<Iov> {
    match *segments {
        [segment] => Some(segment),
        _ => None,
    }
}
