//! `Directory` and `Claim` make endpoint names files in a directory (`FI_SHM_DIR`). They serve
//! processes without a common network namespace, such as containers that share a directory.
//!
//! An endpoint has two files there: its socket, and a file that it keeps locked while it is open.
//! Only the holder of the lock may touch the socket, so a name is reused only after the kernel has
//! released the lock of its owner. The next endpoint that opens removes the files of killed
//! processes. An endpoint whose files were removed creates them again.

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

/// Interval of the check that an endpoint's files exist: short for a person, and long enough that
/// the check does not show in a profile.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the longest file name without its suffix. With the longest `/proc/self/fd/N/` before it
/// and a suffix behind, it fits into a socket address.
const STEM_MAX: usize = 70;
/// Bytes of a socket address, with the zero at the end.
const SUN_PATH: usize = 108;
/// The largest number of lock files that are checked for dead owners when an endpoint opens.
const SWEEP: usize = 64;
/// Attempts to take a lock that a sweeping process may hold, a millisecond apart.
const TRIES: usize = 50;

/// A directory whose owner and permissions were checked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens the directory and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Errno::Acces`] for a directory of a user other than this one and root, or in which other
    /// users may remove files. The error's text says which.
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

    /// The address of an endpoint's socket. It is the socket's path, or a path through the
    /// directory's descriptor where that one is too long.
    pub(crate) fn addr(&self, name: &Name) -> Result<UnixAddr, Error> {
        let file = socket_file(&stem(name));
        let path = self.path.join(&file);
        let path = if path.as_os_str().len() < SUN_PATH {
            path
        } else {
            Path::new("/proc/self/fd")
                .join(self.fd.as_raw_fd().to_string())
                .join(file)
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

    /// Removes the files of killed processes.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let stems = names.filter_map(|name| Some(name.strip_suffix(".lock")?.to_owned()));
        for stem in stems.take(SWEEP) {
            // A name that cannot be claimed belongs to a running process or to another user.
            drop(Claim::try_take(self, &stem));
        }
    }
}

fn check(path: &Path, stat: &FileStat) -> Result<(), Error> {
    let refused = |reason: String| {
        let reason = format!("FI_SHM_DIR={}: {reason}", path.display());
        Err(Error::new(Errno::Acces, reason))
    };
    let uid = user::effective_uid()?;
    if stat.st_uid != uid && stat.st_uid != 0 {
        return refused(format!(
            "the directory belongs to user {}, this process to {uid}",
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

/// A locked name in a directory, and its files.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    stem: String,
    lock: CloseOnFork,
}

impl Claim {
    /// Claims a name that no running process has.
    ///
    /// # Errors
    /// [`Errno::AddrInUse`] when a process has it.
    pub(crate) fn take(directory: &Directory, name: &Name) -> Result<Self, Error> {
        directory.sweep();
        let stem = stem(name);
        for _ in 0..TRIES {
            match Self::try_take(directory, &stem) {
                // Another process sweeps, or has just removed the file.
                Err(Sys::EAGAIN | Sys::ESTALE) => std::thread::sleep(Duration::from_millis(1)),
                Err(cause) => return Err(failed(&directory.path.join(lock_file(&stem)), cause)),
                Ok(claim) => return Ok(claim),
            }
        }
        let reason = format!(
            "{} is in use by another endpoint in {}",
            name.to_address(),
            directory.path.display()
        );
        Err(Error::new(Errno::AddrInUse, reason))
    }

    /// Claims a name in one attempt.
    ///
    /// # Errors
    /// `EAGAIN` when another process holds the lock, `ESTALE` when another process has just removed
    /// the lock file.
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
        if claim.is_in(directory) {
            Ok(claim)
        } else {
            Err(Sys::ESTALE)
        }
    }

    /// Whether the lock file in the directory is still the one that this claim holds locked.
    pub(crate) fn is_in(&self, directory: &Directory) -> bool {
        let locked = fstat(self.lock.fd());
        let found = directory.stat(&lock_file(&self.stem));
        matches!((locked, found), (Ok(locked), Ok(found)) if is_same(&locked, &found))
    }

    /// Removes the socket of a previous owner, whose lock this process holds now.
    pub(crate) fn clear(&self, directory: &Directory) -> Result<(), Error> {
        let file = socket_file(&self.stem);
        let removed = directory.remove(&file);
        removed.map_err(|cause| failed(&directory.path.join(file), cause))
    }

    /// Whether the socket and the lock file still exist; another process may have removed them.
    pub(crate) fn is_whole(&self) -> bool {
        let Ok(directory) = Directory::open(&self.path) else {
            return false;
        };
        self.is_in(&directory) && directory.stat(&socket_file(&self.stem)).is_ok()
    }
}

impl Drop for Claim {
    /// Removes the socket before the lock file, so no other process can claim the name while one of
    /// the files is left.
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

/// The common stem of an endpoint's file names. Characters that file names cannot have are written
/// in hexadecimal, and a long name is truncated and ends in its hash.
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

/// FNV-1a, because it is the same in every build. If the names of two endpoints have the same hash,
/// the name in the hello differs, and the connection is refused.
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

/// An open file description lock on the whole file. The kernel releases it when the file is closed,
/// also at the end of the process and by exec.
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
    let reason = format!("endpoint names in {}: {cause}", path.display());
    Error::new(Errno::from_raw(cause as i32), reason).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem_of(name: &str) -> String {
        stem(&Name::plain(name).unwrap())
    }

    #[test]
    fn file_names_are_short_and_distinct_for_distinct_endpoints() {
        assert_eq!(stem_of("17:0:1"), "17:0:1");
        assert_eq!(stem_of("../a%b"), "..%2fa%25b");
        let long = |last: &str| stem_of(&format!("{}{last}", "x".repeat(87)));
        assert_eq!(long("a").len(), STEM_MAX);
        assert_ne!(long("a"), long("b"));
        assert_ne!(stem_of(&"/".repeat(88)), stem_of(&"/".repeat(87)));
        // A `~` in a name is escaped, so no name looks like a hashed one.
        assert!(!stem_of("x~0123").contains('~'));
    }
}
