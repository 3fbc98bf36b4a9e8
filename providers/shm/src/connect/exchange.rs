//! The exchange of addresses: who has which index in whose address vector.
//!
//! Each endpoint writes a peer's index into the region that it has made for this peer, whenever
//! there is one. Usually that is from the first message on. With `FI_SHM_EAGER_EXCHANGE` an endpoint
//! makes contact with every address that is inserted, so that both sides know as soon as both have
//! inserted each other.

use std::time::{Duration, Instant};

use crate::connect::Connector;
use crate::connect::control::Exchange;
use crate::peers::peer::State as PeerState;

/// Between two looks for peers that were not there.
const INTERVAL: Duration = Duration::from_millis(10);

impl Connector<'_> {
    /// Connects to inserted addresses and tells the peers their indices, when the address vector has
    /// changed, and now and then as long as some peer was not connected to.
    #[cold]
    pub(crate) fn exchange_addresses(&mut self, now: Instant) {
        let av = &self.setup.av;
        let epoch = av.epoch();
        let is_due = self.control.exchange.next.is_some_and(|next| now >= next);
        if self.control.exchange.epoch == Some(epoch) && !is_due {
            return;
        }
        for peer in self.peers.iter_mut() {
            peer.fi_addr(av);
        }
        let mut is_complete = true;
        for name in av.names() {
            let index = self.peers.named(&name);
            is_complete &= self.connect_inserted(index);
        }
        self.control.exchange = Exchange {
            epoch: Some(epoch),
            next: (!is_complete).then(|| now + INTERVAL),
        };
    }

    /// Connects to a peer that was never connected to. `false` while there is none: that is no fault,
    /// and a later message to it waits for it as always.
    fn connect_inserted(&mut self, index: usize) -> bool {
        if self.peers[index].state != PeerState::Idle {
            return true;
        }
        let connected = self.introduce(index);
        if let Err(error) = &connected {
            log::debug!(
                target: "selvedge::shm::ep_ctrl",
                "{} was not met: {error:?}", self.peers[index].name
            );
            self.peers[index].out = None;
        }
        connected.is_ok()
    }
}
