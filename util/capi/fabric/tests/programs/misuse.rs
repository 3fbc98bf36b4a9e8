//! Random calls, most of them wrong: objects of other classes, NULL, sizes of 0 and beyond memory,
//! closed objects. Every call returns a status, and the process does not crash.
//!
//! A seed determines the calls. `FABRIC_MISUSE_CALLS` sets the number of calls, and
//! `FABRIC_MISUSE_SEED` the seed.

#![expect(unsafe_code, reason = "calls of C")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each call reads the object, its table and a function of the table"
)]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use selvedge_abi::{
    AvAttr, CntrAttr, CqAttr, EqAttr, FabricAttr, Fid, FidAv, FidCntr, FidCq, FidDomain, FidEq,
    FidFabric, Info, fclass,
};
use selvedge_testkit::long::part;

use crate::harness::library_folder;

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type Fabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;

/// The library's functions.
struct Library {
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    dupinfo: DupInfo,
    fabric: Fabric,
}

impl Library {
    fn load() -> Self {
        let path = library_folder().join("libfabric.so.1");
        let path = CString::new(path.to_string_lossy().into_owned()).unwrap();
        // SAFETY: the file is the library of this package, whose functions have these types.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let find = |name: &str| {
                let name = CString::new(name).unwrap();
                let symbol = libc::dlsym(handle, name.as_ptr());
                assert!(!symbol.is_null(), "{name:?}");
                symbol
            };
            Self {
                getinfo: std::mem::transmute::<*mut c_void, GetInfo>(find("fi_getinfo")),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(find("fi_freeinfo")),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(find("fi_dupinfo")),
                fabric: std::mem::transmute::<*mut c_void, Fabric>(find("fi_fabric")),
            }
        }
    }
}

/// Random numbers from a seed.
struct Random(fastrand::Rng);

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0.u64(..)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// An impossible size, or a small one.
    fn size(&mut self) -> usize {
        match self.below(6) {
            0 => 0,
            1 => usize::MAX,
            2 => usize::MAX / 2,
            3 => 1 << 40,
            _ => self.below(64),
        }
    }

    fn number(&mut self) -> u32 {
        match self.below(3) {
            0 => self.next_u64() as u32,
            _ => self.below(8) as u32,
        }
    }

    fn flags(&mut self) -> u64 {
        match self.below(3) {
            0 => self.next_u64(),
            1 => 1 << self.below(64),
            _ => 0,
        }
    }
}

/// All objects that were opened in a round, open or closed.
struct Objects<'a> {
    all: Vec<*mut Fid>,
    /// The number of objects of each class, in all rounds.
    opened: &'a mut BTreeMap<usize, usize>,
}

impl Objects<'_> {
    fn record(&mut self, status: c_int, fid: *mut Fid) {
        if status == 0 {
            assert!(!fid.is_null());
            self.all.push(fid);
            // SAFETY: the object was opened just now.
            let class = unsafe { (*fid).fclass };
            *self.opened.entry(class).or_default() += 1;
        }
    }

    /// Any of the objects. The result is always a handle of this library, because no library can
    /// tell an arbitrary pointer from a handle.
    fn any_object(&self, random: &mut Random) -> *mut Fid {
        self.all[random.below(self.all.len())]
    }

    fn any_of_class(&self, random: &mut Random, class: usize) -> *mut Fid {
        // SAFETY: handles stay readable for 256 further closes, and a round opens fewer.
        let is_of_class = |fid: &&*mut Fid| unsafe { (***fid).fclass } == class;
        let candidates: Vec<_> = self.all.iter().filter(is_of_class).collect();
        if candidates.is_empty() {
            ptr::null_mut()
        } else {
            *candidates[random.below(candidates.len())]
        }
    }
}

/// Calls of one round: fewer than the closed handles that the library keeps readable.
const ROUND: usize = 200;

