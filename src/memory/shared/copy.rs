//! Copies between shared and private memory: by `memmove` from inline assembly on x86-64, and by
//! granules on other architectures and under Miri and the thread sanitizer ([`super`] has the
//! reasons).

#![expect(unsafe_code, reason = "copies at addresses that a caller guarantees")]

use std::mem::MaybeUninit;
use std::sync::atomic::{Ordering, fence};

use super::bytes::SharedBytes;
use super::granule::WORD;

/// Copies between shared and private memory.
impl SharedBytes {
    /// Copies `bytes` to the beginning of this part.
    ///
    /// # Panics
    /// When `bytes` is longer than this part.
    #[inline(always)]
    pub fn write(self, bytes: &[u8]) {
        let dest = self.part(0, bytes.len());
        if let Ok(bytes) = bytes.try_into()
            && let Some(word) = dest.word(0)
        {
            return word.store(u64::from_ne_bytes(bytes), Ordering::Release);
        }
        // SAFETY: a slice is valid for reads.
        unsafe { dest.write_from(bytes.as_ptr()) };
    }

    /// Copies `self.len()` bytes that begin at `src` to this part.
    ///
    /// # Safety
    /// These bytes are valid for reads, and this process does not write them during the call.
    #[inline(always)]
    pub unsafe fn write_from(self, src: *const u8) {
        fence(Ordering::Release);
        // SAFETY: passed on from the caller.
        unsafe { store(self, src) };
    }

    /// Fills `out` with bytes from the beginning of this part.
    ///
    /// # Panics
    /// When `out` is longer than this part.
    #[inline(always)]
    pub fn read(self, out: &mut [MaybeUninit<u8>]) -> &mut [u8] {
        let src = self.part(0, out.len());
        // SAFETY: a slice is valid for writes.
        unsafe { src.read_to(out.as_mut_ptr().cast()) };
        // SAFETY: every byte was just written.
        unsafe { out.assume_init_mut() }
    }

    /// Fills an initialized slice as [`Self::read`] does.
    ///
    /// # Panics
    /// When `out` is longer than this part.
    #[inline]
    pub fn read_into(self, out: &mut [u8]) {
        let src = self.part(0, out.len());
        // SAFETY: as above.
        unsafe { src.read_to(out.as_mut_ptr()) };
    }

    /// Copies this part to the `self.len()` bytes that begin at `dest`.
    ///
    /// # Safety
    /// These bytes are valid for writes, and this process does not access them during the call.
    #[inline(always)]
    pub unsafe fn read_to(self, dest: *mut u8) {
        if let (WORD, Some(word)) = (self.len(), self.word(0)) {
            let word = word.load(Ordering::Acquire);
            // SAFETY: passed on from the caller.
            return unsafe { dest.cast::<u64>().write_unaligned(word) };
        }
        // SAFETY: passed on from the caller.
        unsafe { load(self, dest) };
        fence(Ordering::Acquire);
    }
}

/// Copies `dest.len()` bytes that begin at `src` to shared memory.
///
/// # Safety
/// These bytes are valid for reads, and this process does not write them during the call.
#[inline(always)]
unsafe fn store(dest: SharedBytes, src: *const u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            by_words(dest, |offset, len| {
                let (dest, src) = (dest.as_ptr().wrapping_add(offset), src.wrapping_add(offset));
                // SAFETY: one range is a part of `dest`, which the caller of its constructor
                // guarantees. The other range is a part of the bytes that the caller guarantees.
                unsafe { copy_with(CopyMethod::StringInstruction, src, dest, len) };
            });
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::store(dest, src) },
    }
}

/// Copies shared memory to the `src.len()` bytes that begin at `dest`.
///
/// # Safety
/// These bytes are valid for writes, and this process does not access them during the call.
#[inline(always)]
unsafe fn load(src: SharedBytes, dest: *mut u8) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            by_words(src, |offset, len| {
                let (dest, src) = (dest.wrapping_add(offset), src.as_ptr().wrapping_add(offset));
                // SAFETY: as in `store`.
                unsafe { copy_with(CopyMethod::StringInstruction, src, dest, len) };
            });
        }
        // SAFETY: passed on from the caller.
        _ => unsafe { granules::load(src, dest) },
    }
}

/// The method of a copy of more than [`CHUNK`] bytes. Shorter copies do not depend on the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// One call of the C library, which uses the string instruction.
    StringInstruction,
    /// Calls for chunks of [`CHUNK`] bytes, for which the C library uses vector instructions.
    Chunks,
}

/// Maximum number of bytes that the C library copies without the string instruction.
pub const CHUNK: usize = 2048;

/// Copies `len` bytes from `src` to `dest`, by instructions that the compiler does not see. The
/// compiler therefore cannot duplicate a load of a byte that another process may change, or make
/// assumptions about concurrent accesses.
///
/// The C library copies more than about 2 KiB by a string instruction of the processor. On some
/// processors this instruction is 16 times slower (measured on AMD Zen 3: 5.4 instead of 0.33
/// microseconds for 16 KiB) if the page offset of the target is 1 to 31 bytes above that of the
/// source. Such offsets are common, because shared memory is page-aligned, and large buffers from
/// `malloc` begin 16 bytes after the start of a page. Such copies always use chunks.
///
/// # Safety
/// - the `len` bytes that begin at `src` are valid for reads, and the `len` bytes that begin at `dest`
///   for writes;
/// - other threads of this process that access these bytes at the same time follow the rules of
///   [`super`].
#[inline(always)]
pub unsafe fn copy_with(method: CopyMethod, src: *const u8, dest: *mut u8, len: usize) {
    let distance = dest.addr().wrapping_sub(src.addr());
    let takes_one_call = match (method, distance % 4096) {
        // The ranges overlap: a forward copy in chunks would read bytes that it has already
        // written.
        _ if distance < len => true,
        (CopyMethod::Chunks, _) | (_, 1..32) => len <= CHUNK,
        _ => true,
    };
    if takes_one_call {
        // SAFETY: passed on from the caller.
        unsafe { copy(src, dest, len) }
    } else {
        // SAFETY: passed on from the caller.
        unsafe { copy_chunks(src, dest, len) }
    }
}

