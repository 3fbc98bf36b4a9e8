//! The file behind a named address vector: written by the process that made it, read by others of
//! the same user on this host.
//!
//! A head, then a place of a fixed size for each index. A place is written in one piece and has a
//! number that follows from what is in it, so whoever reads a place that is half written, or was
//! never written, finds nobody in it. What is read is copied and checked; nothing of the file is
//! mapped.
//!
//! The maker keeps the file locked for life. It removes it when it closes the vector; if it dies,
//! the lock says so, and the next one who makes a vector removes the file, or takes it over.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use selvedge::{Address, Errno, Error};

use crate::close_on_fork::CloseOnFork;

/// Where the files are: a place that every process of the host has, and no reboot keeps.
const DIRECTORY: &str = "/dev/shm";
/// `selvedge` and the number of the format.
const MAGIC: [u8; 16] = *b"selvedge av   01";
/// Bytes before the first place.
const HEAD: u64 = 64;
/// Bytes of a place: length, address, number.
const PLACE: usize = 128;
/// Bytes of the longest address.
const ADDRESS: usize = PLACE - 2 - 8;
/// RmaSegments that are read together.
const TOGETHER: usize = 512;
/// The most places.
pub(super) const MOST: usize = 1 << 20;
/// Bytes of the longest name of a file.
const NAME: usize = 200;
/// How often the file is opened anew because somebody has just removed it or looks at it.
const TRIES: usize = 16;
/// Files of dead makers that are looked for when a vector is made.
const SWEEP: usize = 64;
/// Between two tries.
const MOMENT: Duration = Duration::from_millis(1);

/// The file, by one of its two sides.
#[derive(Debug)]
pub(super) struct Shared {
    file: CloseOnFork<File>,
    path: PathBuf,
    is_maker: bool,
}

