//! The method over the fabric: one endpoint of any provider.
//!
//! | BMI | the fabric |
//! |---|---|
//! | expected message | tagged message; its receive names peer and tag, and ignores nothing |
//! | unexpected message | untagged message into multi-receive buffers; tag and class are its data |
//! | peer | an index of the address vector; strangers are inserted when they are heard |
//! | short message, immediate completion | an injected message, or one whose completion is there when it was posted |
//! | the end of a peer | the error of a receive that names it |
//!
//! It is called under its station's lock, so the fabric below is promised that no two threads use
//! it at once, and takes no locks of its own.

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

use crate::control::desk::Desk;
use crate::ids::OpKey;
use crate::method::{Limits, Method, MethodAddr, RecvPost, Rest, SendPost};
use crate::support::gossip;
use crate::url::Url;
use crate::{Code, Error, Result};
use peers::Peers;
use unexpected::Slabs;

/// An active method of the fabric.
#[derive(Debug)]
struct Fabric {
    // Dropped first: a closed endpoint touches no memory any more.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    domain: Arc<dyn Domain>,
    info: Info,
    /// Bytes of the longest message that is injected.
    inject_size: usize,
    /// The provider may keep what is injected until it is driven, as one with a network below does: it
    /// sends what was posted between two looks in one call of the system.
    dawdles: bool,
    wait_fd: Option<OwnedFd>,
    /// Where completions are read to.
    entries: Box<[Entry; BATCH]>,
    sources: Box<[FiAddr; BATCH]>,
    peers: Peers,
    slabs: Slabs,
    listen: Option<Url>,
}

/// Completions that are read at a time.
const BATCH: usize = 32;

/// Bits of a context that belong to the method: keys of operations have neither.
mod mark {
    /// A multi-receive buffer; its number follows.
    pub(super) const SLAB: u64 = 1 << 63;
    /// A receive that never meets a message, and fails when its peer goes; the peer follows.
    pub(super) const SENTRY: u64 = 1 << 62;
}

#[expect(unsafe_code, reason = "the promise of a method")]
// SAFETY: memory is handed to the endpoint, or to no one; an operation is told of when its
// completion was read, after which the endpoint touches its memory no more, by its own promise.
// What waits for the endpoint to have room is copied nowhere, and dropped with the method.
unsafe impl Method for Fabric {
    fn limits(&self) -> Limits {
        Limits {
            size: self.info.ep_attr.max_msg_size as u64,
            unexpected: unexpected::SIZE as u64,
            pieces: self.info.tx_attr.iov_limit.min(self.info.rx_attr.iov_limit),
        }
    }

    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error> {
        let addr = names::resolve(&*self.av, &self.info, url)?;
        Ok(self.peers.know(addr))
    }

    fn addr_forget(&mut self, addr: MethodAddr) {
        self.forget(addr);
    }

    fn host(&self, addr: MethodAddr) -> String {
        let known = self.av.lookup(Peers::addr(addr));
        known.map_or_else(|_| "UNKNOWN".to_owned(), |address| names::host(&address))
    }

    fn is_in_range(&self, addr: MethodAddr, pattern: &str, netmask: Option<u8>) -> Result<bool> {
        let address = self.av.lookup(Peers::addr(addr)).map_err(Code::from)?;
        names::is_in_range(&address, pattern, netmask)
    }

    unsafe fn send_now(&mut self, post: &SendPost<'_>) -> Result<bool> {
        if self.dawdles {
            // Only a completion says that it has left, which may be there right after the post.
            return Ok(false);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.inject(post) }
    }

    unsafe fn post_send(&mut self, key: OpKey, post: &SendPost<'_>, desk: &mut Desk) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.send(key, post, desk) }?;
        self.settle(desk);
        Ok(())
    }

    unsafe fn post_recv(&mut self, key: OpKey, post: &RecvPost<'_>, desk: &mut Desk) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.recv(key, post) }?;
        self.settle(desk);
        if self.peers.has_gone(post.src) {
            self.end_late(key, desk);
        }
        Ok(())
    }

    fn cancel(&mut self, key: OpKey, desk: &mut Desk) {
        if self.peers.withdraw(key) {
            return desk.complete(key, Err(Self::cancelled(key, desk)));
        }
        match self.ep.cancel(Context(key.0)) {
            Ok(()) => self.settle(desk),
            // It has begun, and goes on.
            Err(Errno::NoEnt) => {}
            Err(errno) => gossip::err(format_args!("operation {key:?} is not cancelled: {errno}")),
        }
    }

    #[inline]
    fn progress(&mut self, desk: &mut Desk) {
        self.drive(desk);
    }

    fn rest(&mut self, desk: &mut Desk) -> Rest {
        if !self.peers.is_calm() || self.slabs.are_wanted(desk) {
            return Rest::AtMost(post::RETRY);
        }
        match self.cq.try_wait() {
            Ok(()) => Rest::UntilWoken,
            Err(Errno::Again) => Rest::News,
            Err(_) => Rest::AtMost(post::RETRY),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd.as_ref().map(AsFd::as_fd)
    }

    fn memalloc(&mut self, len: usize) -> Option<Arc<dyn Allocation>> {
        // What is injected is copied anyway, from wherever it lies.
        if len <= self.inject_size {
            return None;
        }
        let attr = alloc::Attr::new(MrAccess::SEND | MrAccess::RECV);
        let made = self.domain.alloc(len, &attr);
        made.inspect_err(|error| gossip::err(format_args!("{error}")))
            .ok()
    }

    fn listen_port(&self) -> Option<u16> {
        Some(self.listen.as_ref()?.port.unwrap_or_default())
    }
}

/// A message's tag on the fabric.
#[inline]
const fn wire_tag(tag: i32) -> u64 {
    tag as u32 as u64
}

/// A message in one piece, or nothing of it.
#[inline]
fn whole(pieces: &[Iov]) -> Option<Iov> {
    match *pieces {
        [piece] => Some(piece),
        _ => None,
    }
}
