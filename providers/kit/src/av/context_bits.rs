//! Which part of an index says which peer, and which one which of its contexts: `fi_rx_addr`.

use selvedge::{Errno, Error, FiAddr};

/// The most bits for contexts: what is left has room for more peers than there will be.
const MAX_BITS: u32 = 16;

/// How many of the upper bits are for contexts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextBits(u32);

impl ContextBits {
    pub(super) fn new(bits: u32) -> Result<Self, Error> {
        if bits > MAX_BITS {
            let what =
                format!("rx_ctx_bits of an address vector: asked for {bits}, has {MAX_BITS}");
            return Err(Error::new(Errno::Inval, what));
        }
        Ok(Self(bits))
    }

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

    /// `None` for a context that the bits cannot name.
    pub(super) fn whole(self, peer: FiAddr, context: usize) -> Option<FiAddr> {
        let whole = peer.rx_addr(context, self.0);
        (self.split(whole) == (peer, context)).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_with_a_context_is_taken_apart_as_it_was_put_together() {
        for (bits, contexts) in [(0, 1), (1, 2), (4, 16), (MAX_BITS, 1 << MAX_BITS)] {
            let bits = ContextBits::new(bits).unwrap();
            for peer in [0, 1, 1 << 40].map(FiAddr) {
                for context in [0, 1, contexts - 1, contexts] {
                    let whole = bits.whole(peer, context);
                    assert_eq!(whole.is_some(), context < contexts, "{bits:?} {context}");
                    assert!(whole.is_none_or(|it| bits.split(it) == (peer, context)));
                }
            }
        }
    }

    #[test]
    fn no_address_is_nobody_s_context() {
        let (peer, _) = ContextBits::new(MAX_BITS).unwrap().split(FiAddr::UNSPEC);
        assert_eq!(peer, FiAddr(u64::MAX >> MAX_BITS));
        let error = ContextBits::new(MAX_BITS + 1).unwrap_err().to_string();
        assert!(error.contains("17"), "{error}");
    }
}
