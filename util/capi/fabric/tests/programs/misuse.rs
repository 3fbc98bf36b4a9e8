//! Random calls, most of them wrong: objects of other classes, NULL, sizes of 0 and beyond memory,
//! closed objects. Whatever they return, the process does not crash.
//!
//! The calls derive from a seed. `FABRIC_MISUSE_CALLS` sets their number, and `FABRIC_MISUSE_SEED`
//! the seed.

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

use crate::harness::library;

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
        let path = library().join("libfabric.so.1");
        let path = CString::new(path.to_string_lossy().into_owned()).unwrap();
        // SAFETY: it is the library of this package, whose functions have these types.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let find = |name: &str| {
                let name = CString::new(name).unwrap();
                let at = libc::dlsym(handle, name.as_ptr());
                assert!(!at.is_null(), "{name:?}");
                at
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
struct Dice(fastrand::Rng);

impl Dice {
    fn roll(&mut self) -> u64 {
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
            0 => self.roll() as u32,
            _ => self.below(8) as u32,
        }
    }

    fn flags(&mut self) -> u64 {
        match self.below(3) {
            0 => self.roll(),
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
    fn keep(&mut self, status: c_int, fid: *mut Fid) {
        if status == 0 {
            assert!(!fid.is_null());
            self.all.push(fid);
            // SAFETY: it was opened just now.
            let class = unsafe { (*fid).fclass };
            *self.opened.entry(class).or_default() += 1;
        }
    }

    /// Any of the objects. It always is a handle of this library, because no library can tell an
    /// arbitrary pointer from a handle.
    fn any(&self, dice: &mut Dice) -> *mut Fid {
        self.all[dice.below(self.all.len())]
    }

    fn of(&self, dice: &mut Dice, class: usize) -> *mut Fid {
        // SAFETY: handles stay readable for 256 further closes, and a round opens fewer.
        let is = |fid: &&*mut Fid| unsafe { (***fid).fclass } == class;
        let fitting: Vec<_> = self.all.iter().filter(is).collect();
        match fitting.is_empty() {
            true => ptr::null_mut(),
            false => *fitting[dice.below(fitting.len())],
        }
    }
}

/// Calls of one round: fewer than the closed handles that the library keeps readable.
const ROUND: usize = 200;

fn round(library: &Library, dice: &mut Dice, info: *mut Info, opened: &mut BTreeMap<usize, usize>) {
    let mut objects = Objects {
        all: Vec::new(),
        opened,
    };
    let mut fabric = ptr::null_mut();
    // SAFETY: the description is the library's own.
    unsafe {
        let status = (library.fabric)((*info).fabric_attr, &raw mut fabric, ptr::null_mut());
        assert_eq!(status, 0);
    }
    objects.all.push(fabric.cast());
    for _ in 0..ROUND {
        call(dice, &mut objects, info);
    }
    // Closes objects in reverse order, so mostly children first, until none is open.
    loop {
        // SAFETY: as above.
        let statuses = objects.all.iter().rev().map(|&fid| unsafe { close(fid) });
        let statuses: Vec<_> = statuses.collect();
        if !statuses.contains(&0) {
            assert!(
                statuses.iter().all(|&it| it == -libc::EBADF),
                "{statuses:?}"
            );
            return;
        }
    }
}

/// # Safety
/// It is a handle of the library that is open, or was closed at most 256 closes ago.
unsafe fn close(fid: *mut Fid) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { (*(*fid).ops).close.unwrap()(fid) }
}

