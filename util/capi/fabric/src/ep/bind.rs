//! Bindings of endpoints: all kinds before an endpoint is enabled, some kinds afterwards.

#![expect(unsafe_code, reason = "functions of C")]

use std::sync::Arc;

use selvedge::info::EpType;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Counter, Counters, Domain, Endpoint, Errno,
    Error, EventQueue, Info, LateBindings, Result, SharedReceives, av, cq,
};
use selvedge_abi::{Fid, fclass, number};

use super::Ep;
use super::shared::{Srx, Stx};
use crate::av::Av;
use crate::object::{Object, User, argument};
use crate::pointer::required;
use crate::queue::cntr::Cntr;
use crate::queue::cq::Cq;
use crate::queue::eq::Eq;
use crate::status::log_error;

/// The objects that an endpoint is bound to.
#[derive(Clone, Default)]
pub(super) struct Bound {
    tx_cq: Queue,
    rx_cq: Queue,
    av: Option<Arc<dyn AddressVector>>,
    eq: Option<Arc<dyn EventQueue>>,
    /// The counters, each with the operations that it counts.
    cntrs: Vec<(u64, Arc<dyn Counter>)>,
    srx: Option<Arc<dyn SharedReceives>>,
    has_stx: bool,
    users: Vec<User>,
}

const SEND: u64 = Caps::SEND.bits();
const RECV: u64 = Caps::RECV.bits();
const INITIATED: u64 = Caps::READ.union(Caps::WRITE).bits();
const TARGETED: u64 = Caps::REMOTE_READ.union(Caps::REMOTE_WRITE).bits();

impl Ep {
    /// # Safety
    /// `fid` is NULL or a handle.
    pub(super) unsafe fn bind(&self, fid: *const Fid, flags: u64) -> Result {
        let mut draft = self.shared.draft();
        let live = self.shared.live.get();
        let is_for_other_half = self.half.as_ref().is_some_and(|half| !half.accepts(flags));
        if is_for_other_half {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller, here and below.
        let fclass = unsafe { required(fid) }?.fclass;
        let mut bound = draft.bound.clone();
        match fclass {
            // SAFETY: as above.
            fclass::CQ => bound.add_cq(unsafe { argument(fid) }?, flags),
            // SAFETY: as above.
            fclass::CNTR => bound.add_cntr(unsafe { argument(fid) }?, flags),
            // SAFETY: as above.
            fclass::AV if self.half.is_some() => bound.add_av_of_half(unsafe { argument(fid) }?),
            // SAFETY: as above.
            fclass::AV => bound.add_av(unsafe { argument(fid) }?),
            // SAFETY: as above.
            fclass::EQ => bound.add_eq(unsafe { argument(fid) }?),
            // SAFETY: as above.
            fclass::SRX_CTX => bound.add_srx(unsafe { argument(fid) }?),
            // SAFETY: as above.
            fclass::STX_CTX => bound.add_stx(unsafe { argument(fid) }?),
            _ => Err(Errno::Inval),
        }?;
        let is_new = bound.users.len() > draft.bound.users.len();
        if let Some(live) = live.filter(|_| is_new) {
            bind_late(&**live, fclass, flags, &bound)?;
        }
        draft.bound = bound;
        Ok(())
    }
}

/// Binds an open endpoint to the object that was added to `bound` last, with `flags`.
///
/// # Errors
/// [`Errno::OpBadState`] for a class of object that an open endpoint cannot be bound to. The reason
/// is logged.
fn bind_late(live: &dyn Endpoint, fclass: usize, flags: u64, bound: &Bound) -> Result {
    let queue = |queue: &Queue, direction| match flags & direction {
        0 => None,
        _ => queue.clone(),
    };
    let bindings = match fclass {
        fclass::STX_CTX => return Ok(()),
        fclass::CQ => LateBindings {
            tx_cq: queue(&bound.tx_cq, SEND),
            rx_cq: queue(&bound.rx_cq, RECV),
            ..LateBindings::default()
        },
        fclass::CNTR => LateBindings {
            cntrs: counters(bound.cntrs.last()),
            ..LateBindings::default()
        },
        _ => {
            let reason = "fi_ep_bind: the endpoint is enabled, and accepts only completion queues, \
                        counters and shared transmit contexts; bind address vectors, event queues \
                        and shared receives before fi_enable";
            return Err(log_error(&Error::new(Errno::OpBadState, reason)));
        }
    };
    live.bind_late(&bindings).map_err(|error| log_error(&error))
}

/// Counters by the operations that they count.
fn counters<'a>(bound: impl IntoIterator<Item = &'a (u64, Arc<dyn Counter>)>) -> Counters {
    let mut cntrs = Counters::default();
    for (counted, cntr) in bound {
        let slots = [
            (Caps::SEND, &mut cntrs.send),
            (Caps::RECV, &mut cntrs.recv),
            (Caps::READ, &mut cntrs.read),
            (Caps::WRITE, &mut cntrs.write),
            (Caps::REMOTE_READ, &mut cntrs.remote_read),
            (Caps::REMOTE_WRITE, &mut cntrs.remote_write),
        ];
        for (kind, slot) in slots {
            if counted & kind.bits() != 0 {
                *slot = Some(Arc::clone(cntr));
            }
        }
    }
    cntrs
}

