//! Counters: the library's counter behind the contract's trait.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::any::Any;
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selvedge::{Counter, Error, Result, cntr, wait};
use selvedge_abi::{CntrAttr, Fid, FidCntr};
use selvedge_kit::{DomainId, OfDomain};

use super::state::DomainState;
use crate::object::{Handle, call, millis, to_result, wait_descriptor};

/// A counter of the library.
pub(crate) struct Cntr {
    handle: Handle<FidCntr>,
    domain: Arc<DomainState>,
    wait_obj: wait::Object,
    descriptor: Option<RawFd>,
    /// The values that the last reads of successes and of errors returned.
    last_read: [AtomicU64; 2],
}

impl Cntr {
    pub(crate) fn open(domain: &Arc<DomainState>, attr: &cntr::Attr) -> Result<Self, Error> {
        let fid = domain.ptr_or_error()?;
        let mut requested = CntrAttr {
            events: attr.events as u32,
            wait_obj: attr.wait_obj as u32,
            wait_set: ptr::null_mut(),
            flags: 0,
            xpu_ctx: ptr::null_mut(),
        };
        let handle = Handle::open(domain.library(), domain.describe("a counter"), |out| {
            let requested = &raw mut requested;
            // SAFETY: the domain is open, and the attributes live during the call.
            unsafe { call!(fid, (*fid).ops, cntr_open, requested, out, ptr::null_mut()) }
        })?;
        Ok(Self {
            descriptor: wait_descriptor(handle.fid_or_error()?, attr.wait_obj),
            handle,
            domain: Arc::clone(domain),
            wait_obj: attr.wait_obj,
            last_read: [const { AtomicU64::new(0) }; 2],
        })
    }

    fn successes(&self) -> u64 {
        self.handle.ptr().map_or(0, |fid| {
            // SAFETY: the counter is open.
            unsafe { call!(fid, (*fid).ops, read) }
        })
    }

    fn errors(&self) -> u64 {
        self.handle.ptr().map_or(0, |fid| {
            // SAFETY: the counter is open.
            unsafe { call!(fid, (*fid).ops, readerr) }
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.fid_or_error()
    }

    fn log_failure(&self, call: &str, code: i32) {
        if let Err(errno) = to_result(code) {
            log::warn!(target: "selvedge::ofi::cntr", "{call} of {self:?}: {errno}");
        }
    }
}

/// Downcasts a counter to one of this domain.
pub(crate) fn bound_cntr(
    domain: &DomainState,
    name: &str,
    cntr: &Arc<dyn Counter>,
) -> Result<Arc<Cntr>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Counter>::clone(cntr);
    domain.id.downcast(name, any, cntr)
}

impl Counter for Cntr {
    fn read(&self) -> u64 {
        let number = self.successes();
        self.last_read[0].store(number, Ordering::Relaxed);
        number
    }

    fn read_err(&self) -> u64 {
        let number = self.errors();
        self.last_read[1].store(number, Ordering::Relaxed);
        number
    }

    fn is_ready(&self) -> bool {
        let last_read = self
            .last_read
            .each_ref()
            .map(|it| it.load(Ordering::Relaxed));
        [self.successes(), self.errors()] != last_read
    }

    fn add(&self, value: u64) {
        if let Ok(fid) = self.handle.ptr() {
            // SAFETY: the counter is open.
            self.log_failure("add", unsafe { call!(fid, (*fid).ops, add, value) });
        }
    }

    fn add_err(&self, value: u64) {
        if let Ok(fid) = self.handle.ptr() {
            // SAFETY: the counter is open.
            self.log_failure("adderr", unsafe { call!(fid, (*fid).ops, adderr, value) });
        }
    }

    fn set(&self, value: u64) {
        if let Ok(fid) = self.handle.ptr() {
            // SAFETY: the counter is open.
            self.log_failure("set", unsafe { call!(fid, (*fid).ops, set, value) });
        }
    }

    fn set_err(&self, value: u64) {
        if let Ok(fid) = self.handle.ptr() {
            // SAFETY: the counter is open.
            self.log_failure("seterr", unsafe { call!(fid, (*fid).ops, seterr, value) });
        }
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        // libfabric crashes in a wait on a counter without a wait object.
        if self.wait_obj == wait::Object::None {
            return cntr::spin(self, threshold, timeout);
        }
        let (fid, timeout) = (self.handle.ptr()?, millis(timeout));
        // SAFETY: the counter is open.
        to_result(unsafe { call!(fid, (*fid).ops, wait, threshold, timeout) })
    }

    fn try_wait(&self) -> Result {
        self.domain.fabric.try_wait(self.handle.fid()?)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the library keeps the descriptor open as long as the counter.
        self.descriptor
            .map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl OfDomain for Cntr {
    fn domain(&self) -> &DomainId {
        &self.domain.id
    }
}

impl fmt::Debug for Cntr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain.describe("counter"))
    }
}
