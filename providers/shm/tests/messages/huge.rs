//! Messages beyond 4 GiB, from and to a small memory that is mapped repeatedly.

#![expect(unsafe_code, reason = "tests of the raw API, and mappings")]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::time::{Duration, Instant};

use selvedge::cq::Entry;
use selvedge::{Context, FiAddr, Iov, IovMut, OpFlags, msg};

use crate::common::{pattern, received, sent};
use crate::provider;

/// An address range of `len` bytes that repeats the same few pages.
struct RepeatedMapping {
    file: File,
    base: *mut libc::c_void,
    len: usize,
    period: usize,
}

impl RepeatedMapping {
    fn new(len: usize, period: usize) -> Self {
        // SAFETY: the name is a literal.
        let fd = unsafe { libc::memfd_create(c"repeated".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "no memory file");
        // SAFETY: the descriptor was just created and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(period as u64).unwrap();
        let base = map(ptr::null_mut(), len, libc::MAP_ANONYMOUS, -1);
        for offset in (0..len).step_by(period) {
            let segment_len = period.min(len - offset);
            map(
                base.wrapping_byte_add(offset),
                segment_len,
                libc::MAP_FIXED,
                file.as_raw_fd(),
            );
        }
        Self {
            file,
            base,
            len,
            period,
        }
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.period];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

impl Drop for RepeatedMapping {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping that `new` created, and no code accesses the
        // mapping any more.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

fn map(addr: *mut libc::c_void, len: usize, flags: i32, fd: i32) -> *mut libc::c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, or one over a part of the caller's mapping.
    let mapped = unsafe { libc::mmap(addr, len, rights, flags, fd, 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "no mapping of {len} bytes");
    mapped
}

/// The periods of the source and of the destination. Neither divides the other or 4 GiB, so that a
/// position without its upper bits changes the bytes.
const SOURCE_PERIOD: usize = 12 << 20;
const DEST_PERIOD: usize = 20 << 20;
const LEN: usize = (4 << 30) + (50 << 20) + 4321;

/// A test that hangs fails after this time.
const TIMEOUT: Duration = Duration::from_secs(200);

#[test]
fn messages_beyond_four_gibibytes_arrive_whole() {
    let (source, dest) = (
        RepeatedMapping::new(LEN, SOURCE_PERIOD),
        RepeatedMapping::new(LEN, DEST_PERIOD),
    );
    let bytes = pattern(1, SOURCE_PERIOD);
    source.file.write_all_at(&bytes, 0).unwrap();
    // Of all bytes that are stored at one offset of the file, the last one remains.
    let last = |offset: usize| (LEN - 1 - offset) / DEST_PERIOD * DEST_PERIOD + offset;
    let expected: Vec<_> = (0..DEST_PERIOD)
        .map(|offset| bytes[last(offset) % SOURCE_PERIOD])
        .collect();
    for protocol in ["cma", "bounce"] {
        dest.file.set_len(0).unwrap();
        dest.file.set_len(DEST_PERIOD as u64).unwrap();
        exchange(protocol, &source, &dest);
        assert!(dest.contents() == expected, "{protocol}: bytes differ");
    }
}

fn exchange(protocol: &str, source: &RepeatedMapping, dest: &RepeatedMapping) {
    let pair = provider::with_protocol(protocol).pair();
    let (head, rest) = (4097, LEN - 4097);
    let tail = source.base.wrapping_byte_add(head);
    let send = msg::SendMsg {
        iov: &[Iov::from_raw(source.base, head), Iov::from_raw(tail, rest)],
        desc: &[],
        dest: pair.to_b,
        context: Context(1),
        data: 0,
    };
    let recv = msg::RecvMsg {
        iov: &[IovMut::from_raw(dest.base, LEN)],
        desc: &[],
        src: FiAddr::UNSPEC,
        context: Context(2),
    };
    // SAFETY: the mapping outlives the endpoints of this function, and no code reads it before the
    // completion.
    unsafe { pair.b.ep.recvmsg(&recv, OpFlags::empty()) }.unwrap();
    // SAFETY: as above, and no code writes to it.
    unsafe { pair.a.ep.sendmsg(&send, OpFlags::empty()) }.unwrap();
    let start = Instant::now();
    let mut done = [None; 2];
    while done.contains(&None) {
        for (side, done) in [&pair.a, &pair.b].into_iter().zip(&mut done) {
            let mut out = [Entry::default()];
            if side.cq().read(&mut out).unwrap() > 0 {
                *done = Some(out[0]);
            }
        }
        assert!(start.elapsed() < TIMEOUT, "{protocol}: no completion");
    }
    let kind = selvedge::CompletionFlags::MSG;
    assert_eq!(done, [Some(sent(kind, 1)), Some(received(kind, 2, LEN, 0))]);
}
