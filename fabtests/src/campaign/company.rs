//! Operations with others who need not be good: whatever becomes of them, there are always some.

use std::collections::BTreeSet;

use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::random::Random;

use super::endpoint::{Access, CampaignEndpoint, Kind, blank};
use super::message::Stamp;
use super::phoenix::something;

/// The others, and what is outstanding with them.
#[derive(Debug)]
pub(crate) struct Company {
    others: Vec<FiAddr>,
    random: Random,
    open: BTreeSet<u64>,
    sent: u32,
}

/// Operations that are outstanding at most.
const WINDOW: usize = 64;
/// Keys of memory that is accessed.
const KEYS: u64 = 5;
/// Turns between two operations.
const PACE: u64 = 20;

impl Company {
    /// The endpoints of these names, which need not be there yet.
    ///
    /// # Errors
    /// When a name is none.
    pub(crate) fn new(endpoint: &CampaignEndpoint, others: &[String]) -> anyhow::Result<Self> {
        let others = others.iter().map(|name| endpoint.insert(name));
        Ok(Self {
            others: others.collect::<anyhow::Result<_>>()?,
            random: Random::new(1),
            open: BTreeSet::new(),
            sent: 0,
        })
    }

    /// Whether an operation is one of these.
    pub(crate) fn has(&self, context: u64) -> bool {
        self.open.contains(&context)
    }

    /// An operation is over. What others sent is nobody's business.
    pub(crate) fn book(&mut self, context: u64) {
        self.open.remove(&context);
    }

    /// Posts something now and then, to or from one of them, or from anybody.
    pub(crate) fn turn(&mut self, endpoint: &mut CampaignEndpoint) {
        if self.others.is_empty() || !self.random.once_in(PACE) {
            return;
        }
        if self.open.len() >= WINDOW {
            let oldest = self.open.first();
            return oldest.map_or((), |&context| endpoint.cancel(context));
        }
        let them = *self.random.pick(&self.others);
        self.sent = self.sent.wrapping_add(1);
        let stamp = Stamp::new(0, self.sent);
        let (kind, len) = something(self.random.word() as u32);
        let posted = match self.random.below(9) {
            6.. => self.access(endpoint, them, len),
            0 => endpoint.trecv(them, len, TagMatch::ANY),
            1 => endpoint.recv(them, len),
            2 => endpoint.recv(FiAddr::UNSPEC, len),
            3 => endpoint.send(Kind::Msg, them, len, stamp),
            _ if kind.is_injected() => {
                // It never completes.
                let _ = endpoint.send(kind, them, len, stamp);
                return;
            }
            _ => endpoint.send(kind, them, len, stamp),
        };
        // Whoever is gone, or has no room, is left alone until the next turn.
        self.open.extend(posted);
    }

    /// Accesses memory that one of them may have.
    fn access(
        &mut self,
        endpoint: &mut CampaignEndpoint,
        them: FiAddr,
        len: usize,
    ) -> Result<u64, Errno> {
        let access = *self
            .random
            .pick(&[Access::Write, Access::Read, Access::Add]);
        endpoint.access(access, self.random.below(KEYS), them, blank(len))
    }
}
