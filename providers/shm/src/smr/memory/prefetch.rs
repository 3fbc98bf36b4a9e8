//! Prefetch hints for cache lines.
//!
//! In a stream of messages, prefetched lines of several messages move between the processors at the
//! same time instead of one after the other.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "processor hints without effect on memory")
)]

/// Prefetches the line at `address` for writing.
#[inline(always)]
pub(crate) fn for_writing(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program could observe, for any address. The assembly
    // replaces the intrinsic, which becomes a prefetch for reading unless the compiler may assume a
    // newer processor. On a processor without the instruction, it has no effect.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    let _ = address;
}

/// Prefetches the line at `address` for reading.
#[inline(always)]
pub(crate) fn for_reading(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    let _ = address;
}
