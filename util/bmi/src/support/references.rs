//! The reference list: for each peer, what the application calls it (its address), what people call
//! it (a URL), and what its method calls it, which the application never sees.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;

use crate::ids::MethodIndex;
use crate::method::MethodAddr;
use crate::{Addr, Code, Result};

/// Peers that are gone and are still remembered, so that who asks for one hears that it is gone and
/// not that it never was.
const REMEMBERED: usize = 64;
/// Peers of one method.
const PLACES: u32 = (1 << 28) - 1;
const NOWHERE: u32 = u32::MAX;

/// The references of one method.
#[derive(Debug)]
pub(crate) struct References {
    method: MethodIndex,
    places: Vec<Place>,
    free: Vec<u32>,
    by_url: HashMap<String, u32>,
    /// By the number of the method's address.
    by_method: Vec<u32>,
    /// Peers that are gone and that nobody holds.
    gone: VecDeque<u32>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    entry: Option<Reference>,
}

/// What is known of one peer.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) method_addr: MethodAddr,
    /// As it was looked up; `None` for a peer that came by itself.
    pub(crate) url: Option<CString>,
    /// What its method calls it, for people, once somebody has asked.
    pub(crate) host: Option<CString>,
    /// How often the application holds it.
    pub(crate) refs: u32,
    /// Operations and messages that name it.
    pub(crate) pending: u32,
    /// It came by itself and is gone: nobody can be found under its name again.
    pub(crate) is_gone: bool,
}

impl References {
    pub(crate) fn new(method: MethodIndex) -> Self {
        Self {
            method,
            places: Vec::new(),
            free: Vec::new(),
            by_url: HashMap::new(),
            by_method: Vec::new(),
            gone: VecDeque::new(),
        }
    }

    /// The peer with this URL.
    pub(crate) fn by_url(&self, url: &str) -> Option<Addr> {
        let &place = self.by_url.get(url)?;
        Some(self.addr(place))
    }

    /// The peer that its method calls so.
    #[inline]
    pub(crate) fn by_method(&self, method_addr: MethodAddr) -> Option<Addr> {
        match self.by_method.get(method_addr.0 as usize) {
            Some(&place) if place != NOWHERE => Some(self.addr(place)),
            _ => None,
        }
    }

    /// What is known of a peer.
    #[inline]
    pub(crate) fn get(&self, addr: Addr) -> Option<&Reference> {
        let place = self.places.get(addr.place() as usize)?;
        match place.generation == addr.generation() {
            true => place.entry.as_ref(),
            false => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, addr: Addr) -> Option<&mut Reference> {
        let place = self.places.get_mut(addr.place() as usize)?;
        match place.generation == addr.generation() {
            true => place.entry.as_mut(),
            false => None,
        }
    }

    /// The method's name for a peer that something is to be sent to.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for no peer, [`Code::EPIPE`] for one that is gone for good.
    #[inline]
    pub(crate) fn resolve(&self, addr: Addr) -> Result<MethodAddr> {
        let reference = self.get(addr).ok_or(Code::EPROTO)?;
        match reference.is_gone {
            false => Ok(reference.method_addr),
            true => Err(Code::EPIPE),
        }
    }

    /// The method's name for a peer that something is to be received from: one that is gone may
    /// have left messages.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for no peer.
    #[inline]
    pub(crate) fn resolve_source(&self, addr: Addr) -> Result<MethodAddr> {
        self.get(addr)
            .map(|known| known.method_addr)
            .ok_or(Code::EPROTO)
    }

    /// Registers a peer by its method's name, and says what the application calls it. Known ones
    /// keep their address.
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when there are too many.
    pub(crate) fn register(&mut self, method_addr: MethodAddr) -> Result<Addr> {
        if let Some(known) = self.by_method(method_addr) {
            return Ok(known);
        }
        let place = self.vacancy()?;
        self.places[place as usize].entry = Some(Reference {
            method_addr,
            url: None,
            host: None,
            refs: 0,
            pending: 0,
            is_gone: false,
        });
        let number = method_addr.0 as usize;
        if number >= self.by_method.len() {
            self.by_method.resize(number + 1, NOWHERE);
        }
        self.by_method[number] = place;
        Ok(self.addr(place))
    }

    fn vacancy(&mut self) -> Result<u32> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        let place = self.places.len() as u32;
        if place >= PLACES {
            return Err(Code::ENOBUFS);
        }
        self.places.push(Place {
            generation: 1,
            entry: None,
        });
        Ok(place)
    }

