//! The file of a named address vector. The process that created it writes it, and other processes
//! of the same user on this host read it.
//!
//! The file has a header, then an entry of a fixed size for each index. An entry is written in one
//! piece and ends with a checksum, so a reader finds no peer in an entry that is half written or
//! was never written. Readers copy and check the data; nothing of the file is mapped.
//!
//! The creator keeps the file locked as long as it lives. It removes the file when it closes the
//! vector. If it dies, the lock is free, and the next process that creates a vector removes the
//! file, or takes it over.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use selvedge::{Address, Errno, Error};

use crate::close_on_fork::CloseOnFork;

/// The directory of the files: accessible to every process of the host, and empty after a reboot.
const DIRECTORY: &str = "/dev/shm";
/// `selvedge` and the version of the format.
const MAGIC: [u8; 16] = *b"selvedge av   01";
/// Bytes before the first entry.
const HEADER_LEN: u64 = 64;
/// Bytes of an entry: length, address, checksum.
const ENTRY_LEN: usize = 128;
/// Bytes of the longest address.
const MAX_ADDRESS_LEN: usize = ENTRY_LEN - 2 - 8;
/// The number of entries in one read.
const ENTRIES_PER_READ: usize = 512;
/// The largest number of entries.
pub(super) const MAX_ENTRIES: usize = 1 << 20;
/// Bytes of the longest file name.
const MAX_NAME_LEN: usize = 200;
/// How often a creator opens the file, in case another process has just removed it or tests its
/// lock.
const ATTEMPTS: usize = 16;
/// The number of files that are examined for dead creators when a vector is created.
const SWEEP_LIMIT: usize = 64;
/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The file, as its creator or a reader has it open.
#[derive(Debug)]
pub(super) struct AvFile {
    file: CloseOnFork<File>,
    path: PathBuf,
    is_creator: bool,
}

