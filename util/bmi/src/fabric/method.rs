//! `Fabric` as a method: the interface that the control layer calls.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use selvedge::{Allocation, Context, Errno, MrAccess, alloc};

use super::endpoint::Fabric;
use super::peers::Peers;
use super::{names, post, unexpected};
use crate::control::queues::MethodQueues;
use crate::ids::OpKey;
use crate::method::{Limits, Method, MethodAddr, RecvPost, SendPost, TryWait};
use crate::support::gossip;
use crate::url::Url;
use crate::{Code, Error, Result};

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
