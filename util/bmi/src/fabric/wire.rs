//! The numbers that the method passes to the provider: contexts, tags and completion data.

/// Bits of a context that mark the method's own operations. The key of an application's operation
/// has neither bit.
pub(super) mod context_flags {
    /// A multi-receive buffer; its index follows.
    pub(crate) const SLAB: u64 = 1 << 63;
    /// A receive that matches no message and fails when its peer disconnects; the peer's index
    /// follows.
    pub(crate) const WATCH: u64 = 1 << 62;
}

/// The fabric tag of a BMI tag.
#[inline]
pub(super) const fn wire_tag(tag: i32) -> u64 {
    tag as u32 as u64
}

/// Encodes a message's tag and class as remote completion data.
pub(super) const fn encode_data(tag: i32, class: u8) -> u64 {
    tag as u32 as u64 | (class as u64) << 32
}

/// Decodes tag and class.
pub(super) const fn decode_data(data: u64) -> (i32, u8) {
    (data as u32 as i32, (data >> 32) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_every_tag_and_class() {
        for tag in [0, 1, -1, i32::MIN, i32::MAX] {
            for class in [0, 7, u8::MAX] {
                assert_eq!(decode_data(encode_data(tag, class)), (tag, class));
            }
        }
    }
}
