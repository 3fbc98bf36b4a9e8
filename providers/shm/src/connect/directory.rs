//! Rendezvous in a directory (`FI_SHM_DIR`): for processes that have no network namespace in
//! common, such as containers that share a directory.
//!
//! An endpoint has two files there: its socket, and a file that it keeps locked for life. Only who
//! holds the lock touches the socket, so a name is taken over when the kernel says that its owner is
//! gone, and never by guess. Files that a killed process has left are swept by the next endpoint
//! that opens; files that somebody has removed are made again.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno as Sys;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat};
use nix::sys::socket::UnixAddr;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use selvedge::{Errno, Error};
use selvedge_kit::close_on_fork::CloseOnFork;

use crate::connect::user;
use crate::peers::name::Name;

/// Between two looks whether an endpoint's files are still there: fast enough for a person, slow
/// enough not to be seen in a profile.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Longest name of a file, without its ending. With the longest `/proc/self/fd/N/` before it and an
/// ending behind, it fits into a socket address.
const STEM_MAX: usize = 70;
/// Bytes of a socket address, with the zero at the end.
const SUN_PATH: usize = 108;
/// Locks of dead processes that are swept when an endpoint opens.
const SWEEP: usize = 64;
/// Tries to take a lock that somebody holds who is only sweeping, a millisecond each.
const TRIES: usize = 50;

