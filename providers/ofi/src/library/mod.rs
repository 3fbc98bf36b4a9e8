//! The library: finding it, loading it without unloading, and its functions.

#![expect(unsafe_code, reason = "functions of another library")]

mod discovered;
mod environment;
pub(crate) mod implied_caps;
pub(crate) mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::info::Version;
use selvedge::param::{Params, Spec};
use selvedge::{Errno, Error, Info, InfoFlags};
use selvedge_abi as abi;
use selvedge_abi::{Abi, FabricAttr, Fid, FidFabric, Param, infos, pointer};

use self::discovered::DiscoveredInfos;
use self::environment::with_filtered_variable;
use crate::contexts;

/// The parameter that turns the provider on.
pub(crate) const PARAMETER: &str = "FI_OFI_LIBRARY";

pub(crate) static PARAMS: &[Spec] = &[Spec::text(
    PARAMETER,
    "",
    "the libfabric whose providers are offered: a path, a name for the loader, or \"system\" for \
     the first one in the standard directories (default: none)",
)];

/// The value that searches the standard directories.
const SYSTEM: &str = "system";
const FILE: &str = "libfabric.so.1";

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const abi::Info,
    *mut *mut abi::Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut abi::Info);
type DupInfo = unsafe extern "C" fn(*const abi::Info) -> *mut abi::Info;
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
type GetVersion = unsafe extern "C" fn() -> u32;
type GetParams = unsafe extern "C" fn(*mut *mut Param, *mut c_int) -> c_int;
type FreeParams = unsafe extern "C" fn(*mut Param);

/// A loaded libfabric.
pub(crate) struct Library {
    path: String,
    version: Version,
    /// The structure layout of `getinfo`, `freeinfo` and `dupinfo`.
    abi: Abi,
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    dupinfo: DupInfo,
    fabric: OpenFabric,
    strerror: StrError,
    getparams: GetParams,
    freeparams: FreeParams,
    discovered: DiscoveredInfos,
    /// Providers that write into the memory that contexts point to.
    context_writers: Mutex<BTreeSet<String>>,
}

/// Whether the parameters name a library.
pub(crate) fn is_requested(params: &Params) -> bool {
    params.raw(PARAMETER).is_some_and(|name| !name.is_empty())
}

/// Loads the library that the parameters name, once in a process.
///
/// # Errors
/// [`Errno::NoDev`] if the parameters name none; [`Errno::NoEnt`] for a library that cannot be
/// loaded or is no libfabric; [`Errno::Inval`] for Selvedge's own library, unless it was named by
/// its path.
pub(crate) fn load_requested(params: &Params) -> Result<&'static Library, Error> {
    static LOADED: Mutex<BTreeMap<String, &'static Library>> = Mutex::new(BTreeMap::new());
    let name = match params.raw(PARAMETER) {
        Some(name) if !name.is_empty() => name,
        _ => {
            let message = format!(
                "{PARAMETER} is not set: set it to the path of a libfabric, or to \"system\""
            );
            return Err(Error::new(Errno::NoDev, message));
        }
    };
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = loaded.get(name) {
        return Ok(library);
    }
    let library = match name {
        SYSTEM => load_from_system()?,
        name => Library::load(name, name.contains('/'))?,
    };
    let library: &'static Library = Box::leak(Box::new(library));
    log::info!(target: "selvedge::ofi::core", "{library:?}");
    loaded.insert(name.to_owned(), library);
    Ok(library)
}

