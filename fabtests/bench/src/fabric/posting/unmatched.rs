//! Posts of receives that no message matches, and of empty messages.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use anyhow::anyhow;
use selvedge::{Context, Desc, Endpoint, FiAddr, Iov, IovMut, TagMatch, TaggedExt};

use crate::measure::buffer::Pages;

/// Posts a tagged receive for each tag. `memory` outlives the endpoint, and no code reads the bytes
/// received into it.
///
/// # Errors
/// The provider's error.
pub(in crate::fabric) fn post_unmatched(
    ep: &dyn Endpoint,
    memory: &mut Pages,
    tags: impl Iterator<Item = u64>,
) -> anyhow::Result<()> {
    let buf = IovMut::new(memory);
    for tag in tags {
        let context = Context(UNMATCHED);
        // SAFETY: the memory outlives the endpoint (`BenchEndpoint`'s order of fields), and no code
        // accesses it afterwards.
        let posted = unsafe {
            ep.trecv(
                buf,
                Desc::NONE,
                FiAddr::UNSPEC,
                TagMatch::exact(tag),
                context,
            )
        };
        posted
            .map_err(|errno| anyhow!("cannot post a receive that no message matches: {errno}"))?;
    }
    Ok(())
}

/// Sends an empty tagged message.
///
/// # Errors
/// The provider's error.
pub(in crate::fabric) fn send_empty(ep: &dyn Endpoint, dest: FiAddr, tag: u64) -> selvedge::Result {
    // SAFETY: the message has no memory.
    unsafe { ep.tsend(Iov::new(&[]), Desc::NONE, dest, tag, Context(SENT)) }
}

/// Distinguishes the contexts of sends from those of receives.
pub(super) const SENT: u64 = 1 << 32;
/// Context of receives that no message matches.
const UNMATCHED: u64 = 1 << 33;
