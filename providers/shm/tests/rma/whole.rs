//! Regions over the whole address space: mapped and unmapped addresses.

use memmap2::{Mmap, MmapMut, MmapOptions};
use selvedge::atomic::{Datatype, Op, Target};
use selvedge::rma::RmaIov;
use selvedge::{Context, Errno, IovMut, MrMode};
use selvedge_testkit::random::Random;

use crate::common::{BOTH, PROTOCOLS, RmaPair, Write, info};

const KEY: u64 = 99;
const PAGE: usize = 4096;

#[test]
fn the_whole_address_space_may_be_registered() {
    for protocol in PROTOCOLS {
        let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
        let pair = RmaPair::open(&info, 8);
        let mut attr = selvedge::mr::Attr::default();
        (attr.access, attr.requested_key) = (BOTH, KEY);
        let all = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
        // SAFETY: the test names memory that the domain keeps until the endpoints are closed.
        let _region = unsafe { pair.b.domain().reg(&[all], &attr) }.unwrap();
        for len in [8, 4000, 100_000] {
            let memory = pair.b.memory(len);
            let bytes = Random::new(len as u64).bytes(len);
            let segment = [RmaIov {
                addr: memory.address(),
                len,
                key: KEY,
            }];
            pair.write(&Write::new(&[&bytes], &segment)).unwrap();
            pair.settle();
            assert!(memory.bytes() == bytes);
            assert!(pair.read(&segment, &[len]).unwrap() == bytes);
        }
    }
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Returns addresses at which an access of `len` bytes would crash the process, and the mappings
/// that reserve these addresses.
fn unmapped_addresses(access: Access, len: usize) -> (Vec<u64>, MmapMut, Mmap) {
    let mut hole = MmapOptions::new().len(100 * PAGE).map_anon().unwrap();
    let start = hole.as_mut_ptr();
    let middle = start.wrapping_add(50 * PAGE);
    // SAFETY: the second half of the mapping, which no code accesses.
    let result = unsafe { libc::mprotect(middle.cast(), 50 * PAGE, libc::PROT_NONE) };
    assert_eq!(result, 0);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: the program's file does not change.
    let constant = unsafe { MmapOptions::new().len(100 * PAGE).map(&file) }.unwrap();
    let end = middle.addr() as u64;
    let mut addresses = vec![0, 8, end, end + 8, 1 << 63];
    // Half of the range is mapped.
    addresses.push(end - len as u64 / 16 * 8);
    if access == Access::Write {
        addresses.push(constant.as_ptr().addr() as u64);
    }
    (addresses, hole, constant)
}

#[test]
fn an_address_without_memory_is_an_error_at_the_initiator_alone() {
    for protocol in PROTOCOLS {
        let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
        let pair = RmaPair::open(&info, 64);
        let mut attr = selvedge::mr::Attr::default();
        (attr.access, attr.requested_key) = (BOTH, KEY);
        let all = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
        // SAFETY: the test names only memory that it has mapped for this purpose, or unmapped
        // addresses.
        let _region = unsafe { pair.b.domain().reg(&[all], &attr) }.unwrap();
        let segment = |addr, len| RmaIov {
            addr,
            len,
            key: KEY,
        };
        for len in [8, 40, 3000, 100_000] {
            let bytes = vec![7; len];
            let (addresses, _hole, _constant) = unmapped_addresses(Access::Write, len);
            for addr in addresses {
                let error = pair.write(&Write::new(&[&bytes], &[segment(addr, len)]));
                assert_eq!(
                    error.unwrap_err().errno,
                    Errno::Fault,
                    "{protocol}: {addr:#x}"
                );
                let good = pair.b.memory(len);
                let remote = [segment(good.address(), len), segment(addr, len)];
                let error = pair.write(&Write::new(&[&bytes, &bytes], &remote));
                assert_eq!(
                    error.unwrap_err().errno,
                    Errno::Fault,
                    "{protocol}: {addr:#x}"
                );
            }
            let (addresses, _hole, _constant) = unmapped_addresses(Access::Read, len);
            for addr in addresses {
                let error = pair.read(&[segment(addr, len)], &[len]).unwrap_err();
                assert_eq!(error.errno, Errno::Fault, "{protocol}: {addr:#x}");
            }
        }
        pair.write(&Write::new(&[b"good one"], &[pair.segment(0, 8)]))
            .unwrap();
        pair.settle();
        assert_eq!(&pair.memory.bytes()[..8], b"good one");
    }
}

#[test]
fn an_atomic_or_an_inject_to_unmapped_memory_fails_at_the_initiator_alone() {
    let info = info(&[], MrMode::empty());
    let pair = RmaPair::open(&info, 64);
    let mut attr = selvedge::mr::Attr::default();
    (attr.access, attr.requested_key) = (BOTH, KEY);
    let all = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
    // SAFETY: the test names only memory that it has mapped for this purpose, or unmapped
    // addresses.
    let _region = unsafe { pair.b.domain().reg(&[all], &attr) }.unwrap();
    let (addresses, _hole, _constant) = unmapped_addresses(Access::Write, 0);
    for addr in addresses {
        let target = Target {
            dest: pair.to_b,
            addr,
            key: KEY,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        pair.a.ep.inject_atomic(&[1; 8], &target).unwrap();
        let error = pair.wait_at_a().unwrap_err();
        assert_eq!(error.errno, Errno::Fault, "{addr:#x}");
        let posted = pair.a.ep.inject_write(&[1; 8], pair.to_b, addr, KEY, None);
        posted.unwrap();
        let error = pair.wait_at_a().unwrap_err();
        let reported = (error.errno, error.entry.context);
        assert_eq!(reported, (Errno::Fault, Context(0)), "{addr:#x}");
    }
}
