//! `Map`: peers by index and by name, with their mapped regions (`smr_map`).
//!
//! Every process writes only to its own memory. In an address exchange, each endpoint writes the
//! peer's index in its map into the region that it has created for the peer, and reads its own
//! index from the peer's region.
//!
//! The map does not pass regions between processes: the caller of [`Map::map_to_region`] supplies
//! the descriptor.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use selvedge::{Errno, Error};

use super::layout::{NAME_MAX, Sizes};
use super::region::{Addr, PeerRegion, Region};

/// Peers by index and by name.
///
/// # Examples
///
/// Two endpoints of one process, which pass their regions directly:
///
/// ```
/// use selvedge_shm::smr::{Attr, Map, Region, Sizes};
///
/// let sizes = Sizes { cmd_count: 16, resp_count: 16, inject_size: 4096 };
/// let a_for_b = Region::create(&Attr { sizes, peer: "b" })?;
/// let b_for_a = Region::create(&Attr { sizes, peer: "a" })?;
///
/// let mut a = Map::new(8);
/// a.add("b", 5)?;
/// a.map_to_region(5, |_| b_for_a.share())?;
/// assert_eq!(a.map_to_endpoint(&a_for_b, 5)?.to_string(), "b UNSPEC");
///
/// let mut b = Map::new(8);
/// b.add("a", 2)?;
/// b.map_to_region(2, |_| a_for_b.share())?;
/// assert_eq!(b.map_to_endpoint(&b_for_a, 2)?.to_string(), "a 5");
/// assert_eq!(a.addr(5).expect("was added").to_string(), "b 2");
/// # Ok::<(), selvedge::Error>(())
/// ```
#[derive(Debug)]
pub struct Map {
    peers: Vec<Option<Entry>>,
    names: HashMap<String, u64>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    region: Option<PeerRegion>,
}

impl Map {
    /// Creates a map for up to `peer_count` peers, with indices below `peer_count`
    /// (`smr_map_create`).
    pub fn new(peer_count: usize) -> Self {
        Self {
            peers: (0..peer_count).map(|_| None).collect(),
            names: HashMap::new(),
        }
    }

    /// Adds the peer called `name` under index `id` (`smr_map_add`). The peer need not exist, and
    /// its region is not mapped.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the index is too large or belongs to another peer, and when the name
    /// has an index already or is longer than [`NAME_MAX`] bytes. The map is unchanged then.
    pub fn add(&mut self, name: &str, id: u64) -> Result<(), Error> {
        let refused =
            |reason: String| Err(Error::new(Errno::Inval, format!("peer {name:?}: {reason}")));
        if name.len() > NAME_MAX {
            return refused(format!("a name has at most {NAME_MAX} bytes"));
        }
        if let Some(index) = self.find(name) {
            return refused(format!("the name has index {index} already"));
        }
        let count = self.peers.len();
        match usize::try_from(id)
            .ok()
            .and_then(|id| self.peers.get_mut(id))
        {
            None => refused(format!(
                "index {id} is too large for a map of {count} peers"
            )),
            Some(Some(other)) => refused(format!("index {id} belongs to {:?}", other.name)),
            Some(free) => {
                let (name, region) = (name.to_owned(), None);
                self.names.insert(name.clone(), id);
                *free = Some(Entry { name, region });
                Ok(())
            }
        }
    }

    /// Removes a peer and unmaps its region.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when no peer has this index.
    pub fn remove(&mut self, id: u64) -> Result<(), Error> {
        let name = self.entry(id)?.name.clone();
        self.names.remove(&name);
        self.peers[id as usize] = None;
        Ok(())
    }

    /// Maps the region that a peer has created for this endpoint (`smr_map_to_region`), unless the
    /// region is mapped already. `find` gets the peer's name and returns the region's descriptor
    /// and sizes. It fails with [`Errno::Again`] while the peer has not initialised the region.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when no peer has this index; the error of `find`; [`Errno::Proto`] when the
    /// descriptor is not a region.
    pub fn map_to_region(
        &mut self,
        id: u64,
        find: impl FnOnce(&str) -> Result<(OwnedFd, Sizes), Error>,
    ) -> Result<&PeerRegion, Error> {
        let entry = self.entry_mut(id)?;
        let region = match entry.region.take() {
            Some(region) => region,
            None => {
                let (fd, sizes) = find(&entry.name)?;
                PeerRegion::attach(fd, sizes)?
            }
        };
        Ok(entry.region.insert(region))
    }

    /// Exchanges addresses with the peer at `index` (`smr_map_to_endpoint`): writes the index into
    /// `region`, which was created for the peer, and returns the address that the peer has written.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when no peer has this index; [`Errno::Inval`] when the region was created
    /// for another peer.
    pub fn map_to_endpoint(&self, region: &Region, index: u64) -> Result<Addr, Error> {
        let name = &self.entry(index)?.name;
        let intended_peer = region.peer_name();
        if intended_peer != *name {
            let reason =
                format!("a region was created for {intended_peer:?} and used for {name:?}");
            return Err(Error::new(Errno::Inval, reason));
        }
        region.set_peer_index(index);
        self.addr(index).ok_or_else(|| unknown(index))
    }

