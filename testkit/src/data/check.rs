//! Checks, which are counted: a test that checks nothing proves nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{anyhow, bail};

static CHECKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// How many checks this process has made, and how many bytes it has compared.
pub fn counts() -> (u64, u64) {
    (
        CHECKS.load(Ordering::Relaxed),
        BYTES.load(Ordering::Relaxed),
    )
}

/// Counts a check that was made otherwise.
pub fn count(bytes: usize) {
    CHECKS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Something is as it should be.
///
/// # Errors
/// What is, and what should be.
pub fn same<T: PartialEq + fmt::Debug>(
    what: impl fmt::Display,
    found: T,
    expected: T,
) -> anyhow::Result<()> {
    count(0);
    let both = [found, expected];
    match both[0] == both[1] {
        true => Ok(()),
        false => Err(anyhow!("{what}: {:?} instead of {:?}", both[0], both[1])),
    }
}

/// Something holds.
///
/// # Errors
/// What should hold.
pub fn holds(what: impl fmt::Display, is_so: bool) -> anyhow::Result<()> {
    count(0);
    match is_so {
        true => Ok(()),
        false => Err(anyhow!("{what}: this should hold")),
    }
}

/// Bytes are as they should be.
///
/// # Errors
/// The first that is not.
pub fn bytes(what: impl fmt::Display, found: &[u8], expected: &[u8]) -> anyhow::Result<()> {
    count(found.len());
    if found.len() != expected.len() {
        bail!(
            "{what}: {} bytes instead of {}",
            found.len(),
            expected.len()
        );
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => bail!(
            "{what}: byte {at} of {} is {:02x} instead of {:02x}",
            found.len(),
            found[at],
            expected[at]
        ),
    }
}
