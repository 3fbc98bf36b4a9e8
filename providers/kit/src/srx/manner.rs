//! How receives are taken: which of them may name their source.

use selvedge::{Caps, FiAddr, Info};

use super::Kind;

/// How an endpoint takes receives.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The source that means any peer, without a further look: none where a receive has to name its
    /// peer.
    pub any: FiAddr,
    directs_msgs: bool,
    directs_tags: bool,
    /// Bytes below which a multi-receive buffer is given back.
    pub least: usize,
}

impl Manner {
    /// The manner that the capabilities of `info` mean; multi-receive buffers are given back below
    /// `least` bytes unless that is changed.
    pub fn new(info: &Info, least: usize) -> Self {
        let caps = info.caps | info.rx_attr.caps;
        let directs_msgs = caps.contains(Caps::DIRECTED_RECV);
        Self {
            any: match caps.contains(Caps::EXACT_DIRECTED_RECV) {
                true => NO_ADDR,
                false => FiAddr::UNSPEC,
            },
            directs_msgs,
            directs_tags: directs_msgs || caps.contains(Caps::TAGGED_DIRECTED_RECV),
            least,
        }
    }

    /// Whether receives of this kind may name their source; otherwise what they name means nothing.
    pub const fn directs(&self, kind: Kind) -> bool {
        match kind {
            Kind::Msg => self.directs_msgs,
            Kind::Tagged => self.directs_tags,
        }
    }
}

/// An index that no address vector gives out.
const NO_ADDR: FiAddr = FiAddr(u64::MAX - 1);
