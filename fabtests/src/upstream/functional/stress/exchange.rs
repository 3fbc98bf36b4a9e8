//! A request and its processing: an access to the client's memory if the request has one, then the
//! response. Each operation completes when its data have arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge::{AddressVector, Errno, FiAddr, OpFlags};
use selvedge_testkit::domain::{Access, Block, DomainEndpoint, Send};

use super::wire::{Kind, RESPONSE, Request};
use crate::upstream::data::payload::{POISON, Stamp};

/// The address of a client. After the client has disconnected, the last exchange that uses the
/// address removes it, so that nothing is sent to a later owner of the address.
pub(super) struct Peer {
    pub(super) addr: FiAddr,
    av: Arc<dyn AddressVector>,
    is_disconnected: AtomicBool,
}

impl Peer {
    pub(super) fn new(addr: FiAddr, av: Arc<dyn AddressVector>) -> Self {
        Self {
            addr,
            av,
            is_disconnected: AtomicBool::new(false),
        }
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// Marks the client as disconnected. Returns whether the client was connected before.
    pub(super) fn mark_disconnected(&self) -> bool {
        !self.is_disconnected.swap(true, Ordering::AcqRel)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.is_disconnected() {
            let _ = self.av.remove(&[self.addr]);
        }
    }
}

/// A request with the state of its processing.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) peer: Arc<Peer>,
    /// The data that is sent or written, or the memory that is read into.
    pub(super) buffer: Block,
    stage: Stage,
}

/// The operation that is posted next or is in flight.
#[derive(Clone, Copy)]
enum Stage {
    Access,
    Respond,
}

impl Exchange {
    pub(super) fn new(request: Request, peer: Arc<Peer>, buffer: Block) -> Self {
        let size = request.size;
        let stage = match request.kind {
            Kind::Read | Kind::Write => Stage::Access,
            _ => Stage::Respond,
        };
        match request.kind {
            Kind::Read => buffer.memory.fill(0, size, POISON),
            _ => Stamp::of_pair(false, request.number).write(&buffer.memory, 0, size),
        }
        Self {
            request,
            peer,
            buffer,
            stage,
        }
    }

    pub(super) fn post(&self, endpoint: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        match self.stage {
            Stage::Access => self.access(endpoint, context),
            Stage::Respond => self.respond(endpoint, context),
        }
    }

    /// Advances to the next operation after a completion. Returns whether another operation
    /// follows.
    ///
    /// # Errors
    /// The data that was read is wrong.
    pub(super) fn advance(&mut self) -> anyhow::Result<bool> {
        if let Stage::Respond = self.stage {
            return Ok(false);
        }
        self.stage = Stage::Respond;
        if self.request.kind == Kind::Read {
            let stamp = Stamp::of_pair(true, self.request.number);
            stamp.check(&self.buffer.memory, 0, self.request.size)?;
        }
        Ok(true)
    }

    fn access(&self, endpoint: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        let segment = self.buffer.segment(0, self.request.size);
        let mut access = Access::new(self.peer.addr, self.request.remote, context);
        if self.request.kind == Kind::Read {
            return endpoint.read(&[segment], &access);
        }
        access.flags |= OpFlags::DELIVERY_COMPLETE;
        endpoint.write(&[segment], &access)
    }

    fn respond(&self, endpoint: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        let (tag, size) = match self.request.kind {
            Kind::Msg => (None, self.request.size),
            Kind::Tag => (Some(self.request.number), self.request.size),
            _ => (Some(self.request.number), RESPONSE),
        };
        let send = Send::new(self.peer.addr, context)
            .tag(tag)
            .flags(OpFlags::DEFAULT | OpFlags::DELIVERY_COMPLETE);
        endpoint.send(&[self.buffer.segment(0, size)], &send)
    }
}
