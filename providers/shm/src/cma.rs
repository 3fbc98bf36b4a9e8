//! Cross-memory attach: reading another process's memory with one copy (`process_vm_readv(2)`).
//!
//! Only ever reading: the process that owns the destination pulls. Every call reads the peer's
//! nonce along with the bytes, so that they are known to come from the very process that named the
//! address, and not from one that got its number afterwards.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use selvedge::{Errno, Result};

/// A process that may be read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pid: Pid,
    nonce_addr: usize,
    nonce: u64,
}

impl Target {
    /// The process `pid`, if it can be read and `nonce` stands at `nonce_addr` there.
    ///
    /// # Errors
    /// [`Errno::Perm`] and [`Errno::NoSys`] where the system does not allow it, [`Errno::Acces`]
    /// when it is another process.
    pub(crate) fn probe(pid: i32, nonce_addr: u64, nonce: u64) -> Result<Self> {
        if pid <= 0 {
            return Err(Errno::Perm);
        }
        let nonce_addr = usize::try_from(nonce_addr).map_err(|_| Errno::Fault)?;
        let target = Self {
            pid: Pid::from_raw(pid),
            nonce_addr,
            nonce,
        };
        target.read(0, &mut []).map(|()| target)
    }

    /// Fills `to` with the process's bytes from address `from` on.
    ///
    /// # Errors
    /// As [`Self::probe`]; [`Errno::Fault`] when the bytes are not there. The content of `to` is
    /// unspecified then.
    pub(crate) fn read(&self, from: u64, to: &mut [MaybeUninit<u8>]) -> Result {
        let mut done = 0;
        loop {
            let base = usize::try_from(from).ok().and_then(|f| f.checked_add(done));
            let base = base.ok_or(Errno::Fault)?;
            match self.read_once(base, &mut to[done..])? {
                _ if to.is_empty() => return Ok(()),
                0 => return Err(Errno::Fault),
                read => done += read,
            }
            if done == to.len() {
                return Ok(());
            }
        }
    }

    /// One call; the bytes that it read behind the nonce.
    fn read_once(&self, base: usize, to: &mut [MaybeUninit<u8>]) -> Result<usize> {
        let mut nonce = [0; 8];
        let remote = [
            RemoteIoVec {
                base: self.nonce_addr,
                len: nonce.len(),
            },
            RemoteIoVec {
                base,
                len: to.len(),
            },
        ];
        let mut local = [
            IoSliceMut::new(&mut nonce),
            IoSliceMut::new(target_view(to)),
        ];
        let read = loop {
            match process_vm_readv(self.pid, &mut local, &remote) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other.map_err(|e| Errno::from_raw(e as i32))?,
            }
        };
        if read < nonce.len() || u64::from_ne_bytes(nonce) != self.nonce {
            return Err(Errno::Acces);
        }
        Ok(read - nonce.len())
    }
}

/// The kernel writes into the slice and never reads it; the wrapper wants initialised bytes.
#[expect(unsafe_code, reason = "a view for a system call that only writes")]
fn target_view(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    let whole: *mut [MaybeUninit<u8>] = bytes;
    // SAFETY: `u8` and `MaybeUninit<u8>` have one layout, the borrow is passed on, and the only
    // use of the view is as the target of a system call: no uninitialised byte is read.
    unsafe { &mut *(whole as *mut [u8]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    fn addr_of<T: ?Sized>(value: &T) -> u64 {
        std::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
    }

    #[test]
    fn a_process_may_read_itself() {
        let nonce = Box::new(0x5eed_u64);
        let target = Target::probe(own_pid(), addr_of(&*nonce), 0x5eed).unwrap();
        let source = vec![7_u8; 10_000];
        let mut copy = vec![MaybeUninit::uninit(); source.len()];
        target.read(addr_of(&source[..]), &mut copy).unwrap();
        let mut same = copy.iter().zip(&source);
        #[expect(unsafe_code, reason = "the bytes were just filled")]
        // SAFETY: `read` has filled every byte.
        let same = same.all(|(c, s)| unsafe { c.assume_init() } == *s);
        assert!(same);
    }

    #[test]
    fn another_process_under_the_same_number_is_not_read() {
        let nonce = Box::new(0x5eed_u64);
        let refused = Target::probe(own_pid(), addr_of(&*nonce), 1);
        assert_eq!(refused.unwrap_err(), Errno::Acces);
    }

    #[test]
    fn an_address_without_memory_is_a_fault() {
        let nonce = Box::new(0x5eed_u64);
        let target = Target::probe(own_pid(), addr_of(&*nonce), 0x5eed).unwrap();
        let mut to = [MaybeUninit::uninit(); 8];
        assert_eq!(target.read(8, &mut to), Err(Errno::Fault));
        assert_eq!(target.read(u64::MAX, &mut to), Err(Errno::Fault));
        assert!(Target::probe(own_pid(), 8, 0).is_err());
        assert_eq!(Target::probe(0, 8, 0).unwrap_err(), Errno::Perm);
    }
}
