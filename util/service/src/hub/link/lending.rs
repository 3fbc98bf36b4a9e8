//! `Lending`: the payloads of one connection that are lent to the peer.

/// The maximum number of payloads that are lent to a peer. The peer receives copies of further
/// ones, so that a peer that keeps what it has received keeps no more of the sender's memory.
const LENT_MAX: u32 = 8;

/// The payloads of one connection that are lent to the peer.
#[derive(Debug, Default)]
pub(super) struct Lending {
    /// Whether this side accepts payloads that the peer lends.
    pub(super) is_accepted: bool,
    /// The number of payloads that the peer has not given back.
    lent: u32,
}

impl Lending {
    pub(super) const fn has_room(&self) -> bool {
        self.lent < LENT_MAX
    }

    /// Counts a lent payload.
    pub(super) const fn lend(&mut self) {
        self.lent += 1;
    }

    /// Counts a payload that was given back.
    pub(super) const fn give_back(&mut self) {
        self.lent = self.lent.saturating_sub(1);
    }

    pub(super) const fn is_any_lent(&self) -> bool {
        self.lent > 0
    }
}
