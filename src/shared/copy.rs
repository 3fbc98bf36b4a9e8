//! Copies between shared and private memory: by `memmove` where the compiler cannot see it, by
//! granules elsewhere, and where a tool watches ([`super`] says why).

#![expect(unsafe_code, reason = "copies at addresses that a caller vouched for")]

use super::SharedBytes;

/// Fills shared memory with as many bytes from `from` on.
///
/// # Safety
/// Those bytes are valid for reads, and this process does not write them meanwhile.
#[inline]
pub(super) unsafe fn store(to: SharedBytes, from: *const u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            for (at, len) in words_apart(to.as_ptr().addr(), to.len()) {
                let (to, from) = (to.as_ptr().wrapping_add(at), from.wrapping_add(at));
                // SAFETY: the stretches are parts of `to`, which its maker vouched for, and of what
                // the caller vouched for.
                unsafe { copy_with(CopyMethod::StringInstruction, from, to, len) };
            }
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::store(to, from) },
    }
}

/// Copies all of shared memory to as many bytes from `to` on.
///
/// # Safety
/// Those bytes are valid for writes, and this process does not access them meanwhile.
#[inline]
pub(super) unsafe fn load(from: SharedBytes, to: *mut u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            for (at, len) in words_apart(from.as_ptr().addr(), from.len()) {
                let (to, from) = (to.wrapping_add(at), from.as_ptr().wrapping_add(at));
                // SAFETY: as in `store`.
                unsafe { copy_with(CopyMethod::StringInstruction, from, to, len) };
            }
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::load(from, to) },
    }
}

/// By which instructions a long copy stores. Short ones are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// As the C library has it: the string instruction.
    StringInstruction,
    /// In pieces of [`CHUNK`] bytes, which the C library copies by vectors.
    Chunks,
}

/// Bytes that are copied without the string instruction.
pub const CHUNK: usize = 2048;

/// Copies `len` bytes, by instructions that the compiler does not see: it cannot load a byte twice
/// that another process may change, or have a view about accesses at the same time.
///
/// The C library leaves copies of more than about 2 KiB to a string instruction of the processor,
/// which on some is 16 times slower (measured on AMD Zen 3: 5.4 instead of 0.33 microseconds for
/// 16 KiB) where the target lies 1 to 31 bytes behind the source within their pages. That is usual
/// here: our memory begins with pages, and large buffers from `malloc` 16 bytes behind.
///
/// # Safety
/// - `len` bytes from `from` on are valid for reads, and as many from `to` on for writes;
/// - other threads of this process that access either at the same time do so as the documentation
///   of [`super`] has it.
#[inline]
pub unsafe fn copy_with(stores: CopyMethod, from: *const u8, to: *mut u8, len: usize) {
    let behind = to.addr().wrapping_sub(from.addr());
    let step = match (stores, behind % 4096) {
        // A copy forward in pieces would read what it has written.
        _ if behind < len => len,
        (CopyMethod::Chunks, _) | (_, 1..32) => CHUNK,
        _ => len,
    };
    let mut done = 0;
    while done < len {
        let now = step.min(len - done);
        // SAFETY: `done + now` is at most `len`, so both stretches are inside those that the caller
        // vouched for.
        unsafe { copy(from.wrapping_add(done), to.wrapping_add(done), now) };
        done += now;
    }
}

/// # Safety
/// As [`copy_with`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            // SAFETY: a call by the C calling convention, whose registers are named as overwritten,
            // with the stack aligned as that wants it. `memmove` reads and writes the caller's bytes
            // and nothing else, and its other requirements are none.
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
        // SAFETY: passed on from the caller. Accesses at the same time come from other processes:
        // those of this process are `granules`'.
        _ => unsafe { std::ptr::copy(from, to, len) },
    }
}

/// The stretches of `len` bytes from an address on: those before the first aligned word, the words,
/// and those behind the last.
#[cfg(all(target_arch = "x86_64", not(any(miri, tsan))))]
#[inline]
fn words_apart(addr: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    use super::WORD;

    let head = (addr.wrapping_neg() % WORD).min(len);
    let words = (len - head) / WORD * WORD;
    let stretches = [(0, head), (head, words), (head + words, len - head - words)];
    stretches.into_iter().filter(|&(_, len)| len > 0)
}

/// Copies by granules: the meaning of the copies above, and what takes their place.
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
            // SAFETY: `len` bytes at `at` are among those that the caller vouched for.
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
            // SAFETY: `len` bytes at `at` are among those that the caller vouched for.
            unsafe { bytes.as_ptr().copy_to(to.wrapping_add(at), len) };
        });
    }

    /// Calls `access` with the granules of all bytes: where the bytes of one begin, the granule, how
    /// many of its bytes are before them, and how many they are.
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
