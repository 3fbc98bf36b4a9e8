//! Counted checks: a test without checks fails.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{anyhow, bail};

static CHECKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of checks of this process, and the number of compared bytes.
pub fn counts() -> (u64, u64) {
    (
        CHECKS.load(Ordering::Relaxed),
        BYTES.load(Ordering::Relaxed),
    )
}

/// Counts a check that was made by other code.
pub fn count(bytes: usize) {
    CHECKS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Checks that two values are equal.
///
/// # Errors
/// Both values, if they differ.
pub fn same<T: PartialEq + fmt::Debug>(
    subject: impl fmt::Display,
    found: T,
    expected: T,
) -> anyhow::Result<()> {
    count(0);
    let both = [found, expected];
    if both[0] == both[1] {
        Ok(())
    } else {
        Err(anyhow!("{subject}: {:?} instead of {:?}", both[0], both[1]))
    }
}

/// Checks that a condition is true.
///
/// # Errors
/// The condition, if it is false.
pub fn holds(subject: impl fmt::Display, condition: bool) -> anyhow::Result<()> {
    count(0);
    if condition {
        Ok(())
    } else {
        Err(anyhow!("{subject}: the condition is false"))
    }
}

/// Checks that two byte strings are equal.
///
/// # Errors
/// The first byte that differs.
pub fn bytes(subject: impl fmt::Display, found: &[u8], expected: &[u8]) -> anyhow::Result<()> {
    count(found.len());
    if found.len() != expected.len() {
        bail!(
            "{subject}: {} bytes instead of {}",
            found.len(),
            expected.len()
        );
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(index) => bail!(
            "{subject}: byte {index} of {} is {:02x} instead of {:02x}",
            found.len(),
            found[index],
            expected[index]
        ),
    }
}