/// A completion queue, and whether it is bound with `FI_SELECTIVE_COMPLETION`.
type Queue = Option<(Arc<dyn CompletionQueue>, bool)>;

impl Bound {
    fn add_cq(&mut self, cq: &Object<Cq>, flags: u64) -> Result {
        let selective = number::bind::SELECTIVE_COMPLETION;
        if flags & !(SEND | RECV | selective) != 0 {
            return Err(Errno::BadFlags);
        }
        let (sends, receives) = (flags & SEND != 0, flags & RECV != 0);
        let is_bound_already = sends && self.tx_cq.is_some() || receives && self.rx_cq.is_some();
        if is_bound_already || !(sends || receives) {
            return Err(Errno::Inval);
        }
        let is_selective = flags & selective != 0;
        if sends {
            self.tx_cq = Some((Arc::clone(&cq.inner), is_selective));
        }
        if receives {
            self.rx_cq = Some((Arc::clone(&cq.inner), is_selective));
        }
        self.users.push(cq.new_user());
        Ok(())
    }

    fn add_cntr(&mut self, cntr: &Object<Cntr>, flags: u64) -> Result {
        if flags & !(SEND | RECV | INITIATED | TARGETED) != 0 {
            return Err(Errno::BadFlags);
        }
        let is_counted = self.cntrs.iter().any(|(counted, _)| counted & flags != 0);
        if is_counted || flags == 0 {
            return Err(Errno::Inval);
        }
        self.cntrs.push((flags, Arc::clone(&cntr.inner)));
        self.users.push(cntr.new_user());
        Ok(())
    }

    /// Adds the vector of a half of a context. A program may bind the same vector to both halves.
    fn add_av_of_half(&mut self, av: &Object<Av>) -> Result {
        match &self.av {
            Some(bound) if Arc::ptr_eq(bound, &av.inner) => Ok(()),
            _ => self.add_av(av),
        }
    }

    fn add_av(&mut self, av: &Object<Av>) -> Result {
        if self.av.is_some() {
            return Err(Errno::Inval);
        }
        self.av = Some(Arc::clone(&av.inner));
        self.users.push(av.new_user());
        Ok(())
    }

    /// Adds the vector of a scalable endpoint to a context.
    pub(super) fn add_av_if_none(&mut self, av: &Arc<dyn AddressVector>, user: &User) {
        if self.av.is_none() {
            self.av = Some(Arc::clone(av));
            self.users.push(user.clone());
        }
    }

