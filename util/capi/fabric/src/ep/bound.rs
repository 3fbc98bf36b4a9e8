//! `Bound`: the objects that an endpoint is bound to.

use std::sync::Arc;

use selvedge::info::EpType;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Counter, Counters, Domain, Errno, EventQueue,
    Info, Result, SharedReceives, av, cq,
};
use selvedge_abi::number;

use crate::object::User;
use crate::status::log_error;

/// The objects that an endpoint is bound to.
#[derive(Clone, Default)]
pub(super) struct Bound {
    pub(super) tx_cq: Queue,
    pub(super) rx_cq: Queue,
    av: Option<Arc<dyn AddressVector>>,
    eq: Option<Arc<dyn EventQueue>>,
    /// The counters, each with the operations that it counts.
    pub(super) cntrs: Vec<(u64, Arc<dyn Counter>)>,
    srx: Option<Arc<dyn SharedReceives>>,
    has_stx: bool,
    pub(super) users: Vec<User>,
}

/// An object to bind, and the use of its handle.
pub(super) type Bindable<T> = (Arc<T>, User);

/// A completion queue, and whether it is bound with `FI_SELECTIVE_COMPLETION`.
pub(super) type Queue = Option<(Arc<dyn CompletionQueue>, bool)>;

pub(super) const SEND: u64 = Caps::SEND.bits();
pub(super) const RECV: u64 = Caps::RECV.bits();
const INITIATED: u64 = Caps::READ.union(Caps::WRITE).bits();
const TARGETED: u64 = Caps::REMOTE_READ.union(Caps::REMOTE_WRITE).bits();

impl Bound {
    pub(super) fn add_cq(
        &mut self,
        (cq, user): Bindable<dyn CompletionQueue>,
        flags: u64,
    ) -> Result {
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
            self.tx_cq = Some((Arc::clone(&cq), is_selective));
        }
        if receives {
            self.rx_cq = Some((cq, is_selective));
        }
        self.users.push(user);
        Ok(())
    }

    pub(super) fn add_cntr(&mut self, (cntr, user): Bindable<dyn Counter>, flags: u64) -> Result {
        if flags & !(SEND | RECV | INITIATED | TARGETED) != 0 {
            return Err(Errno::BadFlags);
        }
        let is_counted = self.cntrs.iter().any(|(counted, _)| counted & flags != 0);
        if is_counted || flags == 0 {
            return Err(Errno::Inval);
        }
        self.cntrs.push((flags, cntr));
        self.users.push(user);
        Ok(())
    }

    /// Adds the vector of a half of a context. A program may bind the same vector to both halves.
    pub(super) fn add_av_of_half(&mut self, av: Bindable<dyn AddressVector>) -> Result {
        match &self.av {
            Some(bound) if Arc::ptr_eq(bound, &av.0) => Ok(()),
            _ => self.add_av(av),
        }
    }

    pub(super) fn add_av(&mut self, (av, user): Bindable<dyn AddressVector>) -> Result {
        if self.av.is_some() {
            return Err(Errno::Inval);
        }
        self.av = Some(av);
        self.users.push(user);
        Ok(())
    }

    /// Adds the vector of a scalable endpoint to a context.
    pub(super) fn add_av_if_none(&mut self, av: &Arc<dyn AddressVector>, user: &User) {
        if self.av.is_none() {
            self.av = Some(Arc::clone(av));
            self.users.push(user.clone());
        }
    }

    pub(super) fn add_eq(&mut self, (eq, user): Bindable<dyn EventQueue>) -> Result {
        if self.eq.is_some() {
            return Err(Errno::Inval);
        }
        self.eq = Some(eq);
        self.users.push(user);
        Ok(())
    }

    pub(super) fn add_srx(&mut self, (srx, user): Bindable<dyn SharedReceives>) -> Result {
        if self.srx.is_some() {
            return Err(Errno::Inval);
        }
        self.srx = Some(srx);
        self.users.push(user);
        Ok(())
    }

    pub(super) fn add_stx(&mut self, user: User) -> Result {
        if std::mem::replace(&mut self.has_stx, true) {
            return Err(Errno::Inval);
        }
        self.users.push(user);
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

/// Counters by the operations that they count.
pub(super) fn counters<'a>(
    bound: impl IntoIterator<Item = &'a (u64, Arc<dyn Counter>)>,
) -> Counters {
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
