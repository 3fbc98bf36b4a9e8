//! Settings, limits, references to peers, and memory (`BMI_set_info`, `BMI_get_info`,
//! `BMI_memalloc`).

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use super::bmi::Bmi;
use super::method_instance::MethodInstance;
use super::queues::MethodQueues;
use crate::method::Setting;
use crate::url::Url;
use crate::{Addr, Code, Memory, Result};

/// A limit that can be queried (`BMI_get_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of the largest message that every active method can send (`BMI_CHECK_MAXSIZE`).
    Size,
    /// Bytes of the largest unexpected message to a peer (`BMI_GET_UNEXP_SIZE`).
    Unexpected(Addr),
}

impl Bmi {
    /// Whether a method is active (`BMI_CHECK_INIT`).
    pub fn is_active(&self) -> bool {
        self.method_instances().next().is_some()
    }

    /// Returns a limit, in bytes.
    ///
    /// # Errors
    /// [`Code::ENETDOWN`] without an active method; [`Code::EINVAL`] for an unknown peer.
    pub fn limit(&self, limit: Limit) -> Result<u64> {
        match limit {
            Limit::Size => {
                let sizes = self.method_instances().map(|instance| instance.limits.size);
                sizes.min().ok_or(Code::ENETDOWN)
            }
            Limit::Unexpected(addr) => {
                let instance = self.instance_of_peer(addr).ok_or(Code::EINVAL)?;
                Ok(instance.limits.unexpected)
            }
        }
    }

    /// Returns the port of the first method that listens (`BMI_TCP_GET_PORT`), or 0 if that method
    /// listens at a name without a port. [`Self::urls`] returns the ports of all methods.
    ///
    /// # Errors
    /// [`Code::ENOSYS`] when no method listens.
    pub fn listen_port(&self) -> Result<u16> {
        let mut ports = self
            .method_instances()
            .filter_map(|instance| instance.lock(&self.parking).split().0.listen_port());
        ports.next().ok_or(Code::ENOSYS)
    }

    /// Returns the URLs under which peers find this process, one for each listening method.
    pub fn urls(&self) -> Vec<String> {
        let own = Url::parse_all(&self.config.listen).unwrap_or_default();
        let bound = own.into_iter().filter_map(|url| {
            let instance = self.instance_for_scheme(&url.scheme)?;
            let port = instance.lock(&self.parking).split().0.listen_port();
            let port = port.filter(|port| *port != 0);
            Some(Url { port, ..url }.to_string())
        });
        bound.collect()
    }

    /// Changes a setting of a peer's method, or of all methods with [`Addr::NONE`].
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer, if no method is active, and for an invalid value.
    pub fn set_info(&self, addr: Addr, setting: Setting) -> Result {
        if addr != Addr::NONE {
            self.with_reference(addr, |_| ())?;
        }
        let mut is_set = Err(Code::EINVAL);
        for instance in self.method_instances() {
            if addr == Addr::NONE || instance.index == addr.method() {
                is_set = instance.lock(&self.parking).split().0.set_info(setting);
                is_set?;
            }
        }
        is_set
    }

    /// Sets whether an unexpected message ends a wait of [`Self::testcontext`]
    /// (`BMI_TCP_CHECK_UNEXPECTED`). The default is true.
    pub fn interrupt_on_unexpected(&self, interrupt: bool) {
        self.interrupts_on_unexpected
            .store(interrupt, Ordering::Relaxed);
    }

    /// Adds a reference to a peer (`BMI_INC_ADDR_REF`).
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer.
    pub fn inc_addr_ref(&self, addr: Addr) -> Result {
        self.with_reference(addr, |queues| {
            if let Some(reference) = queues.references.get_mut(addr) {
                reference.refs += 1;
            }
        })
    }

    /// Removes a reference to a peer (`BMI_DEC_ADDR_REF`). Removing the last reference to a
    /// disconnected peer forgets the peer.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer, and for a peer without references.
    pub fn dec_addr_ref(&self, addr: Addr) -> Result {
        self.with_reference(addr, |queues| {
            let reference = queues.references.get_mut(addr).ok_or(Code::EINVAL)?;
            reference.refs = reference.refs.checked_sub(1).ok_or(Code::EINVAL)?;
            Ok::<_, Code>(())
        })??;
        self.forget_disconnected();
        Ok(())
    }

    /// Forgets a peer (`BMI_DROP_ADDR`, `BMI_TCP_CLOSE_SOCKET`). A later lookup of the same URL
    /// returns another address.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer, [`Code::EBUSY`] while operations or messages refer to
    /// it.
    pub fn drop_addr(&self, addr: Addr) -> Result {
        let instance = self.method_instance(addr.method()).ok_or(Code::EINVAL)?;
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let reference = queues.references.get(addr).ok_or(Code::EINVAL)?;
        if reference.pending > 0 {
            return Err(Code::EBUSY);
        }
        if let Some(method_addr) = queues.references.forget(addr) {
            method.addr_forget(method_addr);
        }
        Ok(())
    }

