//! The ends of a message whose bytes are lent, not copied.
//!
//! Where a message is lent, its sender writes the first and the last bytes and its receiver checks
//! them, in every contestant alike. The bytes between them are neither written nor read: a
//! benchmark of lent messages measures the hand-over, not a copy.

use anyhow::ensure;

/// Writes the ends of a message: the lowest byte of its number.
#[inline]
pub fn write(message: &mut [u8], number: u64) {
    if let [first, ..] = message {
        *first = number as u8;
    }
    if let [.., last] = message {
        *last = number as u8;
    }
}

/// Checks the ends of a message.
///
/// # Errors
/// An error with the wrong ends.
#[inline]
pub fn check(message: &[u8], number: u64) -> anyhow::Result<()> {
    let ends = message.first().zip(message.last());
    let wanted = number as u8;
    ensure!(
        ends.is_none_or(|(&first, &last)| first == wanted && last == wanted),
        "the ends of message {number} are {ends:?}, not {wanted}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_another_message_are_refused() {
        for len in [0, 1, 2, 100] {
            let mut message = vec![0; len];
            write(&mut message, 0x107);
            check(&message, 0x107).unwrap();
            assert!(len == 0 || check(&message, 0x108).is_err());
            if let [.., last] = &mut message[..] {
                *last = 9;
                assert!(check(&message, 0x107).is_err());
            }
        }
    }
}
