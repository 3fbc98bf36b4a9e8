//! The receive policy of an endpoint: the kinds of receives that may name their source, the minimum
//! of multi-receive buffers, and the flags of plain receives.

use selvedge::{Caps, FiAddr, Info, OpFlags};

use super::Kind;

/// The flags that every receive may have, a plain one included.
pub const COMMON_FLAGS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MORE);

/// The receive policy of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ReceivePolicy {
    /// The source that means any peer, and needs no lookup. No valid source equals it where a
    /// receive has to name its peer ([`Caps::EXACT_DIRECTED_RECV`]).
    pub any_source: FiAddr,
    msgs_are_directed: bool,
    tags_are_directed: bool,
    /// A multi-receive buffer is given back when fewer bytes than this are left
    /// (`FI_OPT_MIN_MULTI_RECV`).
    pub min_multi_recv: usize,
}

impl ReceivePolicy {
    /// Makes the policy for the capabilities of `info`. Multi-receive buffers are given back below
    /// `min_multi_recv` bytes, until the application changes the minimum.
    pub fn new(info: &Info, min_multi_recv: usize) -> Self {
        let caps = info.caps | info.rx_attr.caps;
        let msgs_are_directed = caps.contains(Caps::DIRECTED_RECV);
        Self {
            any_source: if caps.contains(Caps::EXACT_DIRECTED_RECV) {
                NO_ADDR
            } else {
                FiAddr::UNSPEC
            },
            msgs_are_directed,
            tags_are_directed: msgs_are_directed || caps.contains(Caps::TAGGED_DIRECTED_RECV),
            min_multi_recv,
        }
    }

    /// Whether receives of this kind may name their source. If not, their source is ignored.
    pub const fn is_directed(&self, kind: Kind) -> bool {
        match kind {
            Kind::Msg => self.msgs_are_directed,
            Kind::Tagged => self.tags_are_directed,
        }
    }
}

/// An index that no address vector returns.
const NO_ADDR: FiAddr = FiAddr(u64::MAX - 1);
