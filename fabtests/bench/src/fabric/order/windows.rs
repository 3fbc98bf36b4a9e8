//! The sizes of windows, buffers and messages.

/// The window for messages of `size` bytes: `window`, or fewer messages if the receive buffers of a
/// full window would take more than 64 MiB.
pub fn fitting_window(window: usize, size: usize) -> usize {
    window.min(RECEIVE_BUFFER_BYTES / (2 * stride(size))).max(1)
}

/// As [`fitting_window`], for datagrams. The system drops a datagram that does not fit into the
/// receive buffer of its socket. A datagram takes about a kilobyte besides its payload, and the
/// default size of the receive buffer is 208 KiB.
pub fn datagram_window(window: usize, size: usize) -> usize {
    window.min(SOCKET_BUFFER_BYTES / (size + 1024)).max(1)
}

/// Bytes of send buffers that suffice for messages of every size up to `largest`.
pub(in crate::fabric) fn side_bytes(window: usize, largest: usize) -> usize {
    // Send buffers take at most `window` strides, and at most half of `RECEIVE_BUFFER_BYTES` unless
    // a single message is larger.
    let stride = stride(largest);
    stride
        .max((window * stride).min(RECEIVE_BUFFER_BYTES / 2))
        .max(TEXT_LEN)
}

/// Distance of two consecutive buffers, in bytes: a multiple of a cache line.
pub(in crate::fabric) fn stride(size: usize) -> usize {
    size.next_multiple_of(LINE).max(LINE)
}

/// Largest message, in bytes. The buffers of both processes fit into a small machine's memory.
pub const MAX_MESSAGE_SIZE: usize = 64 << 20;
/// Largest window, in messages.
pub const MAX_WINDOW: usize = 4096;
/// Bytes of a text message; a shorter text is padded with spaces.
pub(in crate::fabric) const TEXT_LEN: usize = 1024;
/// Bytes of receive buffers, unless a single message is larger.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// About half of a socket's receive buffer, in bytes.
const SOCKET_BUFFER_BYTES: usize = 100 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_room_for_its_window() {
        for largest in [1, 64, 4096, 1 << 20, 4 << 20, MAX_MESSAGE_SIZE] {
            let side = side_bytes(64, largest);
            for size in [1, 60, 4096, 1 << 20, MAX_MESSAGE_SIZE] {
                if size <= largest {
                    assert!(fitting_window(64, size) * stride(size) <= side, "{size}");
                }
            }
        }
    }
}