    fn add_eq(&mut self, eq: &Object<Eq>) -> Result {
        if self.eq.is_some() {
            return Err(Errno::Inval);
        }
        self.eq = Some(Arc::clone(&eq.inner));
        self.users.push(eq.new_user());
        Ok(())
    }

    fn add_srx(&mut self, srx: &Object<Srx>) -> Result {
        if self.srx.is_some() {
            return Err(Errno::Inval);
        }
        self.srx = Some(Arc::clone(&srx.0));
        self.users.push(srx.new_user());
        Ok(())
    }

    fn add_stx(&mut self, stx: &Object<Stx>) -> Result {
        if std::mem::replace(&mut self.has_stx, true) {
            return Err(Errno::Inval);
        }
        self.users.push(stx.new_user());
        Ok(())
    }

    /// Returns the bindings for an endpoint of the object model.
    ///
    /// # Errors
    /// [`Errno::NoCq`], [`Errno::NoAv`] or [`Errno::NoEq`] for a missing object.
    pub(super) fn bindings(&self, info: &Info, domain: &dyn Domain) -> Result<Bindings> {
        let is_connected = info.ep_attr.ep_type == EpType::Msg;
        if is_connected && self.eq.is_none() {
            return Err(Errno::NoEq);
        }
        if !is_connected && self.av.is_none() {
            return Err(Errno::NoAv);
        }
        self.check_reports(info, Caps::all())?;
        let (tx_cq, tx_selective) = Self::queue(&self.tx_cq, domain)?;
        let (rx_cq, rx_selective) = Self::queue(&self.rx_cq, domain)?;
        let av = match &self.av {
            Some(av) => Arc::clone(av),
            None => domain
                .av(&av::Attr::default())
                .map_err(|error| log_error(&error))?,
        };
        let mut bindings = Bindings::new(tx_cq, av);
        (bindings.rx_cq, bindings.rx_selective) = (rx_cq, rx_selective);
        bindings.tx_selective = tx_selective;
        bindings.av = bindings.av.filter(|_| !is_connected);
        bindings.eq.clone_from(&self.eq);
        bindings.srx.clone_from(&self.srx);
        bindings.cntrs = counters(&self.cntrs);
        Ok(bindings)
    }

    /// Returns whether a queue or counter is bound that reports `operations`.
    pub(super) fn has_any_of(&self, operations: Caps) -> bool {
        let queues = [(&self.tx_cq, SEND | INITIATED), (&self.rx_cq, RECV)];
        let mut queues = queues.into_iter();
        queues.any(|(queue, reported)| queue.is_some() && reported & operations.bits() != 0)
            || self.has_counter_for(operations.bits())
    }

    fn has_counter_for(&self, operations: u64) -> bool {
        let mut cntrs = self.cntrs.iter();
        cntrs.any(|(counted, _)| counted & operations != 0)
    }

    /// Checks that a queue or counter reports each direction among `caps` that the endpoint is used
    /// for.
    ///
    /// # Errors
    /// [`Errno::NoCq`] if a direction has neither queue nor counter.
    pub(super) fn check_reports(&self, info: &Info, caps: Caps) -> Result {
        for (queue, direction) in [(&self.tx_cq, SEND | INITIATED), (&self.rx_cq, RECV)] {
            let is_used = (info.caps & caps).bits() & direction != 0;
            if is_used && queue.is_none() && !self.has_counter_for(direction) {
                return Err(Errno::NoCq);
            }
        }
        Ok(())
    }

    /// Returns the queue of a direction. A direction without a queue, whose operations are reported
    /// by a counter or cannot be posted, gets an internal queue that reports no completions.
    fn queue(bound: &Queue, domain: &dyn Domain) -> Result<(Arc<dyn CompletionQueue>, bool)> {
        if let Some((cq, is_selective)) = bound {
            return Ok((Arc::clone(cq), *is_selective));
        }
        let internal = domain
            .cq(&cq::Attr::default())
            .map_err(|error| log_error(&error))?;
        Ok((internal, true))
    }
}
