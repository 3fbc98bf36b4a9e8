//! Copies between shared and private memory: by `memmove` from inline assembly on x86-64, by granules on
//! other architectures and under Miri and the thread sanitizer ([`super`] gives the reasons).

#![expect(unsafe_code, reason = "copies at addresses that a caller guarantees")]

use super::SharedBytes;

/// Copies `to.len()` bytes from `from` to shared memory.
///
/// # Safety
/// `to.len()` bytes from `from` on are valid for reads, and this process does not write them during the
/// call.
#[inline(always)]
pub(super) unsafe fn store(to: SharedBytes, from: *const u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            by_words(to, |at, len| {
                let (to, from) = (to.as_ptr().wrapping_add(at), from.wrapping_add(at));
                // SAFETY: the ranges are parts of `to`, which the caller of its constructor guarantees, and of
                // the bytes that the caller guarantees.
                unsafe { copy_with(CopyMethod::StringInstruction, from, to, len) };
            });
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::store(to, from) },
    }
}

/// Copies shared memory to the `from.len()` bytes from `to` on.
///
/// # Safety
/// `from.len()` bytes from `to` on are valid for writes, and this process does not access them during the
/// call.
#[inline(always)]
pub(super) unsafe fn load(from: SharedBytes, to: *mut u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            by_words(from, |at, len| {
                let (to, from) = (to.wrapping_add(at), from.as_ptr().wrapping_add(at));
                // SAFETY: as in `store`.
                unsafe { copy_with(CopyMethod::StringInstruction, from, to, len) };
            });
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::load(from, to) },
    }
}

/// The method of a copy of more than [`CHUNK`] bytes. Shorter copies do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// One call of the C library, which uses the string instruction.
    StringInstruction,
    /// Calls for chunks of [`CHUNK`] bytes, for which the C library uses vector instructions.
    Chunks,
}

/// Maximum number of bytes that the C library copies without the string instruction.
pub const CHUNK: usize = 2048;

/// Copies `len` bytes by instructions that the compiler does not see: the compiler cannot duplicate a
/// load of a byte that another process may change, or make assumptions about concurrent accesses.
///
/// The C library copies more than about 2 KiB by a string instruction of the processor. On some processors
/// it is 16 times slower (measured on AMD Zen 3: 5.4 instead of 0.33 microseconds for 16 KiB) if the page
/// offset of the target is 1 to 31 bytes above that of the source. That is common here: shared memory is
/// page-aligned, and large buffers from `malloc` begin 16 bytes into a page. Such copies always use
/// chunks.
///
/// # Safety
/// - `len` bytes from `from` on are valid for reads, and as many from `to` on for writes;
/// - other threads of this process that access either at the same time do so as the documentation
///   of [`super`] has it.
#[inline(always)]
pub unsafe fn copy_with(method: CopyMethod, from: *const u8, to: *mut u8, len: usize) {
    let behind = to.addr().wrapping_sub(from.addr());
    let takes_one_call = match (method, behind % 4096) {
        // A forward copy in chunks would read bytes that it has written.
        _ if behind < len => true,
        (CopyMethod::Chunks, _) | (_, 1..32) => len <= CHUNK,
        _ => true,
    };
    match takes_one_call {
        // SAFETY: passed on from the caller.
        true => unsafe { copy(from, to, len) },
        // SAFETY: passed on from the caller.
        false => unsafe { copy_chunks(from, to, len) },
    }
}

/// Copies by one call for each chunk of [`CHUNK`] bytes.
///
/// # Safety
/// As [`copy_with`].
#[inline(never)]
unsafe fn copy_chunks(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while done < len {
        let now = CHUNK.min(len - done);
        // SAFETY: `done + now` is at most `len`, so both ranges are within those that the caller vouched
        // for.
        unsafe { copy(from.wrapping_add(done), to.wrapping_add(done), now) };
        done += now;
    }
}

