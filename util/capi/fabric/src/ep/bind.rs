//! fi_ep_bind(3): binds all kinds of objects before an endpoint is enabled, some kinds afterwards.

#![expect(unsafe_code, reason = "functions of C")]

use std::sync::Arc;

use selvedge::{Endpoint, Errno, Error, LateBindings, Result};
use selvedge_abi::{Fid, fclass};

use super::bound::{Bound, Queue, RECV, SEND, counters};
use super::endpoint::Ep;
use super::shared::{Srx, Stx};
use crate::av::Av;
use crate::object::argument;
use crate::pointer::required;
use crate::queue::cntr::Cntr;
use crate::queue::cq::Cq;
use crate::queue::eq::Eq;
use crate::status::log_error;

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
            fclass::CQ => {
                // SAFETY: as above.
                let cq = unsafe { argument::<Cq>(fid) }?;
                bound.add_cq((Arc::clone(&cq.inner), cq.new_user()), flags)
            }
            fclass::CNTR => {
                // SAFETY: as above.
                let cntr = unsafe { argument::<Cntr>(fid) }?;
                bound.add_cntr((Arc::clone(&cntr.inner), cntr.new_user()), flags)
            }
            fclass::AV => {
                // SAFETY: as above.
                let av = unsafe { argument::<Av>(fid) }?;
                let av = (Arc::clone(&av.inner), av.new_user());
                match &self.half {
                    Some(_) => bound.add_av_of_half(av),
                    None => bound.add_av(av),
                }
            }
            fclass::EQ => {
                // SAFETY: as above.
                let eq = unsafe { argument::<Eq>(fid) }?;
                bound.add_eq((Arc::clone(&eq.inner), eq.new_user()))
            }
            fclass::SRX_CTX => {
                // SAFETY: as above.
                let srx = unsafe { argument::<Srx>(fid) }?;
                bound.add_srx((Arc::clone(&srx.0), srx.new_user()))
            }
            // SAFETY: as above.
            fclass::STX_CTX => bound.add_stx(unsafe { argument::<Stx>(fid) }?.new_user()),
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
