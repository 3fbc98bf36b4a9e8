//! Message contents that depend on the number of the message.

use anyhow::ensure;

/// Fills a message with the pattern of `seed`.
pub fn fill(message: &mut [u8], seed: u64) {
    for (index, word) in message.chunks_mut(8).enumerate() {
        word.copy_from_slice(&expected_word(seed, index)[..word.len()]);
    }
}

/// Checks that a message has the pattern of `seed`.
///
/// # Errors
/// The first wrong word, with its value and the expected one.
pub fn check(message: &[u8], seed: u64) -> anyhow::Result<()> {
    for (index, word) in message.chunks(8).enumerate() {
        let expected = &expected_word(seed, index)[..word.len()];
        ensure!(
            word == expected,
            "message {seed:#x} of {} bytes is wrong at byte {}: {word:02x?}, expected {expected:02x?}",
            message.len(),
            index * 8
        );
    }
    Ok(())
}

/// Word `index` of the splitmix64 sequence. Every bit depends on the seed and the index.
fn expected_word(seed: u64, index: usize) -> [u8; 8] {
    let mut word = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_message_checks_and_a_changed_one_does_not() {
        for len in [1, 7, 8, 100] {
            let mut message = vec![0; len];
            fill(&mut message, 42);
            check(&message, 42).unwrap();
            assert!(check(&message, 43).is_err());
            message[len - 1] ^= 1;
            let error = check(&message, 42).unwrap_err().to_string();
            assert!(
                error.contains(&format!("byte {}", (len - 1) / 8 * 8)),
                "{error}"
            );
        }
    }
}
