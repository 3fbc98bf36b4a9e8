//! The contexts of a scalable endpoint, and their halves.
//!
//! The object model has one endpoint where libfabric has a transmit and a receive context of one
//! index. Those two are the halves of a context. The context opens when both halves are enabled,
//! when an enabled half is used, or when the receive half is enabled while there is no transmit
//! half: peers may reach it from then on. A half that is enabled later is bound to the open
//! endpoint.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::{Address, AddressVector, Caps, Domain, Endpoint, Info, Result, ScalableEndpoint};
use selvedge_abi::fclass;

use super::bound::Bound;
use crate::object::User;
use crate::status::log_error;

/// The state that a scalable endpoint shares with its contexts.
pub(super) struct Common {
    pub(super) inner: Arc<dyn ScalableEndpoint>,
    pub(super) av: OnceLock<(Arc<dyn AddressVector>, User)>,
}

/// A context: its index, and the states of its halves.
pub(super) struct Context {
    pub(super) common: Arc<Common>,
    pub(super) index: usize,
    pub(super) halves: Mutex<[State; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Open,
    Enabled,
}

/// The half of a context that an `Ep` represents.
pub(super) struct Half {
    pub(super) context: Arc<Context>,
    pub(super) side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Tx,
    Rx,
}

const TX: Caps = Caps::SEND.union(Caps::READ).union(Caps::WRITE);
const RX: Caps = Caps::RECV
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE);

impl Side {
    pub(super) const fn caps(self) -> Caps {
        match self {
            Self::Tx => TX,
            Self::Rx => RX,
        }
    }
}

impl Context {
    pub(super) fn halves(&self) -> MutexGuard<'_, [State; 2]> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the context with the bindings of its halves.
    ///
    /// # Errors
    /// [`selvedge::Errno::NoCq`] or [`selvedge::Errno::NoAv`] for a missing binding; the
    /// provider's.
    pub(super) fn open(
        &self,
        info: &Info,
        bound: &mut Bound,
        domain: &dyn Domain,
    ) -> Result<Arc<dyn Endpoint>> {
        if let Some((av, user)) = self.common.av.get() {
            bound.add_av_if_none(av, user);
        }
        // The bindings of a half that is not enabled are not checked: the half needs no queue.
        let mut used_info = info.clone();
        let halves = *self.halves();
        for side in [Side::Tx, Side::Rx] {
            if halves[side as usize] != State::Enabled {
                used_info.caps.remove(side.caps());
            }
        }
        let bindings = bound.bindings(&used_info, domain)?;
        let opened = self.common.inner.context(self.index, info, bindings);
        opened.map_err(|error| log_error(&error))
    }
}

impl Half {
    pub(super) const fn side(&self) -> Side {
        self.side
    }

    /// `FI_CLASS_*` of the half's handle.
    pub(super) const fn fclass(&self) -> usize {
        match self.side {
            Side::Tx => fclass::TX_CTX,
            Side::Rx => fclass::RX_CTX,
        }
    }

    /// Returns whether the half can be bound to a queue or counter with these flags.
    pub(super) fn accepts(&self, flags: u64) -> bool {
        let others = Side::Tx.caps().union(Side::Rx.caps()) - self.side.caps();
        flags & others.bits() == 0
    }

    /// The address of the scalable endpoint, which exists before the context is open.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::address`].
    pub(super) fn address(&self) -> Result<Address> {
        self.context.common.inner.address()
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.context.halves()[self.side as usize] == State::Enabled
    }

    pub(super) fn set(&self, state: State) {
        self.context.halves()[self.side as usize] = state;
    }

    /// Returns whether the context opens now that this half is enabled.
    pub(super) fn opens_context(&self) -> bool {
        let [tx, rx] = *self.context.halves();
        rx == State::Enabled && tx != State::Open
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.set(State::Absent);
    }
}