fn call(dice: &mut Dice, objects: &mut Objects<'_>, info: *mut Info) {
    let info = if dice.below(8) == 0 {
        ptr::null_mut()
    } else {
        info
    };
    let null: *mut c_void = ptr::null_mut();
    // SAFETY: handles are the library's; arguments are NULL or valid during the call. The library
    // has to detect every other error of the arguments.
    unsafe {
        match dice.below(12) {
            0 => {
                let at: *mut FidFabric = objects.of(dice, fclass::FABRIC).cast();
                let mut out: *mut FidDomain = null.cast();
                if !at.is_null() {
                    let open = (*(*at).ops).domain.unwrap();
                    objects.keep(open(at, info, &raw mut out, null), out.cast());
                }
            }
            1 => {
                let at: *mut FidFabric = objects.of(dice, fclass::FABRIC).cast();
                let mut out: *mut FidEq = null.cast();
                let mut attr = EqAttr {
                    size: dice.size() % (1 << 20),
                    flags: dice.flags(),
                    wait_obj: dice.number(),
                    signaling_vector: 0,
                    wait_set: null,
                };
                if !at.is_null() {
                    let open = (*(*at).ops).eq_open.unwrap();
                    objects.keep(open(at, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            2 => {
                let at: *mut FidDomain = objects.of(dice, fclass::DOMAIN).cast();
                let mut out: *mut FidCq = null.cast();
                let mut attr = CqAttr {
                    size: dice.size() % (1 << 20),
                    flags: dice.flags(),
                    format: dice.number(),
                    wait_obj: dice.number(),
                    signaling_vector: 0,
                    wait_cond: dice.number(),
                    wait_set: null,
                    xpu_ctx: null,
                };
                if !at.is_null() {
                    let open = (*(*at).ops).cq_open.unwrap();
                    objects.keep(open(at, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            3 => {
                let at: *mut FidDomain = objects.of(dice, fclass::DOMAIN).cast();
                let mut out: *mut FidAv = null.cast();
                let mut attr = AvAttr {
                    av_type: dice.number(),
                    rx_ctx_bits: dice.number().cast_signed(),
                    count: dice.size(),
                    ep_per_node: dice.size(),
                    name: ptr::null(),
                    map_addr: null,
                    flags: dice.flags(),
                };
                if !at.is_null() {
                    let open = (*(*at).ops).av_open.unwrap();
                    objects.keep(open(at, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            4 => {
                let at: *mut FidDomain = objects.of(dice, fclass::DOMAIN).cast();
                let mut out: *mut FidCntr = null.cast();
                let mut attr = CntrAttr {
                    events: dice.number(),
                    wait_obj: dice.number(),
                    wait_set: null,
                    flags: dice.flags(),
                    xpu_ctx: null,
                };
                if !at.is_null() {
                    let open = (*(*at).ops).cntr_open.unwrap();
                    objects.keep(open(at, &raw mut attr, &raw mut out, null), out.cast());
                }
            }
            5 => {
                let at: *mut FidDomain = objects.of(dice, fclass::DOMAIN).cast();
                let mut out = ptr::null_mut();
                if !at.is_null() {
                    let open = (*(*at).ops).endpoint.unwrap();
                    let status = open(at, info, &raw mut out, null);
                    objects.keep(status, out.cast());
                }
            }
            6 => {
                let (fid, other) = (objects.any(dice), objects.any(dice));
                let other = if dice.below(8) == 0 {
                    null.cast()
                } else {
                    other
                };
                (*(*fid).ops).bind.unwrap()(fid, other, dice.flags());
            }
            7 => {
                let fid = objects.any(dice);
                let mut room = [0_u64; 64];
                let arg = if dice.below(4) == 0 {
                    null
                } else {
                    room.as_mut_ptr().cast()
                };
                (*(*fid).ops).control.unwrap()(fid, dice.number().cast_signed(), arg);
            }
            8 => {
                let fid = objects.any(dice);
                close(fid);
            }
            9 => {
                let at: *mut FidCq = objects.of(dice, fclass::CQ).cast();
                let mut room = [0_u64; 64];
                if !at.is_null() {
                    let (room, count) = match dice.below(3) {
                        0 => (null, dice.size()),
                        1 => (room.as_mut_ptr().cast(), 0),
                        _ => (room.as_mut_ptr().cast(), 8),
                    };
                    (*(*at).ops).read.unwrap()(at, room, count);
                }
            }
            10 => {
                let at: *mut FidAv = objects.of(dice, fclass::AV).cast();
                let mut found = [0_u64; 4];
                if !at.is_null() {
                    let name = c"fi_shm://nobody".as_ptr().cast();
                    let (name, count) = match dice.below(3) {
                        0 => (ptr::null(), dice.size()),
                        1 => (name, 0),
                        _ => (name, 1),
                    };
                    let (out, flags) = (found.as_mut_ptr(), dice.flags());
                    (*(*at).ops).insert.unwrap()(at, name, count, out, flags, null);
                    let (mut len, index) = (dice.below(65), dice.roll() % 4);
                    let mut room = [0_u8; 64];
                    let (room, len) = (room.as_mut_ptr().cast(), &raw mut len);
                    (*(*at).ops).lookup.unwrap()(at, index, room, len);
                    (*(*at).ops).remove.unwrap()(at, found.as_mut_ptr(), dice.below(5), flags);
                }
            }
            _ => {
                let at: *mut FidDomain = objects.of(dice, fclass::DOMAIN).cast();
                let (mut out, bytes) = (ptr::null_mut(), [0_u8; 64]);
                if !at.is_null() {
                    let (from, len) = match dice.below(3) {
                        0 => (ptr::null(), dice.size()),
                        1 => (bytes.as_ptr().cast(), 0),
                        _ => (bytes.as_ptr().cast(), 64),
                    };
                    let reg = (*(*at).mr).reg.unwrap();
                    let (access, key) = (dice.flags(), dice.roll() % 4);
                    let status = reg(
                        at.cast(),
                        from,
                        len,
                        access,
                        0,
                        key,
                        dice.flags(),
                        &raw mut out,
                        null,
                    );
                    objects.keep(status, out.cast());
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
    let mut dice = Dice(fastrand::Rng::with_seed(seed));
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
        round(&library, &mut dice, first, &mut opened);
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
