//! Siblings: endpoints of one domain, whose regions are in the domain's own table.
//!
//! A one-sided operation on a sibling, or on the initiating endpoint itself, is carried out by the
//! post: the bytes are in the memory when it returns, whoever makes progress. The target endpoint is
//! sent a notice if it counts such operations or if remote data comes with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_kit::copy::RxBuf;

use super::{Access, Local, Notice, violation};
use crate::domain::Shared;
use crate::name::Name;
use crate::peer::Peer;
use crate::smr::keys::Denied;
use crate::state::State;

/// An open endpoint, as the other endpoints of its domain know it.
#[derive(Debug)]
pub(crate) struct Sibling {
    is_open: AtomicBool,
    /// Whether it counts operations of peers on its memory.
    counts_peers: bool,
}

/// The open endpoints of a domain, by name.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Mutex<FxHashMap<Name, Arc<Sibling>>>);

impl Siblings {
    /// Adds an endpoint that has just taken its name.
    pub(crate) fn add(&self, name: &Name, counts_peers: bool) {
        let sibling = Arc::new(Sibling {
            is_open: AtomicBool::new(true),
            counts_peers,
        });
        self.lock().insert(name.clone(), sibling);
    }

    /// Removes an endpoint that closes and gives its name up.
    pub(crate) fn remove(&self, name: &Name) {
        if let Some(sibling) = self.lock().remove(name) {
            sibling.is_open.store(false, Ordering::Release);
        }
    }

    /// The open endpoint of this domain that has a name.
    pub(crate) fn find(&self, name: &Name) -> Option<Arc<Sibling>> {
        self.lock().get(name).map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Name, Arc<Sibling>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// The peer as an endpoint of this domain, while it is open.
    #[inline]
    fn open_sibling(&self) -> Option<&Sibling> {
        let sibling = self.sibling.as_deref()?;
        sibling.is_open.load(Ordering::Acquire).then_some(sibling)
    }
}

impl State {
    /// Whether an operation that nothing else has to precede may be carried out here: its target is
    /// an open endpoint of this domain, and can be told of it if that is due.
    ///
    /// # Errors
    /// [`Errno::Again`] while there is no room to tell the target.
    pub(crate) fn may_access_sibling(
        &mut self,
        index: usize,
        data: Option<u64>,
        flags: OpFlags,
    ) -> Result<bool> {
        let peer = &self.peers[index];
        let Some(sibling) = peer.open_sibling() else {
            return Ok(false);
        };
        // A fenced operation follows everything that was sent before it.
        if flags.contains(OpFlags::FENCE) {
            return Ok(false);
        }
        if !sibling.counts_peers && data.is_none() {
            return Ok(true);
        }
        if !self.is_ready(index) {
            return Ok(false);
        }
        match self.peers[index].reserve_notice(data) {
            Ok(()) => Ok(true),
            Err(Errno::Again) => Err(Errno::Again),
            // The general path knows how to treat a peer whose queue makes no sense.
            Err(_) => Ok(false),
        }
    }

    /// Reads or writes a sibling's memory and reports it, after [`Self::may_access_sibling`].
    pub(super) fn access_sibling(&mut self, index: usize, access: &Access, local: Local) {
        let places = access.places.all();
        let wrote = !access.is_read();
        match copy(&self.shared, access, local) {
            Ok(()) => {
                match wrote {
                    true => self.shared.keys.count_write(places),
                    false => self.shared.keys.count_read(&access.places),
                }
                self.notify_sibling(index, wrote, access.data, access.places.len());
                access.report.done(&self.ep);
            }
            Err((place, denied)) => {
                let name = self.peers[index].name.as_str();
                let detail = violation(name, &place, denied);
                let report = &access.report;
                report.failed(&self.ep, denied.errno(), FiAddr::UNSPEC, detail);
            }
        }
    }

    /// Tells a sibling of an operation on its memory, if it wants to know.
    pub(crate) fn notify_sibling(
        &mut self,
        index: usize,
        wrote: bool,
        data: Option<u64>,
        len: usize,
    ) {
        let peer = &mut self.peers[index];
        if peer.wants_notices || data.is_some() {
            peer.notify(Notice { wrote, data, len });
            peer.announce();
        }
    }
}

/// Copies between the caller's buffer and all places: all of it, or nothing.
fn copy(domain: &Shared, access: &Access, local: Local) -> Result<(), (RmaIov, Denied)> {
    let regions = domain.keys.regions();
    let rights = access.rights();
    for place in access.places.all() {
        regions
            .allow(place, rights)
            .map_err(|denied| (*place, denied))?;
    }
    let mut local = local;
    let mut done = 0;
    for place in access.places.all() {
        let memory = regions.locate(place, rights);
        let memory = memory.map_err(|denied| (*place, denied))?;
        match &mut local {
            Local::From(buf) => {
                let mut at = 0;
                for piece in buf.pieces(done, place.len) {
                    memory.part(at, piece.len()).write(piece);
                    at += piece.len();
                }
            }
            Local::Copy(bytes) => memory.write(&bytes[done..done + place.len]),
            Local::To(buf) => read(memory, buf, done),
        }
        done += place.len;
    }
    Ok(())
}

/// Fills a buffer from `done` on with registered memory.
fn read(memory: SharedBytes, buf: &mut RxBuf, done: usize) {
    let mut at = 0;
    for piece in buf.pieces(done, memory.len()) {
        memory.part(at, piece.len()).read(piece);
        at += piece.len();
    }
}