fn run_round(
    library: &Library,
    random: &mut Random,
    info: *mut Info,
    opened: &mut BTreeMap<usize, usize>,
) {
    let mut objects = Objects {
        all: Vec::new(),
        opened,
    };
    let mut fabric = ptr::null_mut();
    // SAFETY: the library has allocated the info.
    unsafe {
        let status = (library.fabric)((*info).fabric_attr, &raw mut fabric, ptr::null_mut());
        assert_eq!(status, 0);
    }
    objects.all.push(fabric.cast());
    for _ in 0..ROUND {
        call(random, &mut objects, info);
    }
    // Closes objects in reverse order, so mostly children first, until none is open.
    loop {
        // SAFETY: as above.
        let statuses = objects.all.iter().rev().map(|&fid| unsafe { close(fid) });
        let statuses: Vec<_> = statuses.collect();
        if !statuses.contains(&0) {
            assert!(
                statuses.iter().all(|&status| status == -libc::EBADF),
                "{statuses:?}"
            );
            return;
        }
    }
}

/// # Safety
/// `fid` is a handle of the library that is open, or was closed at most 256 closes ago.
unsafe fn close(fid: *mut Fid) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { (*(*fid).ops).close.unwrap()(fid) }
}

fn call(random: &mut Random, objects: &mut Objects<'_>, info: *mut Info) {
    let info = if random.below(8) == 0 {
        ptr::null_mut()
    } else {
        info
    };
    let null: *mut c_void = ptr::null_mut();
    // SAFETY: handles are the library's; arguments are NULL or valid during the call. The library
    // has to detect every other error of the arguments.
    unsafe {
        match random.below(12) {
            0 => {
                let object: *mut FidFabric = objects.any_of_class(random, fclass::FABRIC).cast();
                let mut out: *mut FidDomain = null.cast();
                if !object.is_null() {
                    let open = (*(*object).ops).domain.unwrap();
                    objects.record(open(object, info, &raw mut out, null), out.cast());
                }
            }
            1 => {
                let object: *mut FidFabric = objects.any_of_class(random, fclass::FABRIC).cast();
                let mut out: *mut FidEq = null.cast();
                let mut attr = EqAttr {
                    size: random.size() % (1 << 20),
                    flags: random.flags(),
                    wait_obj: random.number(),
                    signaling_vector: 0,
                    wait_set: null,
                };
                if !object.is_null() {
                    let open = (*(*object).ops).eq_open.unwrap();
                    objects.record(open(object, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            2 => {
                let object: *mut FidDomain = objects.any_of_class(random, fclass::DOMAIN).cast();
                let mut out: *mut FidCq = null.cast();
                let mut attr = CqAttr {
                    size: random.size() % (1 << 20),
                    flags: random.flags(),
                    format: random.number(),
                    wait_obj: random.number(),
                    signaling_vector: 0,
                    wait_cond: random.number(),
                    wait_set: null,
                    xpu_ctx: null,
                };
                if !object.is_null() {
                    let open = (*(*object).ops).cq_open.unwrap();
                    objects.record(open(object, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            3 => {
                let object: *mut FidDomain = objects.any_of_class(random, fclass::DOMAIN).cast();
                let mut out: *mut FidAv = null.cast();
                let mut attr = AvAttr {
                    av_type: random.number(),
                    rx_ctx_bits: random.number().cast_signed(),
                    count: random.size(),
                    ep_per_node: random.size(),
                    name: ptr::null(),
                    map_addr: null,
                    flags: random.flags(),
                };
                if !object.is_null() {
                    let open = (*(*object).ops).av_open.unwrap();
                    objects.record(open(object, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            4 => {
                let object: *mut FidDomain = objects.any_of_class(random, fclass::DOMAIN).cast();
                let mut out: *mut FidCntr = null.cast();
                let mut attr = CntrAttr {
                    events: random.number(),
                    wait_obj: random.number(),
                    wait_set: null,
                    flags: random.flags(),
                    xpu_ctx: null,
                };
                if !object.is_null() {
                    let open = (*(*object).ops).cntr_open.unwrap();
                    objects.record(open(object, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            5 => {
                let object: *mut FidDomain = objects.any_of_class(random, fclass::DOMAIN).cast();
                let mut out = ptr::null_mut();
                if !object.is_null() {
                    let open = (*(*object).ops).endpoint.unwrap();
                    let status = open(object, info, &raw mut out, null);
                    objects.record(status, out.cast());
                }
            }
            6 => {
                let (fid, other) = (objects.any_object(random), objects.any_object(random));
                let other = if random.below(8) == 0 {
                    null.cast()
                } else {
                    other
                };
                (*(*fid).ops).bind.unwrap()(fid, other, random.flags());
            }
            7 => {
                let fid = objects.any_object(random);
                let mut buffer = [0_u64; 64];
                let arg = if random.below(4) == 0 {
                    null
                } else {
                    buffer.as_mut_ptr().cast()
                };
                (*(*fid).ops).control.unwrap()(fid, random.number().cast_signed(), arg);
            }
            8 => {
                let fid = objects.any_object(random);
                close(fid);
            }
            9 => {
                let object: *mut FidCq = objects.any_of_class(random, fclass::CQ).cast();
                let mut buffer = [0_u64; 64];
                if !object.is_null() {
                    let (buffer, count) = match random.below(3) {
                        0 => (null, random.size()),
                        1 => (buffer.as_mut_ptr().cast(), 0),
                        _ => (buffer.as_mut_ptr().cast(), 8),
                    };
                    (*(*object).ops).read.unwrap()(object, buffer, count);
                }
            }
            10 => {
                let object: *mut FidAv = objects.any_of_class(random, fclass::AV).cast();
                let mut indices = [0_u64; 4];
                if !object.is_null() {
                    let name = c"fi_shm://absent".as_ptr().cast();
                    let (name, count) = match random.below(3) {
                        0 => (ptr::null(), random.size()),
                        1 => (name, 0),
                        _ => (name, 1),
                    };
                    let (out, flags) = (indices.as_mut_ptr(), random.flags());
                    (*(*object).ops).insert.unwrap()(object, name, count, out, flags, null);
                    let (mut len, index) = (random.below(65), random.next_u64() % 4);
                    let mut buffer = [0_u8; 64];
                    let (buffer, len) = (buffer.as_mut_ptr().cast(), &raw mut len);
                    (*(*object).ops).lookup.unwrap()(object, index, buffer, len);
                    (*(*object).ops).remove.unwrap()(
                        object,
                        indices.as_mut_ptr(),
                        random.below(5),
                        flags,
                    );
                }
            }
            _ => {
                let object: *mut FidDomain = objects.any_of_class(random, fclass::DOMAIN).cast();
                let (mut out, bytes) = (ptr::null_mut(), [0_u8; 64]);
                if !object.is_null() {
                    let (base, len) = match random.below(3) {
                        0 => (ptr::null(), random.size()),
                        1 => (bytes.as_ptr().cast(), 0),
                        _ => (bytes.as_ptr().cast(), 64),
                    };
                    let reg = (*(*object).mr).reg.unwrap();
                    let (access, key) = (random.flags(), random.next_u64() % 4);
                    let status = reg(
                        object.cast(),
                        base,
                        len,
                        access,
                        0,
                        key,
                        random.flags(),
                        &raw mut out,
                        null,
                    );
                    objects.record(status, out.cast());
                }
            }
        }
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_calls_return_a_status() {
    let library = Library::load();
    let seed = from_environment("FABRIC_MISUSE_SEED", 42);
    let rounds = from_environment("FABRIC_MISUSE_CALLS", part(12_000, 60_000)) / ROUND as u64;
    let mut random = Random(fastrand::Rng::with_seed(seed));
    let mut first = ptr::null_mut();
    let name = CString::new("shm").unwrap();
    // SAFETY: the library allocates the hints, the C library the name; the library frees both.
    unsafe {
        let hints = (library.dupinfo)(ptr::null());
        (*(*hints).fabric_attr).prov_name = libc::strdup(name.as_ptr());
        let none = ptr::null();
        let status = (library.getinfo)(1 << 16 | 17, none, none, 0, hints, &raw mut first);
        (library.freeinfo)(hints);
        assert_eq!(status, 0);
    }
    let mut opened = BTreeMap::new();
    for _ in 0..rounds {
        run_round(&library, &mut random, first, &mut opened);
    }
    // A run that opens no objects would test nothing.
    let classes = [
        fclass::DOMAIN,
        fclass::EP,
        fclass::AV,
        fclass::CQ,
        fclass::CNTR,
        fclass::EQ,
        fclass::MR,
    ];
    for class in classes {
        assert!(opened.contains_key(&class), "{class}: {opened:?}");
    }
    // SAFETY: as above.
    unsafe { (library.freeinfo)(first) };
}
