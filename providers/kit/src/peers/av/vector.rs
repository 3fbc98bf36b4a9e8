//! The table of an address vector, which processes share if the vector has a name.
//!
//! The process that has created a named vector inserts and removes; the others read its file, and
//! have the same indices. They read it when an index is used for the first time, when an address is
//! looked up, and when a message comes from an unknown sender while the file has grown.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use selvedge::av::{Attr, SharedName};
use selvedge::{Address, Errno, Error, FiAddr, Result};

use super::Table;
use super::file::AvFile;
use crate::fork_guard::ForkGuard;

/// The representation of a peer in a table.
pub trait Peer: Clone + Debug + Eq + Hash {
    /// The peer's address.
    fn to_address(&self) -> Address;

    /// The peer with this address; `None` if the address is of another kind.
    fn from_address(address: &Address) -> Option<Self>;
}

/// The table and its file.
#[derive(Debug)]
pub struct Vector<T> {
    fork_guard: ForkGuard,
    table: Table<T>,
    file: Option<AvFile>,
    /// Held while the table and the file change.
    change: Mutex<()>,
    /// The number of entries in the file when all of it was last read.
    entries_read: AtomicUsize,
}

impl<T: Peer> Vector<T> {
    /// Opens a vector. `family` identifies the provider and the domain in the file name.
    ///
    /// # Errors
    /// As [`Table::open`]; [`Errno::AddrInUse`] if the name to create belongs to a living process;
    /// [`Errno::NoEnt`] if the name to open belongs to no living process; the system's error.
    pub fn open(attr: &Attr, family: &str) -> Result<Self, Error> {
        let table = Table::open(attr)?;
        let file = match &attr.name {
            None => None,
            Some(SharedName::Create(name)) => Some(AvFile::create(family, name)?),
            Some(SharedName::Open(name)) => Some(AvFile::open_existing(family, name)?),
        };
        let vector = Self {
            fork_guard: ForkGuard::current(),
            table,
            file,
            change: Mutex::default(),
            entries_read: AtomicUsize::new(0),
        };
        vector.refresh_all();
        Ok(vector)
    }

    /// The table, for calls that neither change it nor read the file.
    pub const fn table(&self) -> &Table<T> {
        &self.table
    }

    /// As [`Table::epoch`].
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Adds a peer. Returns the index of the equal peer if the vector already has one.
    ///
    /// # Errors
    /// [`Errno::Acces`] for a vector that another process has created; [`Errno::NoBufs`] if the
    /// file is full; the system's.
    pub fn insert(&self, peer: T) -> Result<FiAddr> {
        let Some(file) = self.writable_file()? else {
            return Ok(self.table.insert(peer));
        };
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let (address, is_new) = (peer.to_address(), self.table.find(&peer).is_none());
        let addr = self.table.insert(peer);
        let written = file.write(addr.0 as usize, Some(&address));
        if let (Err(errno), true) = (written, is_new) {
            self.table.remove(&[addr])?;
            return Err(errno);
        }
        Ok(addr)
    }

    /// Removes peers.
    ///
    /// # Errors
    /// [`Errno::Acces`] for a vector that another process has created; as [`Table::remove`].
    pub fn remove(&self, addrs: &[FiAddr]) -> Result {
        let Some(file) = self.writable_file()? else {
            return self.table.remove(addrs);
        };
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.remove(addrs)?;
        let written = addrs.iter().map(|addr| file.write(addr.0 as usize, None));
        written.fold(Ok(()), Result::and)
    }

    /// The peer at an index. In a process that only reads, the table's entry is first updated from
    /// the file.
    pub fn lookup(&self, addr: FiAddr) -> Option<T> {
        self.refresh(addr);
        self.table.lookup(addr)
    }