fn load_from_system() -> Result<Library, Error> {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = [
        "/opt/amazon/efa/lib64",
        "/opt/amazon/efa/lib",
        "/opt/cray/lib64",
        "/usr/local/lib64",
        "/usr/local/lib",
        &triple,
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut errors = Vec::new();
    for folder in folders {
        let path = Path::new(folder).join(FILE);
        if !path.exists() {
            continue;
        }
        match Library::load(&path.to_string_lossy(), false) {
            Ok(library) => return Ok(library),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let message = format!(
        "{PARAMETER}={SYSTEM}: found no {FILE} in {}",
        folders.join(", ")
    );
    Err(Error::new(
        Errno::NoEnt,
        [vec![message], errors].concat().join("\n"),
    ))
}

impl Library {
    /// Loads a library. Selvedge's own is allowed only if it was named by its path, not if it was
    /// found in a directory.
    fn load(name: &str, may_be_selvedge: bool) -> Result<Self, Error> {
        let handle = open(name)?;
        with_filtered_variable(|| {
            let library = Self::bind(name, handle)?;
            library.reject_selvedge(may_be_selvedge)?;
            library.initialize();
            Ok(library)
        })
    }

    #[expect(
        clippy::multiple_unsafe_ops_per_block,
        reason = "one argument for all functions of one library"
    )]
    fn bind(name: &str, handle: *mut c_void) -> Result<Self, Error> {
        let missing_symbol = |symbol: &str| {
            let message = format!("{PARAMETER}={name}: not a libfabric: it has no symbol {symbol}");
            Error::new(Errno::NoEnt, message)
        };
        let (abi, node) = newest_layout(handle).ok_or_else(|| missing_symbol("fi_getinfo"))?;
        let unversioned =
            |symbol: &str| find_symbol(handle, symbol, None).ok_or_else(|| missing_symbol(symbol));
        let versioned = |symbol: &str| {
            find_symbol(handle, symbol, Some(node)).ok_or_else(|| missing_symbol(symbol))
        };
        let getinfo = versioned("fi_getinfo")?;
        if is_in_this_object(getinfo) {
            let message = format!(
                "{PARAMETER}={name}: the library would load itself; name another libfabric"
            );
            return Err(Error::new(Errno::Inval, message));
        }
        // SAFETY: the functions of these names and versions have these types in every libfabric.
        unsafe {
            let version: GetVersion = std::mem::transmute_copy(&unversioned("fi_version")?);
            Ok(Self {
                path: name.to_owned(),
                version: Version::from_raw(version()),
                abi,
                getinfo: std::mem::transmute_copy(&getinfo),
                freeinfo: std::mem::transmute_copy(&versioned("fi_freeinfo")?),
                dupinfo: std::mem::transmute_copy(&versioned("fi_dupinfo")?),
                fabric: std::mem::transmute_copy(&unversioned("fi_fabric")?),
                strerror: std::mem::transmute_copy(&unversioned("fi_strerror")?),
                getparams: std::mem::transmute_copy(&unversioned("fi_getparams")?),
                freeparams: std::mem::transmute_copy(&unversioned("fi_freeparams")?),
                discovered: DiscoveredInfos::default(),
                context_writers: Mutex::default(),
            })
        }
    }

    /// Rejects Selvedge's C library, which has this provider and so its parameter.
    fn reject_selvedge(&self, may_be_selvedge: bool) -> Result<(), Error> {
        if may_be_selvedge || !self.has_parameter(PARAMETER) {
            return Ok(());
        }
        let message = format!(
            "{PARAMETER}: {} is Selvedge's own library, which is loaded only by its path",
            self.path
        );
        Err(Error::new(Errno::Inval, message))
    }

    fn has_parameter(&self, name: &str) -> bool {
        let (mut first, mut count) = (ptr::null_mut(), 0);
        // SAFETY: both pointers are valid for the results.
        let code = unsafe { (self.getparams)(&raw mut first, &raw mut count) };
        if code != 0 || first.is_null() {
            return false;
        }
        // SAFETY: the call returned a list of this length.
        let all =
            unsafe { pointer::array(first.cast_const(), usize::try_from(count).unwrap_or(0)) };
        let is_found = all.unwrap_or_default().iter().any(|param| {
            // SAFETY: names are strings, or NULL behind the last one.
            let param_name = unsafe { pointer::text(param.name) };
            param_name == Ok(Some(name))
        });
        // SAFETY: the call above has made the list, which has no other user.
        unsafe { (self.freeparams)(first) };
        is_found
    }

    /// The newest API version that both sides support.
    pub(crate) fn api(&self, requested: Version) -> Version {
        requested.min(self.version)
    }

    /// Calls the library's discovery, and returns its list of infos.
    ///
    /// # Errors
    /// The library's error.
    pub(crate) fn discover(
        &'static self,
        version: Version,
        names: (&Option<CString>, &Option<CString>),
        flags: InfoFlags,
        hints: &OwnInfo,
    ) -> Result<Option<LibraryInfo>, Errno> {
        let c_text =
            |name: &Option<CString>| name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let found =
            self.call_getinfo(version, (c_text(names.0), c_text(names.1)), flags, hints.0)?;
        Ok((!found.is_null()).then_some(LibraryInfo {
            library: self,
            ptr: found,
        }))
    }

    /// Makes the library's first call, which reads the environment with any arguments.
    fn initialize(&self) {
        let no_names = (ptr::null(), ptr::null());
        if let Ok(found) = self.call_getinfo(
            self.version,
            no_names,
            InfoFlags::PROV_ATTR_ONLY,
            ptr::null(),
        ) {
            // SAFETY: the call above has made the list, which has no other owner.
            unsafe { (self.freeinfo)(found) };
        }
    }

    fn call_getinfo(
        &self,
        version: Version,
        (node, service): (*const c_char, *const c_char),
        flags: InfoFlags,
        hints: *const abi::Info,
    ) -> Result<*mut abi::Info, Errno> {
        let mut found = ptr::null_mut();
        let (version, flags) = (version.as_raw(), flags.bits());
        // SAFETY: texts and hints live during the call, hints have a layout at least as large as
        // the library reads, and `found` is valid for the result.
        let code = unsafe { (self.getinfo)(version, node, service, flags, hints, &raw mut found) };
        match code {
            0 => Ok(found),
            negative => Err(errno_of(negative)),
        }
    }

    /// An info of the library for an object to open, with the fields that the library keeps behind
    /// those that this layout has.
    ///
    /// # Errors
    /// [`Errno::NoMem`]; [`Errno::Inval`] with the field for an info that exceeds every discovered
    /// one.
    pub(crate) fn library_info(
        &'static self,
        info: &Info,
        handle: *mut Fid,
    ) -> Result<LibraryInfo, Error> {
        self.discovered.check(info)?;
        let mut info = info.clone();
        info.domain_attr.threading = discovered::threading(&info);
        info.fabric_attr.prov_name = names::without_layer(&info.fabric_attr.prov_name);
        info.fabric_attr.api_version = self.api(info.fabric_attr.api_version);
        info.nic = None;
        implied_caps::remove(&mut info);
        if self.writes_contexts(&info) {
            info.mode |= contexts::MODES;
        }
        let conversion_error = |errno| Error::new(errno, "cannot convert the Info for libfabric");
        let converted = OwnInfo::new(&info, handle).map_err(conversion_error)?;
        // SAFETY: the info's layout is at least as large as the library reads.
        let ptr = unsafe { (self.dupinfo)(converted.0) };
        if ptr.is_null() {
            return Err(conversion_error(Errno::NoMem));
        }
        Ok(LibraryInfo { library: self, ptr })
    }

    /// Opens a fabric.
    pub(crate) fn open_fabric(&self, info: &LibraryInfo, out: &mut *mut FidFabric) -> c_int {
        // SAFETY: the library made the info.
        let attr = unsafe { (*info.ptr).fabric_attr };
        // SAFETY: as above, and `out` is valid for the result.
        unsafe { (self.fabric)(attr, out, ptr::null_mut()) }
    }

    /// The library's text for a negative return code.
    pub(crate) fn error_text(&self, code: impl ReturnCode) -> String {
        let errno = c_int::try_from(code.raw().unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: the function accepts any number.
        let text = unsafe { (self.strerror)(errno) };
        // SAFETY: the text is a static string of the library, or NULL.
        let text = unsafe { pointer::text(text) };
        text.ok().flatten().unwrap_or("an unknown error").to_owned()
    }

    /// The error of a failed call of the library.
    pub(crate) fn call_error(&self, action: impl fmt::Display, code: impl ReturnCode) -> Error {
        let code = code.raw();
        let text = self.error_text(code);
        let message = format!("{action}: libfabric {}: {text}", self.version);
        Error::new(errno_of(code), message)
    }

    /// Records an info that discovery returns.
    pub(crate) fn record_discovered(&self, offered: &Info) {
        self.discovered.add(offered);
    }

    /// Records whether the provider of an info needs memory behind contexts, which applications do
    /// not see.
    pub(crate) fn record_context_mode(&self, found: &Info) {
        if contexts::needs_slots(found) {
            self.context_writers_mut()
                .insert(names::without_layer(&found.fabric_attr.prov_name));
        }
    }

    /// Whether the provider of an info writes into the memory that contexts point to.
    pub(crate) fn writes_contexts(&self, info: &Info) -> bool {
        self.context_writers_mut()
            .contains(&names::without_layer(&info.fabric_attr.prov_name))
    }

    fn context_writers_mut(&self) -> MutexGuard<'_, BTreeSet<String>> {
        let names = self.context_writers.lock();
        names.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn abi(&self) -> Abi {
        self.abi
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libfabric {} from {}", self.version, self.path)
    }
}

/// The return code of a function of the library: 0, a count, or a negative error number.
pub(crate) trait ReturnCode {
    fn raw(self) -> isize;
}

impl ReturnCode for c_int {
    fn raw(self) -> isize {
        self as isize
    }
}

impl ReturnCode for isize {
    fn raw(self) -> isize {
        self
    }
}

/// The error number of a negative return code.
pub(crate) fn errno_of(code: impl ReturnCode) -> Errno {
    let raw = i32::try_from(code.raw().unsigned_abs()).unwrap_or(i32::MAX);
    Errno::from_raw(raw)
}

/// An info that this provider has made, in the newest layout.
pub(crate) struct OwnInfo(*mut abi::Info);

impl OwnInfo {
    pub(crate) fn new(info: &Info, handle: *mut Fid) -> Result<Self, Errno> {
        infos::allocate_info(info, handle).map(Self)
    }
}

impl Drop for OwnInfo {
    fn drop(&mut self) {
        // SAFETY: `infos::allocate_info` has made the info, which has no other owner.
        unsafe { infos::free(self.0) };
    }
}

/// A list of infos that the library has made.
pub(crate) struct LibraryInfo {
    library: &'static Library,
    /// The first info of the list.
    ptr: *mut abi::Info,
}

// SAFETY: the list has one owner.
unsafe impl Send for LibraryInfo {}
// SAFETY: the list is never changed.
unsafe impl Sync for LibraryInfo {}

impl LibraryInfo {
    /// Takes ownership of a list from the library.
    ///
    /// # Safety
    /// `ptr` points to the first info of a list of this library with no other owner.
    pub(crate) unsafe fn from_raw(library: &'static Library, ptr: *mut abi::Info) -> Self {
        Self { library, ptr }
    }

    pub(crate) fn first(&self) -> *mut abi::Info {
        self.ptr
    }

    /// Each info, in the object model.
    pub(crate) fn to_infos(&self) -> Vec<Result<Info, Errno>> {
        let (mut entry, mut all) = (self.ptr, Vec::new());
        while !entry.is_null() {
            // SAFETY: `entry` is an entry of the list, whose structures are at least as large as
            // this layout.
            all.push(unsafe { infos::read(entry, self.library.abi) }.map(|given| given.info));
            // SAFETY: as above.
            entry = unsafe { (*entry).next };
        }
        all
    }
}

impl Drop for LibraryInfo {
    fn drop(&mut self) {
        // SAFETY: the library has made the list, which has no other owner.
        unsafe { (self.library.freeinfo)(self.ptr) };
    }
}

/// Loads a library that is never unloaded. If another libfabric is in the global symbol scope, the
/// library resolves its own symbols first.
fn open(name: &str) -> Result<*mut c_void, Error> {
    let Ok(text) = CString::new(name) else {
        let message = format!("{PARAMETER}={name:?}: the name has a zero byte: remove it");
        return Err(Error::new(Errno::Inval, message));
    };
    let mut flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    if find_symbol(libc::RTLD_DEFAULT, "fi_getinfo", None).is_some() {
        flags |= libc::RTLD_DEEPBIND;
    }
    // SAFETY: loading a library runs its constructors, for which the user who named it vouches.
    let handle = unsafe { libc::dlopen(text.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: the call has no preconditions.
    let errors = unsafe { libc::dlerror() };
    // SAFETY: `dlopen` has just failed, so there is a text, which belongs to this thread.
    let errors = unsafe { CStr::from_ptr(errors) };
    let message = format!("{PARAMETER}={name}: {}", errors.to_string_lossy());
    Err(Error::new(Errno::NoEnt, message))
}

/// A symbol of this version, or of the default version.
fn find_symbol(handle: *mut c_void, symbol: &str, version: Option<&str>) -> Option<*mut c_void> {
    let symbol = CString::new(symbol).ok()?;
    let address = match version {
        Some(version) => {
            let version = CString::new(version).ok()?;
            // SAFETY: the handle is never closed, and both are C strings.
            unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }
        }
        // SAFETY: as above.
        None => unsafe { libc::dlsym(handle, symbol.as_ptr()) },
    };
    (!address.is_null()).then_some(address)
}

/// The newest layout that both sides support, and the version of its symbols.
fn newest_layout(handle: *mut c_void) -> Option<(Abi, &'static str)> {
    let layouts = [
        (Abi::V10, "FABRIC_1.10"),
        (Abi::V9, "FABRIC_1.9"),
        (Abi::V8, "FABRIC_1.8"),
        (Abi::V7, "FABRIC_1.7"),
        (Abi::V3, "FABRIC_1.3"),
        (Abi::V2, "FABRIC_1.2"),
        (Abi::V1, "FABRIC_1.1"),
        (Abi::V0, "FABRIC_1.0"),
    ];
    let mut layouts = layouts.into_iter();
    layouts.find(|(_, node)| find_symbol(handle, "fi_getinfo", Some(node)).is_some())
}

/// Whether a function is in the library or program that contains this code.
fn is_in_this_object(function: *mut c_void) -> bool {
    base_of(function) == base_of(is_in_this_object as *mut c_void)
}

fn base_of(function: *mut c_void) -> Option<*mut c_void> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call only looks up the address, and `found` is valid for the result.
    let code = unsafe { libc::dladdr(function, found.as_mut_ptr()) };
    // SAFETY: the structure is also valid if the call left it zeroed.
    (code != 0).then(|| unsafe { found.assume_init() }.dli_fbase)
}