/// Copies by one call for each chunk of [`CHUNK`] bytes.
///
/// # Safety
/// As [`copy_with`].
#[inline(never)]
unsafe fn copy_chunks(src: *const u8, dest: *mut u8, len: usize) {
    let mut done = 0;
    while done < len {
        let count = CHUNK.min(len - done);
        // SAFETY: `done + count` is at most `len`, so both ranges are within the bytes that the
        // caller guarantees.
        unsafe { copy(src.wrapping_add(done), dest.wrapping_add(done), count) };
        done += count;
    }
}

/// # Safety
/// As [`copy_with`].
#[inline(always)]
unsafe fn copy(src: *const u8, dest: *mut u8, len: usize) {
    cfg_select! {
        all(target_arch = "x86_64", not(any(miri, tsan))) => {
            // SAFETY: the call follows the C calling convention. The clobbered registers are
            // declared, and the stack is aligned. `memmove` accesses only the caller's bytes, and
            // has no other requirements.
            unsafe {
                std::arch::asm!(
                    "call {memmove}",
                    memmove = in(reg) libc::memmove as unsafe extern "C" fn(_, _, _) -> _,
                    inlateout("rdi") dest => _,
                    inlateout("rsi") src => _,
                    inlateout("rdx") len => _,
                    clobber_abi("C"),
                )
            }
        }
        // SAFETY: passed on from the caller. Only other processes access the bytes concurrently:
        // accesses of this process use `granules`.
        _ => unsafe { std::ptr::copy(src, dest, len) },
    }
}

/// Calls `copy` with offset and length of the aligned words, and of the bytes before and after
/// them.
///
/// Bytes that are only whole words take one call, which is inlined: a copy of 4 KiB through three
/// ranges takes 7 ns longer (measured).
#[cfg(all(target_arch = "x86_64", not(any(miri, tsan))))]
#[inline(always)]
fn by_words(bytes: SharedBytes, copy: impl Fn(usize, usize)) {
    if (bytes.as_ptr().addr() | bytes.len()).is_multiple_of(WORD) {
        copy(0, bytes.len())
    } else {
        split_words(bytes, copy)
    }
}

/// Calls `copy` with offset and length of each non-empty range: the bytes before the first aligned
/// word, the aligned words, and the bytes after the last aligned word.
#[cfg(all(target_arch = "x86_64", not(any(miri, tsan))))]
#[inline(never)]
fn split_words(bytes: SharedBytes, copy: impl Fn(usize, usize)) {
    let (addr, len) = (bytes.as_ptr().addr(), bytes.len());
    let head = (addr.wrapping_neg() % WORD).min(len);
    let words = (len - head) / WORD * WORD;
    let ranges = [(0, head), (head, words), (head + words, len - head - words)];
    let ranges = ranges.into_iter().filter(|&(_, len)| len > 0);
    ranges.for_each(|(offset, len)| copy(offset, len));
}

/// Copies by granules. They define the meaning of the copies above, and replace these copies where
/// inline assembly is not available.
#[cfg(any(test, miri, tsan, not(target_arch = "x86_64")))]
pub(super) mod granules {
    use std::sync::atomic::Ordering;

    use super::super::granule::Granule;
    use super::{SharedBytes, WORD};

    /// # Safety
    /// As [`super::store`].
    pub(in super::super) unsafe fn store(dest: SharedBytes, src: *const u8) {
        for_each_granule(dest, |offset, granule, skip, len| {
            let mut bytes = [0; WORD];
            // SAFETY: the `len` bytes at `offset` are among those that the caller guarantees.
            unsafe { src.wrapping_add(offset).copy_to(bytes.as_mut_ptr(), len) };
            if len == granule.size() {
                return granule.store(bytes, Ordering::Relaxed);
            }
            let mut current = granule.load(Ordering::Relaxed);
            loop {
                let mut new = current;
                new[skip..skip + len].copy_from_slice(&bytes[..len]);
                let order = Ordering::Relaxed;
                match granule.compare_exchange(current, new, order, order) {
                    Ok(()) => return,
                    Err(changed) => current = changed,
                }
            }
        });
    }

    /// # Safety
    /// As [`super::load`].
    pub(in super::super) unsafe fn load(src: SharedBytes, dest: *mut u8) {
        for_each_granule(src, |offset, granule, skip, len| {
            let bytes = granule.load(Ordering::Relaxed);
            let bytes = &bytes[skip..skip + len];
            // SAFETY: the `len` bytes at `offset` are among those that the caller guarantees.
            unsafe { bytes.as_ptr().copy_to(dest.wrapping_add(offset), len) };
        });
    }

    /// Calls `access` for each granule of `all`. The arguments are the offset in `all` of the first
    /// accessed byte, the granule, the offset of that byte in the granule, and the number of
    /// accessed bytes.
    fn for_each_granule(
        all: SharedBytes,
        mut access: impl FnMut(usize, Granule<'_>, usize, usize),
    ) {
        let mut offset = 0;
        while offset < all.len() {
            let (granule, skip) = all.granule(offset);
            let len = (granule.size() - skip).min(all.len() - offset);
            access(offset, granule, skip, len);
            offset += len;
        }
    }
}