impl Shared {
    /// Makes the file, or takes it over from a process that is gone.
    ///
    /// # Errors
    /// [`Errno::AddrInUse`] while a process has a vector with this name; the system's.
    pub(super) fn make(family: &str, name: &str) -> Result<Self, Error> {
        let path = path(family, name)?;
        sweep();
        for _ in 0..TRIES {
            let file = open(&path, true)?;
            check(&path, &file)?;
            match file.try_lock() {
                Ok(()) => {}
                // Who only looks whether there is a maker holds it for a moment.
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(MOMENT);
                    continue;
                }
                Err(TryLockError::Error(cause)) => return Err(failed(&path, cause)),
            }
            // Its maker may have removed it while we opened it.
            if is_at(&path, &file) {
                let begin = file.set_len(0).and_then(|()| file.write_all_at(&MAGIC, 0));
                begin.map_err(|cause| failed(&path, cause))?;
                return Ok(Self {
                    file: CloseOnFork::new(file),
                    path,
                    is_maker: true,
                });
            }
        }
        Err(in_use(name, &path))
    }

    /// Opens the file that another process has made.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when nobody has a vector with this name, [`Errno::Inval`] when the file is
    /// none, [`Errno::Acces`] when it is another user's; the system's.
    pub(super) fn find(family: &str, name: &str) -> Result<Self, Error> {
        let path = path(family, name)?;
        let file = open(&path, false)?;
        check(&path, &file)?;
        let is_held = || match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(failed(&path, cause)),
            Ok(()) => Ok(false),
        };
        let mut is_made = is_held()?;
        if is_made {
            // A process that sweeps holds what a dead maker has left, for a moment.
            std::thread::sleep(MOMENT);
            is_made = is_held()? && is_at(&path, &file);
        }
        if !is_made {
            let what = format!("address vector {name:?}: the process that has made it is gone");
            return Err(Error::new(Errno::NoEnt, what));
        }
        let mut head = [0; MAGIC.len()];
        let read = file.read_exact_at(&mut head, 0);
        if read.is_err() || head != MAGIC {
            let what = format!("address vector {name:?}: {} is none", path.display());
            return Err(Error::new(Errno::Inval, what));
        }
        Ok(Self {
            file: CloseOnFork::new(file),
            path,
            is_maker: false,
        })
    }

    pub(super) const fn is_maker(&self) -> bool {
        self.is_maker
    }

    /// Writes who is at an index, or that nobody is.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] for an address that is too long for a place, [`Errno::NoBufs`] beyond the
    /// last one; the system's.
    pub(super) fn write(&self, index: usize, peer: Option<&Address>) -> Result<(), Errno> {
        let place = encode(index, peer)?;
        let at = at(index).ok_or(Errno::NoBufs)?;
        self.file.fd().write_all_at(&place, at).map_err(|cause| {
            let error = failed(&self.path, cause);
            log::warn!(target: "selvedge::core::av", "{error}");
            error.errno()
        })
    }

    /// Who is at an index, as far as the file says.
    pub(super) fn read(&self, index: usize) -> Option<Address> {
        let mut place = [0; PLACE];
        self.file.fd().read_exact_at(&mut place, at(index)?).ok()?;
        decode(index, &place)
    }

    /// Tells who is at each of the first `places` indices.
    pub(super) fn read_all(&self, places: usize, mut tell: impl FnMut(usize, Option<Address>)) {
        let mut many = vec![0; PLACE * TOGETHER];
        for first in (0..places).step_by(TOGETHER) {
            let len = read_at_most(self.file.fd(), &mut many, first);
            let (whole, _) = many[..len].as_chunks::<PLACE>();
            for (index, place) in (first..places).zip(whole) {
                tell(index, decode(index, place));
            }
        }
    }

    /// How many places the file has: those beyond are nobody's. No more than there may be.
    pub(super) fn places(&self) -> usize {
        let len = self.file.fd().metadata().map_or(0, |it| it.len());
        let places = len.saturating_sub(HEAD) / PLACE as u64;
        usize::try_from(places).unwrap_or(MOST).min(MOST)
    }

    /// Removes the file, unless it is somebody else's by now.
    pub(super) fn remove(&self) {
        if self.is_maker && is_at(&self.path, self.file.fd()) {
            // It stays until the next one of this name, if it must.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How many bytes there are from a place on, as far as they are read.
fn read_at_most(file: &File, room: &mut [u8], first: usize) -> usize {
    let mut len = 0;
    while let Some(at) = at(first)
        && let Ok(more @ 1..) = file.read_at(&mut room[len..], at + len as u64)
    {
        len += more;
    }
    len
}

fn at(index: usize) -> Option<u64> {
    (index < MOST).then(|| HEAD + index as u64 * PLACE as u64)
}

fn encode(index: usize, peer: Option<&Address>) -> Result<[u8; PLACE], Errno> {
    let mut place = [0; PLACE];
    let Some(peer) = peer else {
        return Ok(place);
    };
    let bytes = peer.to_bytes();
    let room = place.get_mut(2..2 + bytes.len().min(ADDRESS + 1));
    let room = room.filter(|room| room.len() == bytes.len() && bytes.len() <= ADDRESS);
    room.ok_or(Errno::TooSmall)?.copy_from_slice(&bytes);
    place[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
    let number = number(index, &place).to_le_bytes();
    place[PLACE - 8..].copy_from_slice(&number);
    Ok(place)
}

fn decode(index: usize, place: &[u8; PLACE]) -> Option<Address> {
    let len = usize::from(u16::from_le_bytes([place[0], place[1]]));
    if !(1..=ADDRESS).contains(&len) || place[PLACE - 8..] != number(index, place).to_le_bytes() {
        return None;
    }
    Address::from_bytes(&place[2..2 + len])
}

/// FNV-1a of the index and of all before the number.
fn number(index: usize, place: &[u8; PLACE]) -> u64 {
    let index = (index as u64).to_le_bytes();
    let bytes = index.iter().chain(&place[..PLACE - 8]);
    bytes.fold(0xcbf2_9ce4_8422_2325, |number, byte| {
        (number ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The path of a vector's file: what file names may not have is written in hexadecimal.
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
    if name.is_empty() || file.len() > NAME {
        let what = format!("address vector {name:?}: a name of that length cannot be");
        return Err(Error::new(Errno::Inval, what));
    }
    Ok(Path::new(DIRECTORY).join(file))
}

/// The beginning of the names of this user's files.
fn prefix() -> String {
    format!("selvedge-av.{}.", nix::unistd::geteuid())
}

/// Removes what makers that were killed have left. Who is just making one of these files finds it
/// gone when it has the lock, and makes it anew.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else {
        return;
    };
    let prefix = prefix();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.filter(is_ours).take(SWEEP) {
        if let Ok(file) = open(&path, false)
            && check(&path, &file).is_ok()
            && file.try_lock().is_ok()
            && is_at(&path, &file)
        {
            // Another one may have been faster.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn open(path: &Path, makes: bool) -> Result<File, Error> {
    let mut options = File::options();
    options.read(true).write(makes).create(makes);
    // Whoever puts something else at the path gets nothing of us.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = options.mode(0o600).custom_flags(flags).open(path);
    file.map_err(|cause| failed(path, cause))
}

/// Whether a file is one that only this user can have written.
fn check(path: &Path, file: &File) -> Result<(), Error> {
    let is = file.metadata().map_err(|cause| failed(path, cause))?;
    let is_own = is.is_file() && is.uid() == nix::unistd::geteuid().as_raw();
    // Another name of the file may be anywhere: it was linked here.
    if !is_own || is.mode() & 0o022 != 0 || is.nlink() > 1 {
        let what = format!(
            "{} may be written by others, or has another name",
            path.display()
        );
        return Err(Error::new(Errno::Acces, what));
    }
    Ok(())
}

fn is_at(path: &Path, file: &File) -> bool {
    let there = std::fs::symlink_metadata(path);
    let here = file.metadata();
    matches!((there, here), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn in_use(name: &str, path: &Path) -> Error {
    let what = format!("address vector {name:?}: a process has {}", path.display());
    Error::new(Errno::AddrInUse, what)
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
    fn a_place_says_who_is_there_and_of_which_index() {
        let name = address(&"x".repeat(ADDRESS - 1));
        for peer in [address("fi_shm://1:2:3"), address("[::1]:7"), name] {
            let place = encode(3, Some(&peer)).unwrap();
            assert_eq!(decode(3, &place), Some(peer));
            assert_eq!(decode(4, &place), None);
        }
        assert_eq!(decode(0, &encode(0, None).unwrap()), None);
        let long = address(&"x".repeat(ADDRESS));
        assert_eq!(encode(0, Some(&long)), Err(Errno::TooSmall));
    }

    #[test]
    fn names_of_files_tell_vectors_apart_and_stay_in_their_directory() {
        let one = path("tcp/lo", "../a b").unwrap();
        assert_eq!(one.parent(), Some(Path::new(DIRECTORY)));
        assert!(one.to_str().unwrap().ends_with("tcp%2flo%2f..%2fa%20b"));
        for (family, name) in [("shm", ""), ("shm", &"x".repeat(NAME))] {
            path(family, name).unwrap_err();
        }
    }

    #[test]
    fn a_file_with_another_name_is_refused() {
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
        fn a_place_with_any_flaw_is_nobody_s(
            flaws in prop::collection::vec((0..PLACE, 1..=255_u8), 1..4),
        ) {
            let whole = encode(7, Some(&address("fi_shm://17:0:1"))).unwrap();
            let mut place = whole;
            for (at, flaw) in flaws {
                place[at] ^= flaw;
            }
            prop_assert!(place == whole || decode(7, &place).is_none());
        }

        #[test]
        fn any_bytes_are_a_place(bytes in prop::array::uniform32(any::<u8>()), index in 0..MOST) {
            let mut place = [0; PLACE];
            for (at, byte) in place.iter_mut().enumerate() {
                *byte = bytes[at % 32];
            }
            prop_assert_eq!(decode(index, &place), None);
        }
    }
}
