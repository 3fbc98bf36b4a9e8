//! A request and what answers it: an access to the client's memory if it asks for one, then a
//! message. Each operation is complete when the client has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge::{AddressVector, Errno, FiAddr, OpFlags};
use selvedge_testkit::domain::{Access, Block, DomainEndpoint, Send};

use super::wire::{ANSWER, Kind, Request};
use crate::upstream::payload::{POISON, Stamp};

/// A client's address. When it is gone, it is removed with the last exchange that uses it, so that
/// nothing is sent to whoever has it next.
pub(super) struct Peer {
    pub(super) addr: FiAddr,
    av: Arc<dyn AddressVector>,
    is_gone: AtomicBool,
}

impl Peer {
    pub(super) fn new(addr: FiAddr, av: Arc<dyn AddressVector>) -> Self {
        Self {
            addr,
            av,
            is_gone: AtomicBool::new(false),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Says that it is gone; whether that is new.
    pub(super) fn gone(&self) -> bool {
        !self.is_gone.swap(true, Ordering::AcqRel)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.is_gone() {
            let _ = self.av.remove(&[self.addr]);
        }
    }
}

#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) peer: Arc<Peer>,
    /// What is sent or written, or read into.
    pub(super) buffer: Block,
    stage: Stage,
}

/// The operation that is next, or under way.
#[derive(Clone, Copy)]
enum Stage {
    Access,
    Answer,
}

impl Exchange {
    pub(super) fn new(request: Request, peer: Arc<Peer>, buffer: Block) -> Self {
        let size = request.size;
        let stage = match request.kind {
            Kind::Read | Kind::Write => Stage::Access,
            _ => Stage::Answer,
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

    pub(super) fn post(&self, end: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        match self.stage {
            Stage::Access => self.access(end, context),
            Stage::Answer => self.answer(end, context),
        }
    }

    /// Its operation is complete; whether there is another one.
    ///
    /// # Errors
    /// What was read is wrong.
    pub(super) fn advance(&mut self) -> anyhow::Result<bool> {
        if let Stage::Answer = self.stage {
            return Ok(false);
        }
        self.stage = Stage::Answer;
        if self.request.kind == Kind::Read {
            let stamp = Stamp::of_pair(true, self.request.number);
            stamp.check(&self.buffer.memory, 0, self.request.size)?;
        }
        Ok(true)
    }

    fn access(&self, end: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        let segment = self.buffer.segment(0, self.request.size);
        let mut access = Access::new(self.peer.addr, self.request.remote, context);
        if self.request.kind == Kind::Read {
            return end.read(&[segment], &access);
        }
        access.flags |= OpFlags::DELIVERY_COMPLETE;
        end.write(&[segment], &access)
    }

    fn answer(&self, end: &DomainEndpoint, context: u64) -> Result<(), Errno> {
        let (tag, size) = match self.request.kind {
            Kind::Msg => (None, self.request.size),
            Kind::Tag => (Some(self.request.number), self.request.size),
            _ => (Some(self.request.number), ANSWER),
        };
        let send = Send::new(self.peer.addr, context)
            .tag(tag)
            .flags(OpFlags::DEFAULT | OpFlags::DELIVERY_COMPLETE);
        end.send(&[self.buffer.segment(0, size)], &send)
    }
}
