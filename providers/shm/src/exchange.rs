//! The exchange of addresses: who has which index in whose address vector.
//!
//! Each endpoint writes a peer's index into the region that it has made for this peer, whenever
//! there is one. Usually that is from the first message on. With `FI_SHM_EAGER_EXCHANGE` an endpoint
//! makes contact with every address that is inserted, so that both sides know as soon as both have
//! inserted each other.

use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::name::Name;
use crate::peer::State as PeerState;
use crate::smr::Addr;
use crate::state::State;

/// Between two looks for peers that were not there.
const INTERVAL: Duration = Duration::from_millis(10);

/// When the endpoint last looked for the peers of its address vector.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// The address vector, as it was then.
    epoch: Option<u64>,
    next: Option<Instant>,
}

impl Endpoint {
    /// The endpoint's view of its peers: every address of its address vector in the order of
    /// indices, each with the index that this endpoint has in that peer's address vector. That is
    /// unknown until there was contact with the peer (see `FI_SHM_EAGER_EXCHANGE`) and the peer has
    /// inserted this endpoint.
    ///
    /// Makes no progress and no contact. Empty in a child that was forked from the endpoint's process.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::any::Any;
    /// use std::sync::Arc;
    ///
    /// fn print(ep: Arc<dyn selvedge::Endpoint>) {
    ///     let ep: Arc<dyn Any + Send + Sync> = ep;
    ///     if let Ok(ep) = ep.downcast::<selvedge_shm::Endpoint>() {
    ///         for (index, addr) in ep.peer_table().iter().enumerate() {
    ///             println!("{index} {addr}");
    ///         }
    ///     }
    /// }
    /// ```
    pub fn peer_table(&self) -> Vec<Addr> {
        let Ok(state) = self.inner.state.lock() else {
            return Vec::new();
        };
        let names = state.av.names();
        names.iter().map(|name| state.addr_of(name)).collect()
    }
}

impl State {
    fn addr_of(&self, name: &Name) -> Addr {
        let peer = self
            .names
            .get(name)
            .map(|&index| &self.peers[index as usize]);
        let inbox = peer.and_then(|peer| peer.inbox.as_ref());
        Addr {
            name: name.to_string(),
            index: inbox.and_then(|inbox| inbox.region.peer_addr().index),
        }
    }

    /// Makes contact with inserted addresses and tells the peers their indices, when the address
    /// vector has changed, and now and then as long as some peer was not met.
    #[cold]
    pub(crate) fn exchange_addresses(&mut self, now: Instant) {
        let epoch = self.av.epoch();
        let is_due = self.exchange.next.is_some_and(|next| now >= next);
        if self.exchange.epoch == Some(epoch) && !is_due {
            return;
        }
        let mut is_complete = true;
        for index in 0..self.peers.len() {
            self.peers[index].fi_addr(&self.av);
        }
        for name in self.av.names() {
            let index = self.peer_named(&name);
            is_complete &= self.meet_inserted(index);
        }
        self.exchange = Exchange {
            epoch: Some(epoch),
            next: (!is_complete).then(|| now + INTERVAL),
        };
    }

    /// Introduces this endpoint to a peer that it has never met. `false` while there is none: that
    /// is no fault, and a later message to it waits for it as always.
    fn meet_inserted(&mut self, index: usize) -> bool {
        if self.peers[index].state != PeerState::Idle {
            return true;
        }
        let met = self.introduce(index);
        if let Err(error) = &met {
            log::debug!(
                target: "selvedge::shm::ep_ctrl",
                "{} was not met: {error:?}", self.peers[index].name
            );
            self.peers[index].out = None;
        }
        met.is_ok()
    }
}
