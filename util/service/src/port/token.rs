//! `Token`: the context of an operation, which says what its completion is for.

use selvedge::Context;

/// Identifies a connection of a hub. A key is not used again for another connection until 2^32
/// connections later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A receive for a frame of any peer.
    Frame,
    /// A `Hello`.
    Hello,
    /// The receive that fails when the connection's peer ends.
    End(Key),
    /// The receive of an announced payload.
    Bulk(Key),
    /// A send, with its slot.
    Sent(Key, u32),
    /// A send of lent memory.
    Lent(Key),
}

/// The lower three bits are the kind, the next six the slot, the next 23 the index, the upper 32
/// the generation.
const SLOT_SHIFT: u32 = 3;
const SLOT_MASK: u32 = 63;
const INDEX_SHIFT: u32 = 9;

impl Token {
    /// The context of the operation.
    pub(crate) fn context(self) -> Context {
        let none = Key {
            index: 0,
            generation: 0,
        };
        let (kind, key) = match self {
            Self::Frame => (1, none),
            Self::Hello => (2, none),
            Self::End(key) => (3, key),
            Self::Bulk(key) => (4, key),
            Self::Lent(key) => (6, key),
            Self::Sent(key, slot) => ((slot & SLOT_MASK) << SLOT_SHIFT | 5, key),
        };
        let index = key.index << INDEX_SHIFT | kind;
        Context(u64::from(key.generation) << 32 | u64::from(index))
    }

    /// The token of a completion; `None` for a context that this module has not made.
    pub(crate) fn parse(context: Context) -> Option<Self> {
        let Context(word) = context;
        let index = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        let key = Key {
            index: index >> INDEX_SHIFT,
            generation: u32::try_from(word >> 32).ok()?,
        };
        match index & 7 {
            1 => Some(Self::Frame),
            2 => Some(Self::Hello),
            3 => Some(Self::End(key)),
            4 => Some(Self::Bulk(key)),
            5 => Some(Self::Sent(key, index >> SLOT_SHIFT & SLOT_MASK)),
            6 => Some(Self::Lent(key)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_parsed_from_its_context() {
        let key = Key {
            index: (1 << 23) - 1,
            generation: u32::MAX,
        };
        let tokens = [
            Token::Frame,
            Token::Hello,
            Token::End(key),
            Token::Bulk(key),
            Token::Sent(key, 0),
            Token::Sent(key, 63),
            Token::Lent(key),
        ];
        for token in tokens {
            assert_eq!(Token::parse(token.context()), Some(token));
        }
        assert_eq!(Token::parse(Context(0)), None);
    }
}