impl AvFile {
    /// Creates the file, or takes it over from a process that has ended.
    ///
    /// # Errors
    /// [`Errno::AddrInUse`] while another process has a vector with this name; the system's errors.
    pub(super) fn create(family: &str, name: &str) -> Result<Self, Error> {
        let path = path(family, name)?;
        sweep();
        for _ in 0..ATTEMPTS {
            let file = open(&path, true)?;
            check(&path, &file)?;
            match file.try_lock() {
                Ok(()) => {}
                // A process that only tests whether there is a creator holds the lock for a moment.
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(RETRY_INTERVAL);
                    continue;
                }
                Err(TryLockError::Error(cause)) => return Err(failed(&path, cause)),
            }
            // The file's creator may have removed it while this process opened it.
            if is_at(&path, &file) {
                let begin = file.set_len(0).and_then(|()| file.write_all_at(&MAGIC, 0));
                begin.map_err(|cause| failed(&path, cause))?;
                return Ok(Self {
                    file: CloseOnFork::new(file),
                    path,
                    is_creator: true,
                });
            }
        }
        Err(in_use(name, &path))
    }

    /// Opens a file that another process has created.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] if no process has a vector with this name, [`Errno::Inval`] if the file has
    /// another format, [`Errno::Acces`] if it is another user's; the system's errors.
    pub(super) fn open_existing(family: &str, name: &str) -> Result<Self, Error> {
        let path = path(family, name)?;
        let file = open(&path, false)?;
        check(&path, &file)?;
        let is_held = || match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(failed(&path, cause)),
            Ok(()) => Ok(false),
        };
        let mut is_held_by_creator = is_held()?;
        if is_held_by_creator {
            // A process that sweeps holds the lock of a dead creator's file for a moment.
            std::thread::sleep(RETRY_INTERVAL);
            is_held_by_creator = is_held()? && is_at(&path, &file);
        }
        if !is_held_by_creator {
            let message =
                format!("address vector {name:?}: the process that has created it has ended");
            return Err(Error::new(Errno::NoEnt, message));
        }
        let mut head = [0; MAGIC.len()];
        let read = file.read_exact_at(&mut head, 0);
        if read.is_err() || head != MAGIC {
            let message = format!(
                "address vector {name:?}: {} is not the file of an address vector",
                path.display()
            );
            return Err(Error::new(Errno::Inval, message));
        }
        Ok(Self {
            file: CloseOnFork::new(file),
            path,
            is_creator: false,
        })
    }

    pub(super) const fn is_creator(&self) -> bool {
        self.is_creator
    }

    /// Writes the entry of an index: a peer, or none.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] for an address that is too long for an entry, [`Errno::NoBufs`] beyond
    /// the last entry; the system's errors.
    pub(super) fn write(&self, index: usize, peer: Option<&Address>) -> Result<(), Errno> {
        let entry = encode(index, peer)?;
        let offset_of = offset_of(index).ok_or(Errno::NoBufs)?;
        self.file
            .fd()
            .write_all_at(&entry, offset_of)
            .map_err(|cause| {
                let error = failed(&self.path, cause);
                log::warn!(target: "selvedge::core::av", "{error}");
                error.errno()
            })
    }

    /// Reads the peer at an index; `None` if the entry has none or cannot be read.
    pub(super) fn read(&self, index: usize) -> Option<Address> {
        let mut entry = [0; ENTRY_LEN];
        self.file
            .fd()
            .read_exact_at(&mut entry, offset_of(index)?)
            .ok()?;
        decode(index, &entry)
    }

    /// Passes each of the first `entry_count` indices, with its peer, to `visit`.
    pub(super) fn read_all(
        &self,
        entry_count: usize,
        mut visit: impl FnMut(usize, Option<Address>),
    ) {
        let mut buf = vec![0; ENTRY_LEN * ENTRIES_PER_READ];
        for first in (0..entry_count).step_by(ENTRIES_PER_READ) {
            let len = read_up_to(self.file.fd(), &mut buf, first);
            let (whole, _) = buf[..len].as_chunks::<ENTRY_LEN>();
            for (index, entry) in (first..entry_count).zip(whole) {
                visit(index, decode(index, entry));
            }
        }
    }

    /// The number of entries in the file, at most [`MAX_ENTRIES`]. Indices beyond have no peer.
    pub(super) fn entry_count(&self) -> usize {
        let len = self.file.fd().metadata().map_or(0, |it| it.len());
        let entry_count = len.saturating_sub(HEADER_LEN) / ENTRY_LEN as u64;
        usize::try_from(entry_count)
            .unwrap_or(MAX_ENTRIES)
            .min(MAX_ENTRIES)
    }

    /// Removes the file, unless another process has replaced it.
    pub(super) fn remove(&self) {
        if self.is_creator && is_at(&self.path, self.file.fd()) {
            // If it cannot be removed, it stays until the next process creates a vector of this
            // name.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Reads the entries from index `first` on into `buf`. Returns the number of bytes that were read.
fn read_up_to(file: &File, buf: &mut [u8], first: usize) -> usize {
    let mut len = 0;
    while let Some(offset_of) = offset_of(first)
        && let Ok(more @ 1..) = file.read_at(&mut buf[len..], offset_of + len as u64)
    {
        len += more;
    }
    len
}

fn offset_of(index: usize) -> Option<u64> {
    (index < MAX_ENTRIES).then(|| HEADER_LEN + index as u64 * ENTRY_LEN as u64)
}

fn encode(index: usize, peer: Option<&Address>) -> Result<[u8; ENTRY_LEN], Errno> {
    let mut entry = [0; ENTRY_LEN];
    let Some(peer) = peer else {
        return Ok(entry);
    };
    let bytes = peer.to_bytes();
    let buf = entry.get_mut(2..2 + bytes.len().min(MAX_ADDRESS_LEN + 1));
    let buf = buf.filter(|buf| buf.len() == bytes.len() && bytes.len() <= MAX_ADDRESS_LEN);
    buf.ok_or(Errno::TooSmall)?.copy_from_slice(&bytes);
    entry[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
    let checksum = checksum(index, &entry).to_le_bytes();
    entry[ENTRY_LEN - 8..].copy_from_slice(&checksum);
    Ok(entry)
}

fn decode(index: usize, entry: &[u8; ENTRY_LEN]) -> Option<Address> {
    let len = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
    if !(1..=MAX_ADDRESS_LEN).contains(&len)
        || entry[ENTRY_LEN - 8..] != checksum(index, entry).to_le_bytes()
    {
        return None;
    }
    Address::from_bytes(&entry[2..2 + len])
}

/// FNV-1a of the index and of the entry without the checksum.
fn checksum(index: usize, entry: &[u8; ENTRY_LEN]) -> u64 {
    let index = (index as u64).to_le_bytes();
    let bytes = index.iter().chain(&entry[..ENTRY_LEN - 8]);
    bytes.fold(0xcbf2_9ce4_8422_2325, |checksum, byte| {
        (checksum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The path of a vector's file. Bytes that are not allowed in file names are written in
/// hexadecimal.
pub(super) fn path(family: &str, name: &str) -> Result<PathBuf, Error> {
    let mut file = prefix();
    for byte in family.bytes().chain(*b"/").chain(name.bytes()) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                file.push(char::from(byte));
            }
            _ => file.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.is_empty() || file.len() > MAX_NAME_LEN {
        let message = format!("address vector {name:?}: the name is empty or too long");
        return Err(Error::new(Errno::Inval, message));
    }
    Ok(Path::new(DIRECTORY).join(file))
}

/// The common prefix of this user's files.
fn prefix() -> String {
    format!("selvedge-av.{}.", nix::unistd::geteuid())
}

/// Removes the files of creators that were killed. A process that creates one of these files at the
/// same time finds it removed once it has the lock, and creates it again.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else {
        return;
    };
    let prefix = prefix();
    let is_own = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.filter(is_own).take(SWEEP_LIMIT) {
        if let Ok(file) = open(&path, false)
            && check(&path, &file).is_ok()
            && file.try_lock().is_ok()
            && is_at(&path, &file)
        {
            // Another process may have removed it first.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn open(path: &Path, creates: bool) -> Result<File, Error> {
    let mut options = File::options();
    options.read(true).write(creates).create(creates);
    // These flags do not follow a symbolic link at the path, nor wait for the other end of a FIFO.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = options.mode(0o600).custom_flags(flags).open(path);
    file.map_err(|cause| failed(path, cause))
}

/// Checks that only this user can have written the file.
fn check(path: &Path, file: &File) -> Result<(), Error> {
    let is = file.metadata().map_err(|cause| failed(path, cause))?;
    let is_private = is.is_file() && is.uid() == nix::unistd::geteuid().as_raw();
    // A second link makes the file accessible by another path.
    if !is_private || is.mode() & 0o022 != 0 || is.nlink() > 1 {
        let message = format!(
            "{} is not a regular file of this user alone, or has a second link",
            path.display()
        );
        return Err(Error::new(Errno::Acces, message));
    }
    Ok(())
}

fn is_at(path: &Path, file: &File) -> bool {
    let at_path = std::fs::symlink_metadata(path);
    let opened = file.metadata();
    matches!((at_path, opened), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn in_use(name: &str, path: &Path) -> Error {
    let message = format!(
        "address vector {name:?}: another process has {} open",
        path.display()
    );
    Error::new(Errno::AddrInUse, message)
}

fn failed(path: &Path, cause: io::Error) -> Error {
    let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
    Error::new(errno, format!("address vector in {}", path.display())).because(cause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn an_entry_is_bound_to_its_peer_and_index() {
        let name = address(&"x".repeat(MAX_ADDRESS_LEN - 1));
        for peer in [address("fi_shm://1:2:3"), address("[::1]:7"), name] {
            let entry = encode(3, Some(&peer)).unwrap();
            assert_eq!(decode(3, &entry), Some(peer));
            assert_eq!(decode(4, &entry), None);
        }
        assert_eq!(decode(0, &encode(0, None).unwrap()), None);
        let long = address(&"x".repeat(MAX_ADDRESS_LEN));
        assert_eq!(encode(0, Some(&long)), Err(Errno::TooSmall));
    }

    #[test]
    fn file_names_are_unique_and_stay_in_their_directory() {
        let one = path("tcp/lo", "../a b").unwrap();
        assert_eq!(one.parent(), Some(Path::new(DIRECTORY)));
        assert!(one.to_str().unwrap().ends_with("tcp%2flo%2f..%2fa%20b"));
        for (family, name) in [("shm", ""), ("shm", &"x".repeat(MAX_NAME_LEN))] {
            path(family, name).unwrap_err();
        }
    }

    #[test]
    fn a_file_with_a_second_link_is_refused() {
        let path = std::env::temp_dir().join(format!("vector-{}", std::process::id()));
        let other = path.with_extension("other");
        let file = open(&path, true).unwrap();
        check(&path, &file).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        let refused = check(&path, &file);
        std::fs::remove_file(&other).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(refused.unwrap_err().errno(), Errno::Acces);
    }

    proptest! {
        #[test]
        fn a_damaged_entry_has_no_peer(
            damage in prop::collection::vec((0..ENTRY_LEN, 1..=255_u8), 1..4),
        ) {
            let whole = encode(7, Some(&address("fi_shm://17:0:1"))).unwrap();
            let mut entry = whole;
            for (offset_of, mask) in damage {
                entry[offset_of] ^= mask;
            }
            prop_assert!(entry == whole || decode(7, &entry).is_none());
        }

        #[test]
        fn arbitrary_bytes_are_an_empty_entry(bytes in prop::array::uniform32(any::<u8>()), index in 0..MAX_ENTRIES) {
            let mut entry = [0; ENTRY_LEN];
            for (offset_of, byte) in entry.iter_mut().enumerate() {
                *byte = bytes[offset_of % 32];
            }
            prop_assert_eq!(decode(index, &entry), None);
        }
    }
}