    /// Notes the URL that a peer was looked up by. The first one is what it is called. Under a URL a
    /// peer that was gone may be found again.
    pub(crate) fn name(&mut self, addr: Addr, url: &str) {
        let Ok(text) = CString::new(url) else {
            return;
        };
        self.set_back(addr);
        if let Some(reference) = self.get_mut(addr) {
            reference.url.get_or_insert(text);
            self.by_url.insert(url.to_owned(), addr.place());
        }
    }

    /// Forgets a peer. What its method called it, so that the method can forget it too.
    pub(crate) fn forget(&mut self, addr: Addr) -> Option<MethodAddr> {
        self.get(addr)?;
        let place = &mut self.places[addr.place() as usize];
        let reference = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1).max(1);
        self.free.push(addr.place());
        self.by_method[reference.method_addr.0 as usize] = NOWHERE;
        self.gone.retain(|&gone| gone != addr.place());
        if reference.url.is_some() {
            self.by_url.retain(|_, &mut named| named != addr.place());
        }
        Some(reference.method_addr)
    }

    /// A peer that came by itself is gone. It is remembered for a while; whoever has to be forgotten
    /// for it comes back.
    pub(crate) fn set_gone(&mut self, method_addr: MethodAddr) -> Option<Addr> {
        let addr = self.by_method(method_addr)?;
        let reference = self.get_mut(addr)?;
        if reference.url.is_some() || reference.is_gone {
            return None;
        }
        reference.is_gone = true;
        self.gone.push_back(addr.place());
        match self.gone.len() > REMEMBERED {
            true => self.next_to_forget(),
            false => None,
        }
    }

    /// A peer that was gone is there again.
    pub(crate) fn set_back(&mut self, addr: Addr) {
        if let Some(reference) = self.get_mut(addr) {
            reference.is_gone = false;
            self.gone.retain(|&gone| gone != addr.place());
        }
    }

    /// A peer that is gone and that nothing holds any more.
    pub(crate) fn next_to_forget(&self) -> Option<Addr> {
        let is_free = |&&place: &&u32| {
            let entry = self.places[place as usize].entry.as_ref();
            entry.is_some_and(|reference| reference.refs == 0 && reference.pending == 0)
        };
        let place = self.gone.iter().find(is_free)?;
        Some(self.addr(*place))
    }

    /// How many peers there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    #[inline]
    fn addr(&self, place: u32) -> Addr {
        Addr::new(self.method, place, self.places[place as usize].generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_one_address_however_it_is_met() {
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
    fn an_address_that_was_forgotten_is_no_address_any_more() {
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
    fn strangers_that_are_gone_are_remembered_for_a_while_and_by_whoever_holds_them() {
        let mut references = References::new(0);
        let held = references.register(MethodAddr(0)).unwrap();
        references.get_mut(held).unwrap().refs = 1;
        assert_eq!(references.set_gone(MethodAddr(0)), None);
        assert_eq!(references.resolve(held), Err(Code::EPIPE));
        for number in 1..1000 {
            let addr = references.register(MethodAddr(number)).unwrap();
            if let Some(forgotten) = references.set_gone(MethodAddr(number)) {
                assert!(forgotten != held && forgotten != addr);
                references.forget(forgotten).unwrap();
            }
        }
        assert_eq!(references.len(), REMEMBERED);
        assert_eq!(references.resolve(held), Err(Code::EPIPE));
        references.get_mut(held).unwrap().refs = 0;
        assert_eq!(references.next_to_forget(), Some(held));
    }

    #[test]
    fn a_peer_that_was_looked_up_may_come_back() {
        let mut references = References::new(0);
        let addr = references.register(MethodAddr(0)).unwrap();
        references.name(addr, "shm://a:1");
        assert_eq!(references.set_gone(MethodAddr(0)), None);
        assert_eq!(references.resolve(addr), Ok(MethodAddr(0)));
    }

    #[test]
    fn a_stranger_that_was_gone_and_is_looked_up_or_heard_is_no_stranger_that_is_gone() {
        let mut references = References::new(0);
        let [named, heard] = [0, 1].map(|n| references.register(MethodAddr(n)).unwrap());
        for number in 0..2 {
            assert_eq!(references.set_gone(MethodAddr(number)), None);
        }
        references.name(named, "shm://a:1");
        references.set_back(heard);
        assert_eq!(references.resolve(named), Ok(MethodAddr(0)));
        assert_eq!(references.resolve(heard), Ok(MethodAddr(1)));
        assert_eq!(references.next_to_forget(), None);
    }
}
