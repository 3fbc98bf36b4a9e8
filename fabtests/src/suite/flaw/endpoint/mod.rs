//! Endpoints with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

mod atomic;
mod collective;
mod connection;
mod messages;
mod outgoing;
mod rma;

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use selvedge::cq::Entry;
use selvedge::{
    Address, Collective, CompletionFlags, ConnectionManagement, Context, Endpoint, EpOption,
    EpOptionName, Errno, Error, FiAddr, LateBindings, Membership, OpFlags, Result, SharedReceives,
};

use super::Flaw;
use super::mixed::mixed;
use super::provider::{unwrapped, unwrapped_late};
use super::queue::Shared;

pub(super) use atomic::similar;
use outgoing::Outgoing;
pub(super) use outgoing::{copied, flipped};

#[derive(Debug)]
pub(super) struct FlawedEndpoint {
    inner: ManuallyDrop<Arc<dyn Endpoint>>,
    flaw: Flaw,
    queue: Option<Arc<Shared>>,
    inject_size: usize,
    held: Mutex<Option<Outgoing>>,
    /// The process that has opened it.
    process: u32,
    srx: Option<Arc<dyn SharedReceives>>,
    has_sent: AtomicBool,
    /// The group that was joined last.
    group: Mutex<Option<FiAddr>>,
}

impl FlawedEndpoint {
    pub(super) fn new(
        inner: Arc<dyn Endpoint>,
        flaw: Flaw,
        queue: Option<Arc<Shared>>,
        inject_size: usize,
    ) -> Self {
        Self {
            inner: ManuallyDrop::new(inner),
            flaw,
            queue,
            inject_size,
            held: Mutex::default(),
            process: std::process::id(),
            srx: None,
            has_sent: AtomicBool::new(false),
            group: Mutex::default(),
        }
    }

    /// With these receives besides.
    pub(super) fn sharing(mut self, srx: Option<Arc<dyn SharedReceives>>) -> Self {
        self.srx = srx;
        self
    }

    pub(super) fn is_around(&self, inner: &Arc<dyn Endpoint>) -> bool {
        Arc::ptr_eq(&self.inner, inner)
    }

    /// The endpoint inside of one with a defect; itself if it has none.
    pub(super) fn inner(ep: &Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        unwrapped(
            Arc::clone(ep),
            |ep| ep as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    /// Flags of a send, a write or a receive.
    fn flags(&self, flags: OpFlags) -> OpFlags {
        let known = OpFlags::MULTI_RECV
            | OpFlags::REMOTE_CQ_DATA
            | OpFlags::PEEK
            | OpFlags::CLAIM
            | OpFlags::DISCARD
            | OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::DEFAULT;
        match self.flaw {
            Flaw::DeliversEarly => flags - OpFlags::DELIVERY_COMPLETE,
            Flaw::IgnoresFences => flags - OpFlags::FENCE,
            Flaw::TakesAnyFlag => flags & known,
            Flaw::LookTakes if flags.contains(OpFlags::PEEK) => flags | OpFlags::DISCARD,
            Flaw::DiscardLeaves => flags - OpFlags::DISCARD,
            Flaw::ClaimsNothing => flags - OpFlags::CLAIM,
            _ => flags,
        }
    }

    fn pieces<T: Clone>(&self, pieces: &[T]) -> Vec<T> {
        let mut pieces = pieces.to_vec();
        if self.flaw == Flaw::SwapsPieces {
            pieces.reverse();
        }
        pieces
    }

    /// Completes what nobody carries out.
    fn invented(&self, context: Context, flags: CompletionFlags) -> Result {
        let entry = Entry {
            context,
            flags,
            ..Entry::default()
        };
        self.queue.iter().for_each(|queue| queue.invent(entry));
        Ok(())
    }
}

impl Drop for FlawedEndpoint {
    fn drop(&mut self) {
        if self.flaw != Flaw::NeverCloses {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

// SAFETY: as the inner endpoint, or a defect in what messages hold. Bytes that it changes are
// copies that are never freed.
unsafe impl Endpoint for FlawedEndpoint {
    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        let bound = self.inner.bind_late(&unwrapped_late(late));
        mixed(self.flaw, bound, || Ok(()))
    }

    fn cancel(&self, context: Context) -> Result {
        match self.flaw {
            Flaw::CancelsNothing => Ok(()),
            Flaw::DeniesCancel => self.inner.cancel(context).and(Err(Errno::NoEnt)),
            _ => self.inner.cancel(context),
        }
    }

    fn set(&self, option: EpOption) -> Result {
        match self.flaw {
            Flaw::ForgetsOptions => Ok(()),
            _ => self.inner.set(option),
        }
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        self.inner.join(group, context)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        self.inner.collective().map(|_| self as &dyn Collective)
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.inner.cm().map(|_| self as &dyn ConnectionManagement)
    }
}
