//! `DomainState`: a domain of the library, which its objects keep open.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{AddrFormat, Caps, Errno, Error, Info, MrMode, Result, atomic};
use selvedge_abi::{AtomicAttr, FidDomain, number};
use selvedge_kit::{DomainId, FabricId};

use super::descriptor::DomainTag;
use crate::contexts::Contexts;
use crate::fabric::FabricState;
use crate::library::Library;
use crate::object::{Handle, call, to_result};

/// The shared part of a domain, which its objects keep open.
pub(crate) struct DomainState {
    handle: Handle<FidDomain>,
    pub(crate) fabric: Arc<FabricState>,
    pub(crate) contexts: Contexts,
    pub(crate) addr_format: AddrFormat,
    pub(crate) max_err_data: usize,
    pub(crate) mr_mode: MrMode,
    /// Whether the domain was opened with `FI_HMEM`, so that the library reads the interface of
    /// registered memory.
    pub(crate) has_hmem: bool,
    pub(crate) id: DomainId,
    name: String,
    /// The tag in the descriptors of the domain's memory regions.
    pub(crate) domain_tag: DomainTag,
    local_keys: LocalKeys,
}

/// An allocator of keys for regions without remote access. It starts at the largest key and counts
/// down, because applications choose small keys.
struct LocalKeys {
    largest: u64,
    taken: AtomicU64,
}

impl DomainState {
    pub(crate) fn open(fabric: &Arc<FabricState>, info: &Info) -> Result<Self, Error> {
        let library = fabric.library;
        let info_for_library = library.library_info(info, ptr::null_mut())?;
        let attr = &info.domain_attr;
        let title = format!("ofi domain {}", attr.name);
        let id = DomainId::new(title, fabric.id.clone());
        let fid = fabric.ptr_or_error()?;
        let handle = Handle::open(library, format_args!("{id:?}"), |out| {
            // SAFETY: the fabric is open, and the library made the info.
            unsafe {
                call!(
                    fid,
                    (*fid).ops,
                    domain,
                    info_for_library.first(),
                    out,
                    ptr::null_mut()
                )
            }
        })?;
        Ok(Self {
            handle,
            fabric: Arc::clone(fabric),
            contexts: Contexts::new(library.writes_contexts(info)),
            addr_format: info.addr_format,
            max_err_data: attr.max_err_data,
            mr_mode: attr.mr_mode,
            has_hmem: info.caps.contains(Caps::HMEM),
            id,
            name: attr.name.clone(),
            domain_tag: DomainTag::new()?,
            local_keys: LocalKeys::of_size(attr.mr_key_size),
        })
    }

    /// Returns the pointer to the domain, for a caller that returns [`Error`].
    pub(crate) fn ptr_or_error(&self) -> Result<*mut FidDomain, Error> {
        self.handle.ptr_or_error()
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.fabric.library
    }

    /// Checks that an `Info` is of this domain, because infos of another domain have other limits.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an info of another domain. The message names both domains.
    pub(crate) fn check_info(&self, info: &Info) -> Result<(), Error> {
        let (fabric, name) = (FabricId::of(info), &info.domain_attr.name);
        if fabric == self.fabric.id && *name == self.name {
            return Ok(());
        }
        let message = format!(
            "{:?}: the Info is of domain {name:?} ({fabric:?}); open an endpoint with one of its domain",
            self.id
        );
        Err(Error::new(Errno::Inval, message))
    }

    /// Returns the name that error messages give an object of this domain.
    pub(crate) fn describe(&self, object: &str) -> String {
        format!("{object} of {:?}", self.id)
    }

    pub(crate) fn next_local_key(&self) -> u64 {
        self.local_keys.next()
    }

    /// fi_query_atomic(3).
    pub(super) fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        let fid = self.handle.ptr()?;
        let mut code = AtomicAttr { count: 0, size: 0 };
        let flags = match family {
            atomic::Family::Base => 0,
            atomic::Family::Fetch => number::atomic::FETCH,
            atomic::Family::Compare => number::atomic::COMPARE,
        };
        let (datatype, op, out) = (datatype as u32, op as u32, &raw mut code);
        // SAFETY: the domain is open, and `code` is valid for the result.
        to_result(unsafe { call!(fid, (*fid).ops, query_atomic, datatype, op, out, flags) })?;
        Ok(atomic::Attr {
            count: code.count,
            size: code.size,
        })
    }
}

impl LocalKeys {
    fn of_size(bytes: usize) -> Self {
        let bits = u32::try_from(bytes).unwrap_or(8).clamp(1, 8) * 8;
        Self {
            // The largest eight-byte number, FI_KEY_NOTAVAIL, is not a key.
            largest: (u64::MAX >> (64 - bits)) - 1,
            taken: AtomicU64::new(0),
        }
    }

    fn next(&self) -> u64 {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        self.largest - taken % (self.largest / 2 + 1)
    }
}
