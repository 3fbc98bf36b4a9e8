//! Cross-memory attach: reading another process's memory with one copy (`process_vm_readv(2)`).
//!
//! The process that owns the destination copies; no process writes to the memory of another one.
//! Every call reads the peer's nonce along with the bytes. The nonce proves that the bytes come
//! from the process that named the address, and not from a later process with the same number.

use std::mem::MaybeUninit;

use nix::unistd::Pid;
use selvedge::shared::SharedBytes;
use selvedge::{Errno, Result};

/// A process whose memory may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CmaProcess {
    pid: Pid,
    nonce_addr: usize,
    nonce: u64,
}

impl CmaProcess {
    /// Returns the process `pid`, if its memory can be read and holds `nonce` at `nonce_addr`.
    ///
    /// # Errors
    /// [`Errno::Perm`] and [`Errno::NoSys`] where the system denies the call, [`Errno::Acces`] when
    /// another process has the number `pid`.
    pub(crate) fn probe(pid: i32, nonce_addr: u64, nonce: u64) -> Result<Self> {
        if pid <= 0 {
            return Err(Errno::Perm);
        }
        let nonce_addr = usize::try_from(nonce_addr).map_err(|_| Errno::Fault)?;
        let process = Self {
            pid: Pid::from_raw(pid),
            nonce_addr,
            nonce,
        };
        process.read(0, &mut []).map(|()| process)
    }

    /// Fills `to` with the process's bytes from address `from` on.
    ///
    /// # Errors
    /// As [`Self::probe`]; [`Errno::Fault`] when the addresses are not mapped. On an error the
    /// content of `to` is unspecified.
    pub(crate) fn read(&self, from: u64, to: &mut [MaybeUninit<u8>]) -> Result {
        self.read_raw(from, to.as_mut_ptr().cast(), to.len())
    }

    /// As [`Self::read`], to memory that other threads may access meanwhile.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_shared(&self, from: u64, to: SharedBytes) -> Result {
        self.read_raw(from, to.as_ptr(), to.len())
    }

    fn read_raw(&self, from: u64, to: *mut u8, len: usize) -> Result {
        let from = usize::try_from(from).map_err(|_| Errno::Fault)?;
        let mut copied = 0;
        loop {
            let base = from.checked_add(copied).ok_or(Errno::Fault)?;
            match self.read_once(base, to.wrapping_add(copied), len - copied)? {
                _ if len == 0 => return Ok(()),
                0 => return Err(Errno::Fault),
                read => copied += read,
            }
            if copied == len {
                return Ok(());
            }
        }
    }

    /// Makes one call of `process_vm_readv(2)`. Returns the number of bytes read after the nonce.
    #[expect(
        unsafe_code,
        reason = "the kernel writes to memory that the caller may write"
    )]
    fn read_once(&self, base: usize, to: *mut u8, len: usize) -> Result<usize> {
        let mut nonce = [0_u8; 8];
        let remote = [iovec(self.nonce_addr, nonce.len()), iovec(base, len)];
        let local = [
            libc::iovec {
                iov_base: nonce.as_mut_ptr().cast(),
                iov_len: nonce.len(),
            },
            libc::iovec {
                iov_base: to.cast(),
                iov_len: len,
            },
        ];
        let pid = self.pid.as_raw();
        let read = loop {
            // SAFETY: the lists have two entries each. The kernel writes only to the local
            // segments: `nonce`, and the `len` bytes at `to`, which the callers in this file have
            // from a slice or a `SharedBytes` that is valid for writes. The remote segments are
            // only numbers in this process.
            let read =
                unsafe { libc::process_vm_readv(pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
            match usize::try_from(read) {
                Ok(read) => break read,
                Err(_) => match nix::errno::Errno::last() {
                    nix::errno::Errno::EINTR => {}
                    errno => return Err(Errno::from_raw(errno as i32)),
                },
            }
        };
        if read < nonce.len() || u64::from_ne_bytes(nonce) != self.nonce {
            return Err(Errno::Acces);
        }
        Ok(read - nonce.len())
    }
}

/// A segment of another process's memory.
fn iovec(base: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(base),
        iov_len: len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process_id() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    fn addr_of<T: ?Sized>(value: &T) -> u64 {
        std::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
    }

    #[test]
    fn a_process_may_read_itself() {
        let nonce = Box::new(0x5eed_u64);
        let process = CmaProcess::probe(process_id(), addr_of(&*nonce), 0x5eed).unwrap();
        let source = vec![7_u8; 10_000];
        let mut copy = vec![MaybeUninit::uninit(); source.len()];
        process.read(addr_of(&source[..]), &mut copy).unwrap();
        let mut same = copy.iter().zip(&source);
        #[expect(unsafe_code, reason = "the bytes were just filled")]
        // SAFETY: `read` has filled every byte.
        let same = same.all(|(c, s)| unsafe { c.assume_init() } == *s);
        assert!(same);
    }

    #[test]
    fn another_process_with_the_same_number_is_not_read() {
        let nonce = Box::new(0x5eed_u64);
        let refused = CmaProcess::probe(process_id(), addr_of(&*nonce), 1);
        assert_eq!(refused.unwrap_err(), Errno::Acces);
    }

    #[test]
    fn an_address_without_memory_is_a_fault() {
        let nonce = Box::new(0x5eed_u64);
        let process = CmaProcess::probe(process_id(), addr_of(&*nonce), 0x5eed).unwrap();
        let mut to = [MaybeUninit::uninit(); 8];
        assert_eq!(process.read(8, &mut to), Err(Errno::Fault));
        assert_eq!(process.read(u64::MAX, &mut to), Err(Errno::Fault));
        assert!(CmaProcess::probe(process_id(), 8, 0).is_err());
        assert_eq!(CmaProcess::probe(0, 8, 0).unwrap_err(), Errno::Perm);
    }
}