    /// Returns the URL by which a peer was looked up (`BMI_addr_rev_lookup`), or `None` for an
    /// unknown peer and for a peer that connected without a lookup.
    pub fn rev_lookup(&self, addr: Addr) -> Option<CString> {
        self.with_reference(addr, |queues| queues.references.get(addr)?.url.clone())
            .ok()?
    }

    /// Returns the host of a peer (`BMI_addr_rev_lookup_unexpected`), or the name of the peer if
    /// the provider has no hosts; `None` for an unknown peer.
    pub fn rev_lookup_unexpected(&self, addr: Addr) -> Option<CString> {
        let instance = self.instance_of_peer(addr)?;
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let reference = queues.references.get_mut(addr)?;
        if reference.host.is_none() {
            reference.host = CString::new(method.host(reference.method_addr)).ok();
        }
        reference.host.clone()
    }

    /// Calls `use_names` with the results of [`Self::rev_lookup`] and
    /// [`Self::rev_lookup_unexpected`] without copying them. Both strings stay at their addresses
    /// until the peer is forgotten. Does not call `use_names` for an unknown peer.
    pub fn with_names(&self, addr: Addr, use_names: &mut dyn FnMut(Option<&CStr>, Option<&CStr>)) {
        // Fills the cached host name.
        let _ = self.rev_lookup_unexpected(addr);
        let _ = self.with_reference(addr, |queues| {
            if let Some(reference) = queues.references.get(addr) {
                use_names(reference.url.as_deref(), reference.host.as_deref());
            }
        });
    }

    /// Whether a URL with wildcards or a netmask includes a peer (`BMI_query_addr_range`).
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer and for an invalid pattern.
    pub fn query_addr_range(&self, addr: Addr, pattern: &str, netmask: Option<u8>) -> Result<bool> {
        let instance = self.instance_of_peer(addr).ok_or(Code::EINVAL)?;
        let (scheme, hosts) = pattern.split_once("://").ok_or(Code::EINVAL)?;
        if scheme != instance.scheme {
            return Ok(false);
        }
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let reference = queues.references.get(addr).ok_or(Code::EINVAL)?;
        method.is_in_range(reference.method_addr, hosts, netmask)
    }

    /// Allocates zeroed, page-aligned memory (`BMI_memalloc`) that the method of a peer sends and
    /// receives fast; for [`Addr::NONE`], the first active method. Returns `None` for an unknown
    /// peer, or when memory is exhausted.
    pub fn memalloc(&self, addr: Addr, len: usize) -> Option<Memory> {
        let instance = match addr {
            Addr::NONE => self.method_instances().next(),
            _ => Some(self.instance_of_peer(addr)?),
        };
        instance
            .and_then(|instance| instance.lock(&self.parking).memalloc(len))
            .or_else(|| Memory::allocate(len))
    }

    /// Whether a peer has disconnected (`BMI_DROP_ADDR_QUERY`); always false for a peer that was
    /// looked up.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown peer.
    pub fn is_disconnected(&self, addr: Addr) -> Result<bool> {
        self.with_reference(addr, |queues| {
            queues
                .references
                .get(addr)
                .is_some_and(|reference| reference.is_disconnected)
        })
    }

    /// Whether the peer table of a method contains the peer.
    pub fn has_peer(&self, addr: Addr) -> bool {
        self.with_reference(addr, |_| ()).is_ok()
    }

    /// Number of peers in the tables of all methods.
    pub fn peer_count(&self) -> usize {
        let lens = self.method_instances().map(|instance| {
            let mut locked = instance.lock(&self.parking);
            locked.queues().references.len()
        });
        lens.sum()
    }

    /// Adds a reference to the sender of an unexpected message, if the configuration requests it.
    pub(super) fn count_reference(&self, queues: &mut MethodQueues, addr: Addr) {
        if self.config.auto_ref_count
            && let Some(reference) = queues.references.get_mut(addr)
        {
            reference.refs += 1;
        }
    }

    /// Forgets the disconnected peers without references.
    pub(super) fn forget_disconnected(&self) {
        for instance in self.method_instances() {
            let mut locked = instance.lock(&self.parking);
            let (method, queues) = locked.split();
            while let Some(addr) = queues.references.next_to_forget() {
                if let Some(method_addr) = queues.references.forget(addr) {
                    method.addr_forget(method_addr);
                }
            }
        }
    }

    fn instance_of_peer(&self, addr: Addr) -> Option<&MethodInstance> {
        self.with_reference(addr, |_| ()).ok()?;
        self.method_instance(addr.method())
    }

    fn with_reference<T>(&self, addr: Addr, f: impl FnOnce(&mut MethodQueues) -> T) -> Result<T> {
        let instance = self.method_instance(addr.method()).ok_or(Code::EINVAL)?;
        let mut locked = instance.lock(&self.parking);
        let queues = locked.queues();
        queues.references.get(addr).ok_or(Code::EINVAL)?;
        Ok(f(queues))
    }
}
