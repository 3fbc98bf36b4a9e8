//! Memory: shared, huge and locked pages.

use std::fs::File;
use std::os::fd::OwnedFd;

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::finding::{Finding, Severity, first_line};

const MIB: u64 = 1 << 20;

/// Tries anonymous memory files, committed and sealed as the provider needs them.
pub(super) fn sealed() -> Finding {
    const NAME: &str = "shared memory";
    match try_seals() {
        Ok(true) => Finding::good(
            NAME,
            "memfd_create, fallocate and all seals work",
            "peers map each other's memory read-only, and no file is left behind when they die",
        ),
        Ok(false) => Finding::new(
            NAME,
            Severity::Note,
            "memfd_create and fallocate work; the kernel lacks the seal against later writers",
            "a broken peer could write to memory that it should only read, and corrupt its own messages",
        )
        .advise("Linux 5.1 or later has the seal."),
        Err((call, cause)) => Finding::new(
            NAME,
            Severity::Broken,
            format!("{call} fails: {cause}"),
            "no endpoint can be opened",
        )
        .advise(match cause {
            Errno::EPERM | Errno::ENOSYS => {
                "A system call filter is the usual reason: permit memfd_create and fallocate."
            }
            _ => "Memory is short: see the limits of the control group and of the machine.",
        }),
    }
}

/// Seals a memory file. Returns whether the kernel also refuses new writable mappings.
fn try_seals() -> Result<bool, (&'static str, Errno)> {
    let file = memory_file(MFdFlags::empty(), MIB)?;
    let len = MIB as usize;
    let writable = MmapOptions::new().len(len).map_raw(&file);
    let _writable = writable.map_err(|_| ("mmap", Errno::last()))?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    let future_write = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
    let _ = fcntl(&file, FcntlArg::F_ADD_SEALS(future_write));
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|e| ("F_ADD_SEALS", e))?;
    let read_only = MmapOptions::new().len(len).map_raw_read_only(&file);
    let _read_only = read_only.map_err(|_| ("mmap for reading", Errno::last()))?;
    Ok(MmapOptions::new().len(len).map_raw(&file).is_err())
}

fn memory_file(extra: MFdFlags, len: u64) -> Result<File, (&'static str, Errno)> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | extra;
    let fd: OwnedFd = memfd_create("fabtests-doctor", flags).map_err(|e| ("memfd_create", e))?;
    let committed = fallocate(&fd, FallocateFlags::empty(), 0, len as i64);
    committed.map_err(|e| ("fallocate", e))?;
    Ok(fd.into())
}

/// Tries huge pages for special memory.
pub(super) fn huge_pages() -> Finding {
    const NAME: &str = "huge pages";
    let flags = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB;
    let found = match memory_file(flags, 2 * MIB) {
        Ok(_) => {
            return Finding::good(
                NAME,
                "a huge page can be reserved",
                "special memory that requests huge pages gets them",
            );
        }
        Err((call, cause)) => format!("{call} fails: {cause}"),
    };
    let shmem = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let is_advised = ["[advise]", "[always]", "[within_size]", "[force]"]
        .iter()
        .any(|mode| shmem.contains(mode));
    if is_advised {
        return Finding::good(
            NAME,
            format!(
                "none are reserved ({found}); the kernel makes them for shared memory: {shmem}"
            ),
            "special memory that requests huge pages usually gets them",
        );
    }
    Finding::new(
        NAME,
        Severity::Note,
        format!("none are reserved ({found}), and the kernel makes none for shared memory"),
        "special memory has ordinary pages; other memory never has huge pages",
    )
    .advise(
        "Reserve some (sysctl vm.nr_hugepages), or write advise to \
         /sys/kernel/mm/transparent_hugepage/shmem_enabled.",
    )
}

/// Examines the limit of locked memory.
pub(super) fn locked() -> Finding {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    let limit = match limit {
        RLIM_INFINITY => "any amount".to_owned(),
        limit => format!("{} KiB", limit >> 10),
    };
    Finding::good(
        "locked memory",
        format!("{limit} may be locked"),
        "shm locks none",
    )
}

/// Examines the file system in which other implementations keep their shared memory.
pub(super) fn dev_shm() -> Finding {
    let found = statvfs("/dev/shm").map_or_else(
        |cause| format!("not available: {cause}"),
        |stat| {
            let free = stat.blocks_available() * stat.fragment_size();
            format!("{} MiB free", free / MIB)
        },
    );
    Finding::good(
        "/dev/shm",
        found,
        "shm does not use it, so its size does not matter",
    )
}