/// A directory that may be trusted.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens the directory; makes it if there is none.
    ///
    /// # Errors
    /// [`Errno::Acces`] for one that belongs to another user than this one and root, or in which
    /// anybody may remove the files of others. The sentence says which.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let named = |cause: Sys| failed(path, cause);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let open = || nix::fcntl::open(path, flags, Mode::empty());
        let fd = match open() {
            Err(Sys::ENOENT) => {
                match nix::unistd::mkdir(path, Mode::S_IRWXU) {
                    Ok(()) | Err(Sys::EEXIST) => {}
                    Err(cause) => return Err(named(cause)),
                }
                open()
            }
            other => other,
        };
        let fd = fd.map_err(named)?;
        check(path, &fstat(&fd).map_err(named)?)?;
        let path = path.to_owned();
        Ok(Self { path, fd })
    }

    /// The address of an endpoint's socket: by the descriptor where the path is too long.
    pub(crate) fn addr(&self, name: &Name) -> Result<UnixAddr, Error> {
        let file = socket_file(&stem(name));
        let path = self.path.join(&file);
        let path = match path.as_os_str().len() < SUN_PATH {
            true => path,
            false => Path::new("/proc/self/fd")
                .join(self.fd.as_raw_fd().to_string())
                .join(file),
        };
        UnixAddr::new(&path).map_err(|cause| failed(&path, cause))
    }

    fn stat(&self, file: &str) -> nix::Result<FileStat> {
        fstatat(&self.fd, file, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn remove(&self, file: &str) -> nix::Result<()> {
        match unlinkat(&self.fd, file, UnlinkatFlags::NoRemoveDir) {
            Err(Sys::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Removes what killed processes have left.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let stems = names.filter_map(|name| Some(name.strip_suffix(".lock")?.to_owned()));
        for stem in stems.take(SWEEP) {
            // Who cannot be claimed lives, or is another user's.
            drop(Claim::try_take(self, &stem));
        }
    }
}

fn check(path: &Path, stat: &FileStat) -> Result<(), Error> {
    let refused = |why: String| {
        let what = format!("FI_SHM_DIR={}: {why}", path.display());
        Err(Error::new(Errno::Acces, what))
    };
    let own = user::own()?;
    if stat.st_uid != own && stat.st_uid != 0 {
        return refused(format!(
            "the directory belongs to user {}, this process to {own}",
            stat.st_uid
        ));
    }
    let mode = Mode::from_bits_truncate(stat.st_mode);
    let is_open = mode.intersects(Mode::S_IWGRP | Mode::S_IWOTH);
    if is_open && !mode.contains(Mode::S_ISVTX) {
        return refused(format!(
            "others may remove files from the directory (mode {:o}, no sticky bit)",
            mode.bits()
        ));
    }
    Ok(())
}

/// The right to a name in a directory, and the files that go with it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    stem: String,
    lock: CloseOnFork,
}

impl Claim {
    /// Takes a name that nobody alive has.
    ///
    /// # Errors
    /// [`Errno::AddrInUse`] when somebody has it.
    pub(crate) fn take(directory: &Directory, name: &Name) -> Result<Self, Error> {
        directory.sweep();
        let stem = stem(name);
        for _ in 0..TRIES {
            match Self::try_take(directory, &stem) {
                // Somebody sweeps, or has just removed the file.
                Err(Sys::EAGAIN | Sys::ESTALE) => std::thread::sleep(Duration::from_millis(1)),
                Err(cause) => return Err(failed(&directory.path.join(lock_file(&stem)), cause)),
                Ok(claim) => return Ok(claim),
            }
        }
        let what = format!(
            "{} is taken in {}",
            name.to_address(),
            directory.path.display()
        );
        Err(Error::new(Errno::AddrInUse, what))
    }

    /// `EAGAIN` when its owner lives, `ESTALE` when the file is removed at this moment.
    fn try_take(directory: &Directory, stem: &str) -> nix::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let fd = openat(&directory.fd, lock_file(stem).as_str(), flags, mode)?;
        let stat = fstat(&fd)?;
        let is_regular =
            SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        if stat.st_uid != geteuid().as_raw() || !is_regular {
            return Err(Sys::EACCES);
        }
        fcntl(&fd, FcntlArg::F_OFD_SETLK(&whole_file()))?;
        let claim = Self {
            path: directory.path.clone(),
            stem: stem.to_owned(),
            lock: CloseOnFork::new(fd),
        };
        match claim.is_in(directory) {
            true => Ok(claim),
            false => Err(Sys::ESTALE),
        }
    }

    /// Whether the file in the directory is the one that is locked.
    pub(crate) fn is_in(&self, directory: &Directory) -> bool {
        let ours = fstat(self.lock.fd());
        let there = directory.stat(&lock_file(&self.stem));
        matches!((ours, there), (Ok(ours), Ok(there)) if is_same(&ours, &there))
    }

    /// Makes room for a socket: whoever made the one that is there is gone.
    pub(crate) fn clear(&self, directory: &Directory) -> Result<(), Error> {
        let file = socket_file(&self.stem);
        let removed = directory.remove(&file);
        removed.map_err(|cause| failed(&directory.path.join(file), cause))
    }

    /// Whether both files are in place; somebody may have cleaned up.
    pub(crate) fn is_whole(&self) -> bool {
        let Ok(directory) = Directory::open(&self.path) else {
            return false;
        };
        self.is_in(&directory) && directory.stat(&socket_file(&self.stem)).is_ok()
    }
}

impl Drop for Claim {
    /// The lock goes last: until then nobody else has files of this name.
    fn drop(&mut self) {
        let Ok(directory) = Directory::open(&self.path) else {
            return;
        };
        if self.is_in(&directory) {
            for file in [socket_file(&self.stem), lock_file(&self.stem)] {
                if let Err(cause) = directory.remove(&file) {
                    log::debug!(target: "selvedge::shm::ep_ctrl", "{file} stays: {cause}");
                }
            }
        }
    }
}

/// The beginning of the names of an endpoint's files: what file names may not have is written in
/// hexadecimal, and what is too long ends in a number instead.
fn stem(name: &Name) -> String {
    let mut stem = String::new();
    for byte in name.as_str().bytes() {
        match byte {
            b'/' | b'%' | b'~' => stem.push_str(&format!("%{byte:02x}")),
            _ => stem.push(char::from(byte)),
        }
    }
    if stem.len() > STEM_MAX {
        let number = format!("~{:016x}", hash(name.as_str()));
        stem.truncate(STEM_MAX - number.len());
        stem.push_str(&number);
    }
    stem
}

/// FNV-1a: the same in every build. Who is met under a name of the same number is refused by what
/// it calls itself in its hello.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn socket_file(stem: &str) -> String {
    format!("{stem}.sock")
}

fn lock_file(stem: &str) -> String {
    format!("{stem}.lock")
}

fn is_same(a: &FileStat, b: &FileStat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// A lock that belongs to the open file and goes with it: at the end of the process, also by exec.
fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn failed(path: &Path, cause: Sys) -> Error {
    let what = format!("rendezvous in {}: {cause}", path.display());
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem_of(name: &str) -> String {
        stem(&Name::plain(name).unwrap())
    }

    #[test]
    fn names_of_files_are_short_and_tell_endpoints_apart() {
        assert_eq!(stem_of("17:0:1"), "17:0:1");
        assert_eq!(stem_of("../a%b"), "..%2fa%25b");
        let long = |last: &str| stem_of(&format!("{}{last}", "x".repeat(87)));
        assert_eq!(long("a").len(), STEM_MAX);
        assert_ne!(long("a"), long("b"));
        assert_ne!(stem_of(&"/".repeat(88)), stem_of(&"/".repeat(87)));
        // A number that somebody writes himself is not one of ours.
        assert!(!stem_of("x~0123").contains('~'));
    }
}
