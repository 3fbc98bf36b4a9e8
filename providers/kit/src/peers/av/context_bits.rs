//! The bits of an address that name a context of a peer (`fi_rx_addr` of fi_av(3)).

use selvedge::{Errno, Error, FiAddr};

/// The largest number of context bits. The other 48 bits of an address suffice for the peers.
const MAX_BITS: u32 = 16;

/// The number of upper bits of an address that name a context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextBits(u32);

impl ContextBits {
    pub(super) fn new(bits: u32) -> Result<Self, Error> {
        if bits > MAX_BITS {
            let message =
                format!("rx_ctx_bits of an address vector: requested {bits}, has {MAX_BITS}");
            return Err(Error::new(Errno::Inval, message));
        }
        Ok(Self(bits))
    }

    /// Returns the address of the peer and the index of its context.
    #[inline]
    pub(super) const fn split(self, addr: FiAddr) -> (FiAddr, usize) {
        match self.0 {
            0 => (addr, 0),
            bits => {
                let context = addr.0 >> (u64::BITS - bits);
                (FiAddr(addr.0 << bits >> bits), context as usize)
            }
        }
    }

    /// Returns the address of a peer's context; `None` if the bits cannot represent `context`.
    pub(super) fn join(self, peer: FiAddr, context: usize) -> Option<FiAddr> {
        let join = peer.rx_addr(context, self.0);
        (self.split(join) == (peer, context)).then_some(join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_reverses_join() {
        for (bits, contexts) in [(0, 1), (1, 2), (4, 16), (MAX_BITS, 1 << MAX_BITS)] {
            let bits = ContextBits::new(bits).unwrap();
            for peer in [0, 1, 1 << 40].map(FiAddr) {
                for context in [0, 1, contexts - 1, contexts] {
                    let join = bits.join(peer, context);
                    assert_eq!(join.is_some(), context < contexts, "{bits:?} {context}");
                    assert!(join.is_none_or(|it| bits.split(it) == (peer, context)));
                }
            }
        }
    }

    #[test]
    fn the_unspecified_address_names_no_context() {
        let (peer, _) = ContextBits::new(MAX_BITS).unwrap().split(FiAddr::UNSPEC);
        assert_eq!(peer, FiAddr(u64::MAX >> MAX_BITS));
        let error = ContextBits::new(MAX_BITS + 1).unwrap_err().to_string();
        assert!(error.contains("17"), "{error}");
    }
}
