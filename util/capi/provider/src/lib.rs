//! Selvedge's shm and tcp as external providers of another libfabric, of version 1.x or 2.x.
//!
//! libfabric loads a library `lib*-fi.so` for each provider and calls `fi_prov_ini`. This library is
//! installed under one file name for each provider, and provides the one that its file name names.
//! It exports no other symbol, so that its functions and libfabric's do not replace each other.

#![expect(unsafe_code, reason = "functions that libfabric calls")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use selvedge_abi as abi;
use selvedge_fabric_c::export::provider;

/// The provider that libfabric reads. libfabric keeps state of its own in it.
#[repr(transparent)]
struct Exported(UnsafeCell<abi::Provider>);

// SAFETY: libfabric accesses the structure under its own lock, and this library only returns its
// address.
unsafe impl Sync for Exported {}

/// Declares a provider: its static structure and the two functions that libfabric calls.
macro_rules! providers {
    ($($export:ident $inner:ident: $file:literal = $name:literal, $own_name:literal;)+) => {
        /// The providers by the names of their files.
        static PROVIDERS: &[(&str, &Exported)] = &[$(($file, &$export)),+];

        $(
            static $export: Exported = Exported(UnsafeCell::new(abi::Provider {
                version: provider::VERSION,
                fi_version: provider::FI_VERSION,
                context: [ptr::null_mut(); 4],
                name: $name.as_ptr(),
                getinfo: Some($inner::getinfo),
                fabric: Some($inner::fabric),
                cleanup: Some(cleanup),
            }));

            mod $inner {
                use super::*;

                /// # Safety
                /// libfabric follows fi_getinfo(3).
                pub(super) unsafe extern "C" fn getinfo(
                    version: u32,
                    node: *const c_char,
                    service: *const c_char,
                    flags: u64,
                    hints: *const abi::Info,
                    info: *mut *mut abi::Info,
                ) -> c_int {
                    let query = provider::Query { version, node, service, flags, hints };
                    // SAFETY: passed on from libfabric.
                    unsafe { provider::getinfo($own_name, &query, info) }
                }

                /// # Safety
                /// libfabric follows fi_fabric(3).
                pub(super) unsafe extern "C" fn fabric(
                    attr: *mut abi::FabricAttr,
                    fabric: *mut *mut abi::FidFabric,
                    context: *mut c_void,
                ) -> c_int {
                    // SAFETY: passed on from libfabric.
                    unsafe { provider::fabric($own_name, attr, fabric, context) }
                }
            }
        )+
    };
}

providers! {
    SHM shm: "libselvedge_shm-fi.so" = c"selvedge_shm", c"shm";
    TCP tcp: "libselvedge_tcp-fi.so" = c"selvedge_tcp", c"tcp";
}

/// Does nothing: objects that the program has not closed stay valid until the process exits.
extern "C" fn cleanup() {}

/// The entry point of an external provider, fi_provider(3). Returns NULL, which libfabric ignores,
/// if the library was loaded from a file with another name.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut abi::Provider {
    provider::serve_other_library();
    let file = own_file();
    let name = file
        .as_deref()
        .and_then(|path| Path::new(path).file_name()?.to_str());
    let found = PROVIDERS.iter().find(|(file, _)| name == Some(*file));
    let Some((_, exported)) = found else {
        eprintln!(
            "selvedge: provider library {}: its file name selects the provider; install it as \
             libselvedge_shm-fi.so or libselvedge_tcp-fi.so",
            file.as_deref().unwrap_or("without a path")
        );
        return ptr::null_mut();
    };
    exported.0.get()
}

/// The path from which the loader has loaded this library.
fn own_file() -> Option<String> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let address: *const c_void = (fi_prov_ini as extern "C" fn() -> *mut abi::Provider) as _;
    // SAFETY: dladdr(3) accepts every address and writes to a structure of this type.
    let status = unsafe { libc::dladdr(address, found.as_mut_ptr()) };
    if status == 0 {
        return None;
    }
    // SAFETY: dladdr(3) has succeeded and has filled the structure.
    let found = unsafe { found.assume_init() };
    // SAFETY: the loader keeps the name as long as this library, whose code runs.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    path.to_str().ok().map(str::to_owned)
}
