//! The exchange of addresses: each endpoint tells its peers their indices in its address vector.
//!
//! An endpoint writes the index of a peer into the region that it has created for this peer. The
//! region exists from the first message to the peer on. With `FI_SHM_EAGER_EXCHANGE` an endpoint
//! connects to every inserted address, so both sides have their indices as soon as both have
//! inserted each other.

use std::time::{Duration, Instant};

use crate::connect::Connector;
use crate::connect::control::AddressExchange;
use crate::peers::peer::State as PeerState;

/// The interval between two attempts to connect to peers that do not exist yet.
const INTERVAL: Duration = Duration::from_millis(10);

impl Connector<'_> {
    /// Connects to inserted addresses and publishes their indices to the peers. Takes effect when
    /// the address vector has changed, and at intervals while a peer is not connected.
    #[cold]
    pub(crate) fn exchange_addresses(&mut self, now: Instant) {
        let av = &self.setup.av;
        let epoch = av.epoch();
        let has_elapsed = self
            .control
            .exchange
            .next_time
            .is_some_and(|time| now >= time);
        if self.control.exchange.epoch == Some(epoch) && !has_elapsed {
            return;
        }
        for peer in self.peers.iter_mut() {
            peer.fi_addr(av);
        }
        let mut is_complete = true;
        for name in av.names() {
            let index = self.peers.find_or_add(&name);
            is_complete &= self.connect_inserted(index);
        }
        self.control.exchange = AddressExchange {
            epoch: Some(epoch),
            next_time: (!is_complete).then(|| now + INTERVAL),
        };
    }

    /// Connects to a peer that was never connected. Returns `false` if the peer does not exist yet,
    /// which is no error: a later message to it waits for the peer.
    fn connect_inserted(&mut self, index: usize) -> bool {
        if self.peers[index].state != PeerState::Idle {
            return true;
        }
        let connected = self.connect(index);
        if let Err(error) = &connected {
            log::debug!(
                target: "selvedge::shm::ep_ctrl",
                "{} was not connected: {error:?}", self.peers[index].name
            );
            self.peers[index].out = None;
        }
        connected.is_ok()
    }
}
