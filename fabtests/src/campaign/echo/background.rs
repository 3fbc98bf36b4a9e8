//! Random operations with peers that may be hostile or absent. Their results are ignored.

use std::collections::BTreeSet;

use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::random::Random;

use crate::campaign::endpoint::{Access, CampaignEndpoint, Kind, blank};
use crate::campaign::message::Stamp;
use crate::campaign::restart::restarted::kind_and_len;

/// The peers, and the operations that are outstanding with them.
#[derive(Debug)]
pub(crate) struct BackgroundTraffic {
    peers: Vec<FiAddr>,
    random: Random,
    open: BTreeSet<u64>,
    sent: u32,
}

/// Maximum number of outstanding operations.
const WINDOW: usize = 64;
/// Number of keys, from 0 on, of the memory that is accessed.
const KEYS: u64 = 5;
/// Mean number of calls of [`BackgroundTraffic::post_next`] between two operations.
const INTERVAL: u64 = 20;

impl BackgroundTraffic {
    /// Inserts the peers with these names into the address vector. They need not exist yet.
    ///
    /// # Errors
    /// A name is not a valid address.
    pub(crate) fn new(endpoint: &CampaignEndpoint, peers: &[String]) -> anyhow::Result<Self> {
        let peers = peers.iter().map(|name| endpoint.insert(name));
        Ok(Self {
            peers: peers.collect::<anyhow::Result<_>>()?,
            random: Random::new(1),
            open: BTreeSet::new(),
            sent: 0,
        })
    }

    /// Returns whether `context` belongs to one of these operations.
    pub(crate) fn contains(&self, context: u64) -> bool {
        self.open.contains(&context)
    }

    /// Records that an operation is complete. Its result is ignored, because the peers may send
    /// anything.
    pub(crate) fn complete(&mut self, context: u64) {
        self.open.remove(&context);
    }

    /// Posts an operation with a random peer, or a receive from any peer, on average once in
    /// [`INTERVAL`] calls. While [`WINDOW`] operations are outstanding, it cancels the oldest
    /// instead.
    pub(crate) fn post_next(&mut self, endpoint: &mut CampaignEndpoint) {
        if self.peers.is_empty() || !self.random.once_in(INTERVAL) {
            return;
        }
        if self.open.len() >= WINDOW {
            let oldest = self.open.first();
            return oldest.map_or((), |&context| endpoint.cancel(context));
        }
        let peer = *self.random.pick(&self.peers);
        self.sent = self.sent.wrapping_add(1);
        let stamp = Stamp::new(0, self.sent);
        let (kind, len) = kind_and_len(self.random.word() as u32);
        let posted = match self.random.below(9) {
            6.. => self.access(endpoint, peer, len),
            0 => endpoint.trecv(peer, len, TagMatch::ANY),
            1 => endpoint.recv(peer, len),
            2 => endpoint.recv(FiAddr::UNSPEC, len),
            3 => endpoint.send(Kind::Msg, peer, len, stamp),
            _ if kind.is_injected() => {
                // An inject has no completion.
                let _ = endpoint.send(kind, peer, len, stamp);
                return;
            }
            _ => endpoint.send(kind, peer, len, stamp),
        };
        // An error means that the peer is absent or has no room. It is ignored.
        self.open.extend(posted);
    }

    /// Accesses memory that the peer may have registered.
    fn access(
        &mut self,
        endpoint: &mut CampaignEndpoint,
        peer: FiAddr,
        len: usize,
    ) -> Result<u64, Errno> {
        let access = *self
            .random
            .pick(&[Access::Write, Access::Read, Access::Add]);
        endpoint.access(access, self.random.below(KEYS), peer, blank(len))
    }
}