    /// As [`Table::source`].
    pub fn source(&self, peer: &T) -> Option<FiAddr> {
        self.table.source(peer).or_else(|| {
            let entry_count = self.readonly_file()?.entry_count();
            (entry_count > self.entries_read.load(Ordering::Relaxed))
                .then(|| self.refresh_all())?;
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
        self.refresh_all();
        self.table.peers()
    }

    /// As [`Table::members`].
    pub fn members(&self) -> Vec<FiAddr> {
        self.refresh_all();
        self.table.members()
    }

    /// The file, if the vector has one.
    ///
    /// # Errors
    /// [`Errno::Acces`] if another process has created the file.
    fn writable_file(&self) -> Result<Option<&AvFile>> {
        match &self.file {
            Some(file) if !file.is_creator() => Err(Errno::Acces),
            file => Ok(file.as_ref()),
        }
    }

    fn readonly_file(&self) -> Option<&AvFile> {
        self.file.as_ref().filter(|it| !it.is_creator())
    }

    fn refresh(&self, addr: FiAddr) {
        let Ok(index) = usize::try_from(addr.0) else {
            return;
        };
        if let Some(file) = self.readonly_file() {
            let peer = file.read(index);
            self.table
                .mirror(index, peer.and_then(|peer| T::from_address(&peer)));
        }
    }

    fn refresh_all(&self) {
        if let Some(file) = self.readonly_file() {
            let entry_count = file.entry_count();
            file.read_all(entry_count, |index, peer| {
                let peer = peer.and_then(|peer| T::from_address(&peer));
                self.table.mirror(index, peer);
            });
            (entry_count..self.table.slots_len()).for_each(|index| self.table.mirror(index, None));
            self.entries_read.store(entry_count, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Vector<T> {
    fn drop(&mut self) {
        // In a forked child, the file is the parent's.
        if let Some(file) = self
            .file
            .as_ref()
            .filter(|_| self.fork_guard.check().is_ok())
        {
            file.remove();
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

    fn open_named(name: SharedName) -> Result<Vector<u32>, Error> {
        let mut attr = Attr::default();
        attr.name = Some(name);
        Vector::open(&attr, "kit")
    }

    fn create(test: &str) -> Vector<u32> {
        open_named(SharedName::Create(name(test))).unwrap()
    }

    fn open_reader(test: &str) -> Vector<u32> {
        open_named(SharedName::Open(name(test))).unwrap()
    }

    fn path(test: &str) -> PathBuf {
        super::super::file::path("kit", &name(test)).unwrap()
    }

    #[test]
    fn readers_see_the_creators_changes_at_the_same_indices() {
        let creator = create("common");
        creator.insert(10).unwrap();
        let reader = open_reader("common");
        assert_eq!(reader.lookup(FiAddr(0)), Some(10));
        for peer in 11..40 {
            assert_eq!(creator.insert(peer), Ok(FiAddr(u64::from(peer) - 10)));
        }
        assert_eq!(reader.lookup(FiAddr(29)), Some(39));
        assert_eq!(reader.source(&25), Some(FiAddr(15)));
        let epoch = reader.epoch();
        creator.remove(&[FiAddr(3), FiAddr(29)]).unwrap();
        assert_eq!(reader.lookup(FiAddr(29)), None);
        assert_ne!(reader.epoch(), epoch);
        assert_eq!(creator.insert(77), Ok(FiAddr(3)));
        assert_eq!(reader.members(), creator.members());
        assert_eq!(reader.peers(), creator.peers());
        assert_eq!(reader.lookup(FiAddr(3)), Some(77));
        assert_eq!(reader.lookup(FiAddr::UNSPEC), None);
    }

    #[test]
    fn readers_cannot_write_and_a_name_has_one_creator() {
        let creator = create("rights");
        creator.insert(1).unwrap();
        let reader = open_reader("rights");
        assert_eq!(reader.insert(2), Err(Errno::Acces));
        assert_eq!(reader.remove(&[FiAddr(0)]), Err(Errno::Acces));
        let twice = open_named(SharedName::Create(name("rights"))).unwrap_err();
        assert_eq!(twice.errno(), Errno::AddrInUse);
        assert!(twice.to_string().contains(&name("rights")), "{twice}");
        let missing = open_named(SharedName::Open(name("missing"))).unwrap_err();
        assert_eq!(missing.errno(), Errno::NoEnt);
    }

    #[test]
    fn the_file_is_removed_with_its_creator_and_open_readers_keep_it() {
        let creator = create("closed");
        creator.insert(1).unwrap();
        let reader = open_reader("closed");
        drop(creator);
        assert!(!path("closed").exists());
        assert_eq!(reader.lookup(FiAddr(0)), Some(1));
        let error = open_named(SharedName::Open(name("closed"))).unwrap_err();
        assert_eq!(error.errno(), Errno::NoEnt);
        create("closed").insert(2).unwrap();
    }

    #[test]
    fn a_file_without_creator_is_not_read_and_is_taken_over() {
        std::fs::write(path("left"), b"selvedge av   01").unwrap();
        // Another test may have swept it by now.
        let error = open_named(SharedName::Open(name("left"))).unwrap_err();
        assert_eq!(error.errno(), Errno::NoEnt);
        let creator = create("left");
        creator.insert(5).unwrap();
        assert_eq!(open_reader("left").members(), [FiAddr(0)]);
    }

    #[test]
    fn files_of_dead_creators_are_swept_by_the_next_creator() {
        let living = create("living");
        std::fs::write(path("dead"), b"selvedge av   01").unwrap();
        create("another").insert(1).unwrap();
        assert!(!path("dead").exists());
        assert!(path("living").exists());
        assert_eq!(living.insert(1), Ok(FiAddr(0)));
        assert_eq!(open_reader("living").members(), [FiAddr(0)]);
    }

    #[test]
    fn damaged_entries_have_no_peer() {
        let creator = create("wrong");
        (0..5).for_each(|peer| assert_eq!(creator.insert(peer), Ok(FiAddr(u64::from(peer)))));
        let file = File::options().write(true).open(path("wrong")).unwrap();
        // Half an entry, another index's entry, one entry twice, and more entries than the limit.
        file.write_all_at(&[0; 60], 64 + 128).unwrap();
        let mut first = [0; 128];
        File::open(path("wrong"))
            .unwrap()
            .read_exact_at(&mut first, 64)
            .unwrap();
        file.write_all_at(&first, 64 + 2 * 128).unwrap();
        file.set_len(1 << 40).unwrap();
        let reader = open_reader("wrong");
        assert_eq!(reader.members(), [0, 3, 4].map(FiAddr));
        file.set_len(64 + 4 * 128 + 127).unwrap();
        assert_eq!(reader.members(), [0, 3].map(FiAddr));
        file.set_len(3).unwrap();
        assert_eq!(reader.members(), []);
        let error = open_named(SharedName::Open(name("wrong"))).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let creator = create("open to all");
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(path("open to all"), all).unwrap();
        for named in [SharedName::Open, SharedName::Create] {
            let error = open_named(named(name("open to all"))).unwrap_err();
            assert_eq!(error.errno(), Errno::Acces);
        }
        symlink(path("open to all"), path("link")).unwrap();
        let error = open_named(SharedName::Open(name("link"))).unwrap_err();
        let link = path("link").display().to_string();
        assert!(error.to_string().contains(&link), "{error}");
        std::fs::remove_file(path("link")).unwrap();
        drop(creator);
    }
}
