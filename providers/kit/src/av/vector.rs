//! The table of an address vector that may have a name, by which processes have it in common.
//!
//! Who has made it inserts and removes; the others read what the file says, and have the same
//! indices. They look into it when an index is used for the first time, when an address is looked
//! up, and when a message comes from somebody whom they do not know while the file has grown.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use selvedge::av::{Attr, SharedName};
use selvedge::{Address, Errno, Error, FiAddr, Result};

use super::Table;
use super::file::Shared;
use crate::fork_guard::ForkGuard;

/// What stands for a peer in a table.
pub trait Peer: Clone + Debug + Eq + Hash {
    /// Its address.
    fn to_address(&self) -> Address;

    /// Who has an address; nobody, if it is none of this kind.
    fn from_address(address: &Address) -> Option<Self>;
}

/// The table, and the file behind it.
#[derive(Debug)]
pub struct Vector<T> {
    fork_guard: ForkGuard,
    table: Table<T>,
    shared: Option<Shared>,
    /// Held while table and file change.
    order: Mutex<()>,
    /// How many places the file had when all of it was read.
    seen: AtomicUsize,
}

impl<T: Peer> Vector<T> {
    /// Opens one; `family` says whose addresses are in it: provider and domain.
    ///
    /// # Errors
    /// As [`Table::open`]; [`Errno::AddrInUse`] for a name that a living process has given to one,
    /// [`Errno::NoEnt`] for one to read that nobody has made; the system's.
    pub fn open(attr: &Attr, family: &str) -> Result<Self, Error> {
        let table = Table::open(attr)?;
        let shared = match &attr.name {
            None => None,
            Some(SharedName::Create(name)) => Some(Shared::make(family, name)?),
            Some(SharedName::Open(name)) => Some(Shared::find(family, name)?),
        };
        let vector = Self {
            fork_guard: ForkGuard::current(),
            table,
            shared,
            order: Mutex::default(),
            seen: AtomicUsize::new(0),
        };
        vector.look_at_all();
        Ok(vector)
    }

    /// What neither changes anybody nor looks further than what is known.
    pub const fn table(&self) -> &Table<T> {
        &self.table
    }

    /// As [`Table::epoch`].
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Adds a peer, or finds the one that is equal to it.
    ///
    /// # Errors
    /// [`Errno::Acces`] for a vector that is only read; [`Errno::NoBufs`] when the file is full;
    /// the system's.
    pub fn insert(&self, peer: T) -> Result<FiAddr> {
        let Some(shared) = self.own_file()? else {
            return Ok(self.table.insert(peer));
        };
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (address, is_new) = (peer.to_address(), self.table.find(&peer).is_none());
        let addr = self.table.insert(peer);
        let written = shared.write(addr.0 as usize, Some(&address));
        if let (Err(errno), true) = (written, is_new) {
            self.table.remove(&[addr])?;
            return Err(errno);
        }
        Ok(addr)
    }

    /// Removes peers.
    ///
    /// # Errors
    /// [`Errno::Acces`] for a vector that is only read; as [`Table::remove`].
    pub fn remove(&self, addrs: &[FiAddr]) -> Result {
        let Some(shared) = self.own_file()? else {
            return self.table.remove(addrs);
        };
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.remove(addrs)?;
        let written = addrs.iter().map(|addr| shared.write(addr.0 as usize, None));
        written.fold(Ok(()), Result::and)
    }

    /// The peer behind an index, as it is now.
    pub fn lookup(&self, addr: FiAddr) -> Option<T> {
        self.look_at(addr);
        self.table.lookup(addr)
    }

    /// As [`Table::source`].
    pub fn source(&self, peer: &T) -> Option<FiAddr> {
        self.table.source(peer).or_else(|| {
            let places = self.read_file()?.places();
            (places > self.seen.load(Ordering::Relaxed)).then(|| self.look_at_all())?;
            self.table.source(peer)
        })
    }

    /// As [`Table::context_source`].
    pub fn context_source(&self, peer: &T, context: usize) -> Option<FiAddr> {
        self.source(peer)?;
        self.table.context_source(peer, context)
    }

    /// As [`Table::peers`].
    pub fn peers(&self) -> Vec<(FiAddr, T)> {
        self.look_at_all();
        self.table.peers()
    }

    /// As [`Table::members`].
    pub fn members(&self) -> Vec<FiAddr> {
        self.look_at_all();
        self.table.members()
    }

    /// The file, if there is one; an error if it is another process's.
    fn own_file(&self) -> Result<Option<&Shared>> {
        match &self.shared {
            Some(shared) if !shared.is_maker() => Err(Errno::Acces),
            shared => Ok(shared.as_ref()),
        }
    }

    fn read_file(&self) -> Option<&Shared> {
        self.shared.as_ref().filter(|it| !it.is_maker())
    }

    fn look_at(&self, addr: FiAddr) {
        let Ok(index) = usize::try_from(addr.0) else {
            return;
        };
        if let Some(shared) = self.read_file() {
            let peer = shared.read(index);
            self.table
                .mirror(index, peer.and_then(|peer| T::from_address(&peer)));
        }
    }