/// # Safety
/// As [`copy_with`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            // SAFETY: a call by the C calling convention. The clobbered registers are declared, and the
            // stack is aligned. `memmove` accesses the caller's bytes alone, and has no other
            // requirements.
            unsafe {
                std::arch::asm!(
                    "call {memmove}",
                    memmove = in(reg) libc::memmove as unsafe extern "C" fn(_, _, _) -> _,
                    inlateout("rdi") to => _,
                    inlateout("rsi") from => _,
                    inlateout("rdx") len => _,
                    clobber_abi("C"),
                )
            }
        }
        // SAFETY: passed on from the caller. Concurrent accesses are made by other processes: accesses of
        // this process use `granules`.
        _ => unsafe { std::ptr::copy(from, to, len) },
    }
}

/// Calls `copy` with offset and length of the aligned words of `bytes`, and of the bytes before and behind
/// them.
///
/// Whole words take one call, which is inlined: a copy of 4 KiB through three ranges takes 7 ns longer
/// (measured).
#[cfg(all(target_arch = "x86_64", not(any(miri, tsan))))]
#[inline(always)]
fn by_words(bytes: SharedBytes, copy: impl Fn(usize, usize)) {
    match (bytes.as_ptr().addr() | bytes.len()).is_multiple_of(super::WORD) {
        true => copy(0, bytes.len()),
        false => split_words(bytes, copy),
    }
}

/// Calls `copy` with offset and length of the bytes before the first aligned word, of the aligned words, and
/// of the bytes behind the last, each if there are any.
#[cfg(all(target_arch = "x86_64", not(any(miri, tsan))))]
#[inline(never)]
fn split_words(bytes: SharedBytes, copy: impl Fn(usize, usize)) {
    use super::WORD;

    let (addr, len) = (bytes.as_ptr().addr(), bytes.len());
    let head = (addr.wrapping_neg() % WORD).min(len);
    let words = (len - head) / WORD * WORD;
    let ranges = [(0, head), (head, words), (head + words, len - head - words)];
    let ranges = ranges.into_iter().filter(|&(_, len)| len > 0);
    ranges.for_each(|(at, len)| copy(at, len));
}

/// Copies by granules: they define the meaning of the copies above, and replace them where inline assembly
/// is not available.
#[cfg(any(test, miri, tsan, not(target_arch = "x86_64")))]
pub(super) mod granules {
    use std::sync::atomic::Ordering;

    use super::super::granule::Granule;
    use super::super::{SharedBytes, WORD};

    /// # Safety
    /// As [`super::store`].
    pub(in super::super) unsafe fn store(to: SharedBytes, from: *const u8) {
        each(to, |at, granule, skip, len| {
            let mut bytes = [0; WORD];
            // SAFETY: the `len` bytes at `at` are among those that the caller guarantees.
            unsafe { from.wrapping_add(at).copy_to(bytes.as_mut_ptr(), len) };
            if len == granule.size() {
                return granule.store(bytes, Ordering::Relaxed);
            }
            let mut seen = granule.load(Ordering::Relaxed);
            loop {
                let mut new = seen;
                new[skip..skip + len].copy_from_slice(&bytes[..len]);
                let order = Ordering::Relaxed;
                match granule.compare_exchange(seen, new, order, order) {
                    Ok(()) => return,
                    Err(now) => seen = now,
                }
            }
        });
    }

    /// # Safety
    /// As [`super::load`].
    pub(in super::super) unsafe fn load(from: SharedBytes, to: *mut u8) {
        each(from, |at, granule, skip, len| {
            let bytes = granule.load(Ordering::Relaxed);
            let bytes = &bytes[skip..skip + len];
            // SAFETY: the `len` bytes at `at` are among those that the caller guarantees.
            unsafe { bytes.as_ptr().copy_to(to.wrapping_add(at), len) };
        });
    }

    /// Calls `access` for each granule of `all`, with the offset of its first accessed byte in `all`, the
    /// granule, the offset of that byte in the granule, and the number of accessed bytes.
    fn each(all: SharedBytes, mut access: impl FnMut(usize, Granule<'_>, usize, usize)) {
        let mut at = 0;
        while at < all.len() {
            let (granule, skip) = all.granule(at);
            let len = (granule.size() - skip).min(all.len() - at);
            access(at, granule, skip, len);
            at += len;
        }
    }
}
