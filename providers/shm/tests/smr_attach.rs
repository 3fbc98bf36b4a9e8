//! Descriptors that a peer may send in place of a region: every descriptor without a valid region
//! is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use selvedge::{Errno, Error};
use selvedge_shm::smr::bounce::{BounceReceiver, Shape};
use selvedge_shm::smr::doorbell::{Bell, Doorbell};
use selvedge_shm::smr::layout::VERSION;
use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};

const SIZES: Sizes = Sizes {
    cmd_count: 16,
    resp_count: 16,
    inject_size: 4096,
};
const NAME: &CStr = c"forged";

fn region() -> Region {
    let (sizes, peer) = (SIZES, "peer");
    Region::create(&Attr { sizes, peer }).unwrap()
}

/// Returns the bytes of a valid region.
fn region_bytes() -> Vec<u8> {
    let region = region();
    std::fs::read(format!("/proc/self/fd/{}", region.id())).unwrap()
}

/// Creates a memory file with these bytes and seals.
fn create_memory(bytes: &[u8], seals: SealFlag) -> OwnedFd {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(NAME, flags).unwrap());
    file.write_all(bytes).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    file.into()
}

/// Creates a memory file with these bytes that cannot shrink or grow.
fn create_sealed_memory(bytes: &[u8]) -> OwnedFd {
    create_memory(bytes, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)
}

fn attach(fd: OwnedFd) -> Result<PeerRegion, Error> {
    PeerRegion::attach(fd, SIZES)
}

/// Checks that the attempt fails with a text that contains `reason`.
fn expect_refused<T>(result: Result<T, Error>, reason: &str) {
    let Err(error) = result else {
        panic!("accepted, although {reason}")
    };
    assert_eq!(error.errno(), Errno::Proto, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn a_copy_of_a_region_is_attached() {
    assert!(attach(create_sealed_memory(&region_bytes())).is_ok());
}

#[test]
fn memory_that_may_shrink_or_grow_is_refused() {
    for seals in [
        SealFlag::empty(),
        SealFlag::F_SEAL_GROW,
        SealFlag::F_SEAL_SHRINK,
    ] {
        expect_refused(attach(create_memory(&region_bytes(), seals)), "sealed");
    }
}

#[test]
fn descriptors_that_are_no_memory_are_refused() {
    let path = std::env::temp_dir().join(format!("selvedge-attach-{}", std::process::id()));
    let mut file = File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&region_bytes()).unwrap();
    expect_refused(attach(file.into()), "seal");
    let (reader, writer) = std::io::pipe().unwrap();
    expect_refused(attach(reader.into()), "seal");
    expect_refused(attach(writer.into()), "seal");
    expect_refused(attach(File::open("/dev/null").unwrap().into()), "seal");
    expect_refused(attach(File::open("/").unwrap().into()), "seal");
}

#[test]
fn another_size_is_refused_by_number() {
    let whole = region_bytes();
    let longer = [whole.as_slice(), &[0; 4096]].concat();
    let shorter = &whole[..whole.len() - 4096];
    for bytes in [shorter, &longer, &whole[..whole.len() - 1], &[]] {
        let len = bytes.len().to_string();
        expect_refused(attach(create_sealed_memory(bytes)), &format!("{len} bytes"));
    }
}

#[test]
fn another_magic_or_version_is_refused_by_value() {
    let mut bytes = region_bytes();
    bytes[0] ^= 1;
    expect_refused(attach(create_sealed_memory(&bytes)), "first word");
    let mut bytes = region_bytes();
    bytes[8] = 99;
    expect_refused(attach(create_sealed_memory(&bytes)), "99");
    expect_refused(attach(create_sealed_memory(&bytes)), &VERSION.to_string());
}

#[test]
fn impossible_layouts_are_refused() {
    let huge = Sizes::MAX_TOTAL;
    for (cmd_count, resp_count, inject_size) in [
        (0, 16, 4096),
        (3, 16, 4096),
        (1 << 21, 16, 4096),
        (16, 0, 4096),
        (16, 3, 4096),
        (16, 16, 1),
        (16, 16, huge),
        (16, 16, usize::MAX - 63),
        (usize::MAX, usize::MAX, usize::MAX),
    ] {
        let sizes = Sizes {
            cmd_count,
            resp_count,
            inject_size,
        };
        let (fd, _) = region().share().unwrap();
        expect_refused(PeerRegion::attach(fd, sizes), "out of range");
        let error = Region::create(&Attr { sizes, peer: "x" }).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
    }
}

#[test]
fn a_region_cannot_be_opened_for_writing_by_a_peer() {
    let (fd, _) = region().share().unwrap();
    let mut file = File::from(fd);
    assert!(file.write_all(b"x").is_err(), "the memory file is sealed");
    assert!(file.set_len(0).is_err(), "the memory file is sealed");
}

#[test]
fn a_descriptor_that_is_no_doorbell_is_refused() {
    let (_, memory) = Doorbell::create().unwrap();
    let real = memory.fd().try_clone_to_owned().unwrap();
    assert!(Bell::attach(real, usize::MAX).is_ok());
    expect_refused(Bell::attach(create_sealed_memory(&[0; 64]), 0), "64 bytes");
    expect_refused(
        Bell::attach(create_sealed_memory(&region_bytes()), 0),
        "bytes",
    );
    expect_refused(
        Bell::attach(create_memory(&[0; 4096], SealFlag::empty()), 0),
        "sealed",
    );
}

#[test]
fn a_descriptor_that_is_no_bounce_memory_is_refused() {
    for (count, size) in [(0, 4096), (1025, 4096), (2, 0), (2, 65), (2, 1 << 30)] {
        let attempt =
            BounceReceiver::attach(create_sealed_memory(&[0; 4096]), Shape { count, size });
        expect_refused(attempt, "bounce");
    }
    let shape = Shape {
        count: 2,
        size: 4096,
    };
    expect_refused(
        BounceReceiver::attach(create_sealed_memory(&region_bytes()), shape),
        "bytes",
    );
}
