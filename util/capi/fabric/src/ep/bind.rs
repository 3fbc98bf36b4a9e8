//! What endpoints are bound to, until they are enabled.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_int;
use std::sync::Arc;

use selvedge::info::EpType;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Counter, Domain, Errno, EventQueue, Info,
    Result, SharedReceives, av, cq,
};
use selvedge_abi::{Fid, fclass, number};

use super::Ep;
use super::shared::{Srx, Stx};
use crate::answer::{done, told};
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::eq::Eq;
use crate::given::given;
use crate::object::{User, argument, of_own_fid};

/// What is bound.
#[derive(Default)]
pub(super) struct Bound {
    tx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    rx_cq: Option<(Arc<dyn CompletionQueue>, bool)>,
    av: Option<Arc<dyn AddressVector>>,
    eq: Option<Arc<dyn EventQueue>>,
    /// With the operations that each counts.
    cntrs: Vec<(u64, Arc<dyn Counter>)>,
    srx: Option<Arc<dyn SharedReceives>>,
    has_stx: bool,
    users: Vec<User>,
}

const SEND: u64 = Caps::SEND.bits();
const RECV: u64 = Caps::RECV.bits();
const OWN: u64 = Caps::READ.union(Caps::WRITE).bits();
const REMOTE: u64 = Caps::REMOTE_READ.union(Caps::REMOTE_WRITE).bits();

/// # Safety
/// Both are handles.
pub(super) unsafe extern "C" fn bind(ep: *mut Fid, fid: *mut Fid, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { of_own_fid(ep) };
    done(|| {
        let mut draft = ep.shared.draft();
        if ep.shared.live.get().is_some() {
            return Err(Errno::OpBadState);
        }
        let is_other_half_s = ep.half.as_ref().is_some_and(|half| !half.takes(flags));
        if is_other_half_s {
            return Err(Errno::Inval);
        }
        let bound = &mut draft.bound;
        // SAFETY: passed on from the caller.
        match unsafe { given(fid) }?.fclass {
            // SAFETY: passed on from the caller.
            fclass::CQ => bound.add_cq(unsafe { argument(fid) }?, flags),
            // SAFETY: passed on from the caller.
            fclass::CNTR => bound.add_cntr(unsafe { argument(fid) }?, flags),
            // SAFETY: passed on from the caller.
            fclass::AV => bound.add_av(unsafe { argument(fid) }?),
            // SAFETY: passed on from the caller.
            fclass::EQ => bound.add_eq(unsafe { argument(fid) }?),
            // SAFETY: passed on from the caller.
            fclass::SRX_CTX => bound.add_srx(unsafe { argument(fid) }?),
            // SAFETY: passed on from the caller.
            fclass::STX_CTX => bound.add_stx(unsafe { argument(fid) }?),
            _ => Err(Errno::Inval),
        }
    })
}

impl Bound {
    fn add_cq(&mut self, cq: &Cq, flags: u64) -> Result {
        let selective = number::bind::SELECTIVE_COMPLETION;
        if flags & !(SEND | RECV | selective) != 0 {
            return Err(Errno::BadFlags);
        }
        let (sends, receives) = (flags & SEND != 0, flags & RECV != 0);
        let twice = sends && self.tx_cq.is_some() || receives && self.rx_cq.is_some();
        if twice || !(sends || receives) {
            return Err(Errno::Inval);
        }
        let is_selective = flags & selective != 0;
        if sends {
            self.tx_cq = Some((Arc::clone(&cq.own), is_selective));
        }
        if receives {
            self.rx_cq = Some((Arc::clone(&cq.own), is_selective));
        }
        self.users.push(cq.one_more_user());
        Ok(())
    }

    fn add_cntr(&mut self, cntr: &Cntr, flags: u64) -> Result {
        if flags & !(SEND | RECV | OWN | REMOTE) != 0 {
            return Err(Errno::BadFlags);
        }
        let taken = self.cntrs.iter().any(|(counted, _)| counted & flags != 0);
        if taken || flags == 0 {
            return Err(Errno::Inval);
        }
        self.cntrs.push((flags, Arc::clone(&cntr.own)));
        self.users.push(cntr.one_more_user());
        Ok(())
    }