    fn look_at_all(&self) {
        if let Some(shared) = self.read_file() {
            let places = shared.places();
            shared.read_all(places, |index, peer| {
                let peer = peer.and_then(|peer| T::from_address(&peer));
                self.table.mirror(index, peer);
            });
            (places..self.table.places()).for_each(|index| self.table.mirror(index, None));
            self.seen.store(places, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Vector<T> {
    fn drop(&mut self) {
        // A forked child's copy is the parent's business.
        if let Some(shared) = self
            .shared
            .as_ref()
            .filter(|_| self.fork_guard.check().is_ok())
        {
            shared.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;

    impl Peer for u32 {
        fn to_address(&self) -> Address {
            Address::Str(format!("peer {self}"))
        }

        fn from_address(address: &Address) -> Option<Self> {
            address.as_str()?.strip_prefix("peer ")?.parse().ok()
        }
    }

    fn name(test: &str) -> String {
        format!("{test} {}", std::process::id())
    }

    fn opened(name: SharedName) -> Result<Vector<u32>, Error> {
        let mut attr = Attr::default();
        attr.name = Some(name);
        Vector::open(&attr, "kit")
    }

    fn make(test: &str) -> Vector<u32> {
        opened(SharedName::Create(name(test))).unwrap()
    }

    fn read(test: &str) -> Vector<u32> {
        opened(SharedName::Open(name(test))).unwrap()
    }

    fn path(test: &str) -> PathBuf {
        super::super::file::path("kit", &name(test)).unwrap()
    }

    #[test]
    fn what_one_inserts_and_removes_others_find_at_the_same_indices() {
        let one = make("common");
        one.insert(10).unwrap();
        let other = read("common");
        assert_eq!(other.lookup(FiAddr(0)), Some(10));
        for peer in 11..40 {
            assert_eq!(one.insert(peer), Ok(FiAddr(u64::from(peer) - 10)));
        }
        assert_eq!(other.lookup(FiAddr(29)), Some(39));
        assert_eq!(other.source(&25), Some(FiAddr(15)));
        let epoch = other.epoch();
        one.remove(&[FiAddr(3), FiAddr(29)]).unwrap();
        assert_eq!(other.lookup(FiAddr(29)), None);
        assert_ne!(other.epoch(), epoch);
        assert_eq!(one.insert(77), Ok(FiAddr(3)));
        assert_eq!(other.members(), one.members());
        assert_eq!(other.peers(), one.peers());
        assert_eq!(other.lookup(FiAddr(3)), Some(77));
        assert_eq!(other.lookup(FiAddr::UNSPEC), None);
    }

    #[test]
    fn who_reads_does_not_write_and_a_name_is_one_vector_s() {
        let one = make("rights");
        one.insert(1).unwrap();
        let other = read("rights");
        assert_eq!(other.insert(2), Err(Errno::Acces));
        assert_eq!(other.remove(&[FiAddr(0)]), Err(Errno::Acces));
        let twice = opened(SharedName::Create(name("rights"))).unwrap_err();
        assert_eq!(twice.errno(), Errno::AddrInUse);
        assert!(twice.to_string().contains(&name("rights")), "{twice}");
        let nobody = opened(SharedName::Open(name("nobody"))).unwrap_err();
        assert_eq!(nobody.errno(), Errno::NoEnt);
    }

    #[test]
    fn a_vector_is_gone_with_its_maker_but_for_those_who_have_it_open() {
        let one = make("closed");
        one.insert(1).unwrap();
        let other = read("closed");
        drop(one);
        assert!(!path("closed").exists());
        assert_eq!(other.lookup(FiAddr(0)), Some(1));
        let gone = opened(SharedName::Open(name("closed"))).unwrap_err();
        assert_eq!(gone.errno(), Errno::NoEnt);
        make("closed").insert(2).unwrap();
    }

    #[test]
    fn a_file_that_nobody_holds_is_not_read_and_is_taken_over() {
        std::fs::write(path("left"), b"selvedge av   01").unwrap();
        // Another test may have swept it by now.
        let gone = opened(SharedName::Open(name("left"))).unwrap_err();
        assert_eq!(gone.errno(), Errno::NoEnt);
        let one = make("left");
        one.insert(5).unwrap();
        assert_eq!(read("left").members(), [FiAddr(0)]);
    }

    #[test]
    fn what_a_dead_maker_has_left_is_swept_by_the_next_one() {
        let living = make("living");
        std::fs::write(path("dead"), b"selvedge av   01").unwrap();
        make("another").insert(1).unwrap();
        assert!(!path("dead").exists());
        assert!(path("living").exists());
        assert_eq!(living.insert(1), Ok(FiAddr(0)));
        assert_eq!(read("living").members(), [FiAddr(0)]);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_nobody() {
        let one = make("wrong");
        (0..5).for_each(|peer| assert_eq!(one.insert(peer), Ok(FiAddr(u64::from(peer)))));
        let file = File::options().write(true).open(path("wrong")).unwrap();
        // Half a place, another index's, one twice, and more places than there may be.
        file.write_all_at(&[0; 60], 64 + 128).unwrap();
        let mut first = [0; 128];
        File::open(path("wrong"))
            .unwrap()
            .read_exact_at(&mut first, 64)
            .unwrap();
        file.write_all_at(&first, 64 + 2 * 128).unwrap();
        file.set_len(1 << 40).unwrap();
        let other = read("wrong");
        assert_eq!(other.members(), [0, 3, 4].map(FiAddr));
        file.set_len(64 + 4 * 128 + 127).unwrap();
        assert_eq!(other.members(), [0, 3].map(FiAddr));
        file.set_len(3).unwrap();
        assert_eq!(other.members(), []);
        let error = opened(SharedName::Open(name("wrong"))).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let one = make("open to all");
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(path("open to all"), all).unwrap();
        for named in [SharedName::Open, SharedName::Create] {
            let error = opened(named(name("open to all"))).unwrap_err();
            assert_eq!(error.errno(), Errno::Acces);
        }
        symlink(path("open to all"), path("link")).unwrap();
        let error = opened(SharedName::Open(name("link"))).unwrap_err();
        let link = path("link").display().to_string();
        assert!(error.to_string().contains(&link), "{error}");
        std::fs::remove_file(path("link")).unwrap();
        drop(one);
    }
}
