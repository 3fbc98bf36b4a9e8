//! The peer table. It finds a peer by the application's address, by a URL, or by the method's
//! address, which the application never sees.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;

use crate::ids::{MethodAddr, MethodIndex};
use crate::{Addr, Code, Result};

/// Maximum number of disconnected peers in the table, unless more of them are in use. A post to a
/// disconnected peer fails with EPIPE, and a post to a forgotten one with EPROTO.
const MAX_DISCONNECTED: usize = 64;
/// Maximum number of peers of one method.
const MAX_PEERS: u32 = (1 << 28) - 1;
const NO_SLOT: u32 = u32::MAX;

/// The peers of one method.
#[derive(Debug)]
pub(crate) struct References {
    method: MethodIndex,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_url: HashMap<String, u32>,
    /// The slots of the peers, indexed by the method's address; [`NO_SLOT`] where there is no peer.
    by_method: Vec<u32>,
    /// The slots of the disconnected peers, in the order in which they disconnected.
    disconnected: VecDeque<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Reference>,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) method_addr: MethodAddr,
    /// The URL of the peer's first lookup; `None` for a peer that connected without a lookup.
    pub(crate) url: Option<CString>,
    /// The peer's host as the method names it. The first query caches it.
    pub(crate) host: Option<CString>,
    /// Number of references that the application holds.
    pub(crate) refs: u32,
    /// Number of operations and queued unexpected messages that name the peer.
    pub(crate) pending: u32,
    /// Whether the peer connected without a lookup and has disconnected. It has no URL under which
    /// a process could be found again.
    pub(crate) is_disconnected: bool,
}

impl References {
    pub(crate) fn new(method: MethodIndex) -> Self {
        Self {
            method,
            slots: Vec::new(),
            free: Vec::new(),
            by_url: HashMap::new(),
            by_method: Vec::new(),
            disconnected: VecDeque::new(),
        }
    }

    /// The peer with this URL.
    pub(crate) fn by_url(&self, url: &str) -> Option<Addr> {
        let &slot = self.by_url.get(url)?;
        Some(self.addr(slot))
    }

    /// The peer with this method address.
    #[inline]
    pub(crate) fn by_method(&self, method_addr: MethodAddr) -> Option<Addr> {
        match self.by_method.get(method_addr.0 as usize) {
            Some(&slot) if slot != NO_SLOT => Some(self.addr(slot)),
            _ => None,
        }
    }

    /// The entry of a peer.
    #[inline]
    pub(crate) fn get(&self, addr: Addr) -> Option<&Reference> {
        let slot = self.slots.get(addr.slot() as usize)?;
        if slot.generation == addr.generation() {
            slot.entry.as_ref()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, addr: Addr) -> Option<&mut Reference> {
        let slot = self.slots.get_mut(addr.slot() as usize)?;
        if slot.generation == addr.generation() {
            slot.entry.as_mut()
        } else {
            None
        }
    }

    /// The method's address of a peer to send to.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for an unknown peer, [`Code::EPIPE`] for a disconnected one.
    #[inline]
    pub(crate) fn resolve(&self, addr: Addr) -> Result<MethodAddr> {
        let reference = self.get(addr).ok_or(Code::EPROTO)?;
        if reference.is_disconnected {
            Err(Code::EPIPE)
        } else {
            Ok(reference.method_addr)
        }
    }

    /// The method's address of a peer to receive from. A disconnected peer is no error: messages
    /// that it sent earlier may still be queued.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for an unknown peer.
    #[inline]
    pub(crate) fn resolve_source(&self, addr: Addr) -> Result<MethodAddr> {
        self.get(addr)
            .map(|reference| reference.method_addr)
            .ok_or(Code::EPROTO)
    }

    /// Registers a peer by its method's address and returns the application's address. A peer that
    /// is already registered keeps its address.
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when the table is full.
    pub(crate) fn register(&mut self, method_addr: MethodAddr) -> Result<Addr> {
        if let Some(addr) = self.by_method(method_addr) {
            return Ok(addr);
        }
        let slot = self.alloc_slot()?;
        self.slots[slot as usize].entry = Some(Reference {
            method_addr,
            url: None,
            host: None,
            refs: 0,
            pending: 0,
            is_disconnected: false,
        });
        let number = method_addr.0 as usize;
        if number >= self.by_method.len() {
            self.by_method.resize(number + 1, NO_SLOT);
        }
        self.by_method[number] = slot;
        Ok(self.addr(slot))
    }

    fn alloc_slot(&mut self) -> Result<u32> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let slot = self.slots.len() as u32;
        if slot >= MAX_PEERS {
            return Err(Code::ENOBUFS);
        }
        self.slots.push(Slot {
            generation: 1,
            entry: None,
        });
        Ok(slot)
    }

    /// Records the URL of a lookup. A reverse lookup returns the first URL of the peer. Marks the
    /// peer as connected: the lookup may have found another process under the URL.
    pub(crate) fn name(&mut self, addr: Addr, url: &str) {
        let Ok(text) = CString::new(url) else {
            return;
        };
        self.set_connected(addr);
        if let Some(reference) = self.get_mut(addr) {
            reference.url.get_or_insert(text);
            self.by_url.insert(url.to_owned(), addr.slot());
        }
    }