    fn add_av(&mut self, av: &Av) -> Result {
        if self.av.is_some() {
            return Err(Errno::Inval);
        }
        self.av = Some(Arc::clone(&av.own));
        self.users.push(av.one_more_user());
        Ok(())
    }

    /// The vector of a scalable endpoint is that of its contexts.
    pub(super) fn add_av_if_none(&mut self, av: &Arc<dyn AddressVector>, user: &User) {
        if self.av.is_none() {
            self.av = Some(Arc::clone(av));
            self.users.push(user.clone());
        }
    }

    fn add_eq(&mut self, eq: &Eq) -> Result {
        if self.eq.is_some() {
            return Err(Errno::Inval);
        }
        self.eq = Some(Arc::clone(&eq.own));
        self.users.push(eq.one_more_user());
        Ok(())
    }

    fn add_srx(&mut self, srx: &Srx) -> Result {
        if self.srx.is_some() {
            return Err(Errno::Inval);
        }
        self.srx = Some(Arc::clone(&srx.own));
        self.users.push(srx.one_more_user());
        Ok(())
    }

    fn add_stx(&mut self, stx: &Stx) -> Result {
        if std::mem::replace(&mut self.has_stx, true) {
            return Err(Errno::Inval);
        }
        self.users.push(stx.one_more_user());
        Ok(())
    }

    /// What the object model wants to have for an endpoint.
    ///
    /// # Errors
    /// [`Errno::NoCq`], [`Errno::NoAv`] or [`Errno::NoEq`] for what is missing.
    pub(super) fn bindings(&self, info: &Info, domain: &dyn Domain) -> Result<Bindings> {
        let is_connected = info.ep_attr.ep_type == EpType::Msg;
        if is_connected && self.eq.is_none() {
            return Err(Errno::NoEq);
        }
        if !is_connected && self.av.is_none() {
            return Err(Errno::NoAv);
        }
        let (tx_cq, tx_selective) = self.queue(&self.tx_cq, info, SEND | OWN, domain)?;
        let (rx_cq, rx_selective) = self.queue(&self.rx_cq, info, RECV, domain)?;
        let av = match &self.av {
            Some(av) => Arc::clone(av),
            None => domain
                .av(&av::Attr::default())
                .map_err(|error| told(&error))?,
        };
        let mut bindings = Bindings::new(tx_cq, av);
        (bindings.rx_cq, bindings.rx_selective) = (rx_cq, rx_selective);
        bindings.tx_selective = tx_selective;
        bindings.av = bindings.av.filter(|_| !is_connected);
        bindings.eq.clone_from(&self.eq);
        bindings.srx.clone_from(&self.srx);
        for (counted, cntr) in &self.cntrs {
            let cntrs = &mut bindings.cntrs;
            let places = [
                (Caps::SEND, &mut cntrs.send),
                (Caps::RECV, &mut cntrs.recv),
                (Caps::READ, &mut cntrs.read),
                (Caps::WRITE, &mut cntrs.write),
                (Caps::REMOTE_READ, &mut cntrs.remote_read),
                (Caps::REMOTE_WRITE, &mut cntrs.remote_write),
            ];
            for (kind, place) in places {
                if counted & kind.bits() != 0 {
                    *place = Some(Arc::clone(cntr));
                }
            }
        }
        Ok(bindings)
    }

    /// The queue of a direction. Where a counter tells of all that is posted, or nothing can be
    /// posted, a queue of our own stands in, which reports nothing.
    fn queue(
        &self,
        bound: &Option<(Arc<dyn CompletionQueue>, bool)>,
        info: &Info,
        direction: u64,
        domain: &dyn Domain,
    ) -> Result<(Arc<dyn CompletionQueue>, bool)> {
        if let Some((cq, is_selective)) = bound {
            return Ok((Arc::clone(cq), *is_selective));
        }
        let is_counted = self
            .cntrs
            .iter()
            .any(|(counted, _)| counted & direction != 0);
        let is_used = info.caps.bits() & direction != 0;
        if is_used && !is_counted {
            return Err(Errno::NoCq);
        }
        let own = domain
            .cq(&cq::Attr::default())
            .map_err(|error| told(&error))?;
        Ok((own, true))
    }
}