    /// Returns the index of a peer by its name.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.names.get(name).copied()
    }

    /// Returns a peer's name, and this endpoint's index in the peer's map once the peer has written
    /// that index.
    pub fn addr(&self, id: u64) -> Option<Addr> {
        self.entry(id).ok().map(Entry::addr)
    }

    /// Returns the region of a peer, once it is mapped.
    pub fn region(&self, id: u64) -> Option<&PeerRegion> {
        self.entry(id).ok()?.region.as_ref()
    }

    /// Returns every peer with its index, in the order of indices.
    pub fn peers(&self) -> impl Iterator<Item = (u64, Addr)> {
        (0..)
            .zip(&self.peers)
            .filter_map(|(id, entry)| Some((id, entry.as_ref()?.addr())))
    }

    fn entry(&self, id: u64) -> Result<&Entry, Error> {
        let slot = usize::try_from(id).ok().and_then(|id| self.peers.get(id));
        slot.and_then(Option::as_ref).ok_or_else(|| unknown(id))
    }

    fn entry_mut(&mut self, id: u64) -> Result<&mut Entry, Error> {
        let slot = usize::try_from(id).ok();
        slot.and_then(|id| self.peers.get_mut(id))
            .and_then(Option::as_mut)
            .ok_or_else(|| unknown(id))
    }
}

impl Entry {
    fn addr(&self) -> Addr {
        Addr {
            name: self.name.clone(),
            index: self.region.as_ref().and_then(|r| r.peer_addr().index),
        }
    }
}

fn unknown(id: u64) -> Error {
    Error::new(Errno::NoEnt, format!("no peer has index {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smr::{Attr, UNSPEC};

    const SIZES: Sizes = Sizes {
        cmd_count: 2,
        resp_count: 2,
        inject_size: 64,
    };

    fn region(peer: &str) -> Region {
        Region::create(&Attr { sizes: SIZES, peer }).unwrap()
    }

    #[test]
    fn names_and_indices_are_unique() {
        let mut map = Map::new(2);
        map.add("a", 1).unwrap();
        for (name, id) in [("a", 0), ("b", 1), ("b", 2), ("b", UNSPEC)] {
            assert_eq!(map.add(name, id).unwrap_err().errno(), Errno::Inval);
        }
        let long = "x".repeat(NAME_MAX + 1);
        assert_eq!(map.add(&long, 0).unwrap_err().errno(), Errno::Inval);
        assert_eq!((map.find("a"), map.find("b")), (Some(1), None));
        map.remove(1).unwrap();
        map.add("b", 1).unwrap();
        assert_eq!(map.find("a"), None);
    }

    #[test]
    fn an_added_peer_is_not_mapped() {
        let mut map = Map::new(1);
        map.add("a", 0).unwrap();
        assert!(map.region(0).is_none());
        assert_eq!(map.addr(0).unwrap().index, None);
    }

    #[test]
    fn a_failed_mapping_is_retried_and_a_successful_one_is_kept() {
        let (mut map, remote) = (Map::new(1), region("local"));
        map.add("a", 0).unwrap();
        let refused = map.map_to_region(0, |_| Err(Error::new(Errno::Again, "not yet")));
        assert_eq!(refused.unwrap_err().errno(), Errno::Again);
        map.map_to_region(0, |name| {
            assert_eq!(name, "a");
            remote.share()
        })
        .unwrap();
        map.map_to_region(0, |_| panic!("the region is mapped already"))
            .unwrap();
    }

    #[test]
    fn unknown_indices_are_refused_by_value() {
        let mut map = Map::new(1);
        for id in [0, 1, UNSPEC] {
            let error = map.map_to_endpoint(&region("a"), id).unwrap_err();
            assert_eq!(error.errno(), Errno::NoEnt);
            assert!(error.to_string().contains(&id.to_string()), "{error}");
            assert!(map.map_to_region(id, |_| panic!("no such peer")).is_err());
        }
    }

    #[test]
    fn a_region_made_for_another_peer_is_refused() {
        let mut map = Map::new(1);
        map.add("a", 0).unwrap();
        let error = map.map_to_endpoint(&region("b"), 0).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
    }

    #[test]
    fn each_side_reads_its_index_in_the_map_of_the_other() {
        let (local, remote) = (region("remote"), region("local"));
        let (mut local_map, mut remote_map) = (Map::new(9), Map::new(9));
        local_map.add("remote", 3).unwrap();
        remote_map.add("local", 8).unwrap();
        local_map.map_to_region(3, |_| remote.share()).unwrap();
        let addr = local_map.map_to_endpoint(&local, 3).unwrap();
        assert_eq!(addr.index, None);
        remote_map.map_to_region(8, |_| local.share()).unwrap();
        let addr = remote_map.map_to_endpoint(&remote, 8).unwrap();
        assert_eq!(addr.index, Some(3));
        assert_eq!(local_map.addr(3).unwrap().index, Some(8));
        let peers: Vec<_> = local_map
            .peers()
            .map(|(id, a)| (id, a.to_string()))
            .collect();
        assert_eq!(peers, [(3, "remote 8".to_owned())]);
    }
}