    /// Forgets a peer. Returns its method's address, so that the method can forget it too.
    pub(crate) fn forget(&mut self, addr: Addr) -> Option<MethodAddr> {
        self.get(addr)?;
        let slot = &mut self.slots[addr.slot() as usize];
        let reference = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(addr.slot());
        self.by_method[reference.method_addr.0 as usize] = NO_SLOT;
        self.disconnected.retain(|&slot| slot != addr.slot());
        if reference.url.is_some() {
            self.by_url.retain(|_, &mut named| named != addr.slot());
        }
        Some(reference.method_addr)
    }

    /// Marks a peer as disconnected if it connected without a lookup. Its entry stays in the table.
    /// If more than [`MAX_DISCONNECTED`] peers are disconnected, returns one that the caller must
    /// forget, unless all are in use.
    pub(crate) fn set_disconnected(&mut self, method_addr: MethodAddr) -> Option<Addr> {
        let addr = self.by_method(method_addr)?;
        let reference = self.get_mut(addr)?;
        if reference.url.is_some() || reference.is_disconnected {
            return None;
        }
        reference.is_disconnected = true;
        self.disconnected.push_back(addr.slot());
        if self.disconnected.len() > MAX_DISCONNECTED {
            self.next_to_forget()
        } else {
            None
        }
    }

    /// Marks a peer as connected again.
    pub(crate) fn set_connected(&mut self, addr: Addr) {
        if let Some(reference) = self.get_mut(addr) {
            reference.is_disconnected = false;
            self.disconnected.retain(|&slot| slot != addr.slot());
        }
    }

    /// The first disconnected peer that is not in use: it has no reference and nothing pending.
    pub(crate) fn next_to_forget(&self) -> Option<Addr> {
        let is_free = |&&slot: &&u32| {
            let entry = self.slots[slot as usize].entry.as_ref();
            entry.is_some_and(|reference| reference.refs == 0 && reference.pending == 0)
        };
        let slot = self.disconnected.iter().find(is_free)?;
        Some(self.addr(*slot))
    }

    /// Number of peers.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    fn addr(&self, slot: u32) -> Addr {
        Addr::new(self.method, slot, self.slots[slot as usize].generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_one_address_under_all_its_urls() {
        let mut references = References::new(3);
        let addr = references.register(MethodAddr(5)).unwrap();
        assert_eq!(references.register(MethodAddr(5)), Ok(addr));
        references.name(addr, "shm://a:1");
        references.name(addr, "shm://b:1");
        assert_eq!(references.by_url("shm://a:1"), Some(addr));
        assert_eq!(references.by_url("shm://b:1"), Some(addr));
        let url = references.get(addr).unwrap().url.clone();
        assert_eq!(url.as_deref(), Some(c"shm://a:1"));
        assert_eq!(references.resolve(addr), Ok(MethodAddr(5)));
    }

    #[test]
    fn a_forgotten_address_is_invalid() {
        let mut references = References::new(0);
        let first = references.register(MethodAddr(0)).unwrap();
        references.name(first, "shm://a:1");
        assert_eq!(references.forget(first), Some(MethodAddr(0)));
        assert_eq!(references.forget(first), None);
        assert_eq!(references.resolve(first), Err(Code::EPROTO));
        assert_eq!(references.by_url("shm://a:1"), None);
        let second = references.register(MethodAddr(1)).unwrap();
        assert_ne!(first, second);
        assert_eq!(references.resolve(first), Err(Code::EPROTO));
        assert_eq!(references.len(), 1);
    }

    #[test]
    fn disconnected_peers_are_kept_for_a_while_and_while_referenced() {
        let mut references = References::new(0);
        let held = references.register(MethodAddr(0)).unwrap();
        references.get_mut(held).unwrap().refs = 1;
        assert_eq!(references.set_disconnected(MethodAddr(0)), None);
        assert_eq!(references.resolve(held), Err(Code::EPIPE));
        for number in 1..1000 {
            let addr = references.register(MethodAddr(number)).unwrap();
            if let Some(forgotten) = references.set_disconnected(MethodAddr(number)) {
                assert!(forgotten != held && forgotten != addr);
                references.forget(forgotten).unwrap();
            }
        }
        assert_eq!(references.len(), MAX_DISCONNECTED);
        assert_eq!(references.resolve(held), Err(Code::EPIPE));
        references.get_mut(held).unwrap().refs = 0;
        assert_eq!(references.next_to_forget(), Some(held));
    }

    #[test]
    fn a_peer_of_an_earlier_lookup_may_reconnect() {
        let mut references = References::new(0);
        let addr = references.register(MethodAddr(0)).unwrap();
        references.name(addr, "shm://a:1");
        assert_eq!(references.set_disconnected(MethodAddr(0)), None);
        assert_eq!(references.resolve(addr), Ok(MethodAddr(0)));
    }

    #[test]
    fn a_lookup_or_a_message_marks_a_disconnected_peer_as_connected() {
        let mut references = References::new(0);
        let [named, connected] = [0, 1].map(|n| references.register(MethodAddr(n)).unwrap());
        for number in 0..2 {
            assert_eq!(references.set_disconnected(MethodAddr(number)), None);
        }
        references.name(named, "shm://a:1");
        references.set_connected(connected);
        assert_eq!(references.resolve(named), Ok(MethodAddr(0)));
        assert_eq!(references.resolve(connected), Ok(MethodAddr(1)));
        assert_eq!(references.next_to_forget(), None);
    }
}
