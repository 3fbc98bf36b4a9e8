//! Libraries that a rank loads: the functions of MPI that start it, and those of libfabric that
//! describe it.

#![expect(unsafe_code, reason = "functions of libraries that a rank loads")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};

use anyhow::{Context as _, bail, ensure};
use selvedge_abi as abi;

/// A library that stays loaded until the process exits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library(NonNull<c_void>);

impl Library {
    /// Loads a library. Its symbols are visible to plugins, which MPI libraries load.
    ///
    /// # Errors
    /// The loader's text.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        Self::open(path, libc::RTLD_NOW | libc::RTLD_GLOBAL)
    }

    /// The library that this process has loaded from a file.
    ///
    /// # Errors
    /// When it has not.
    pub(super) fn find_loaded(path: &Path) -> anyhow::Result<Self> {
        Self::open(path, libc::RTLD_NOW | libc::RTLD_NOLOAD)
    }

    fn open(path: &Path, flags: c_int) -> anyhow::Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: loading runs constructors of a library that the user has installed, as starting
        // one of the user's MPI programs does.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if let Some(handle) = NonNull::new(handle) {
            return Ok(Self(handle));
        }
        // SAFETY: the call has no preconditions.
        let error = unsafe { libc::dlerror() };
        if error.is_null() {
            bail!("{} is not loaded", path.display());
        }
        // SAFETY: a text of this thread, which stays until the next call of the loader.
        let error = unsafe { CStr::from_ptr(error) };
        bail!("{}", error.to_string_lossy());
    }

    fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// A function of the library.
    ///
    /// # Errors
    /// When the library has none of this name.
    ///
    /// # Safety
    /// `F` is a pointer to a function, with the arguments and the result of the function of this
    /// name.
    unsafe fn function<F: Copy>(self, name: &CStr) -> anyhow::Result<F> {
        let symbol = self.symbol(name);
        let symbol =
            symbol.with_context(|| format!("the library has no {}", name.to_string_lossy()))?;
        assert_eq!(
            size_of::<F>(),
            size_of::<NonNull<c_void>>(),
            "F is a pointer"
        );
        // SAFETY: a pointer to a function has the size and the representation of the symbol's
        // address, and the caller names its type.
        Ok(unsafe { ptr::from_ref(&symbol).cast::<F>().read() })
    }
}

/// `MPI_MAX_LIBRARY_VERSION_STRING` of all implementations is at most this.
const MAX_VERSION: usize = 8192;

/// An MPI library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mpi(pub(super) Library);

impl Mpi {
    /// `MPI_Get_library_version`, which may be called at any time.
    ///
    /// # Errors
    /// When the library is no MPI library.
    pub(super) fn version(self) -> anyhow::Result<String> {
        type Call = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
        // SAFETY: the type is that of the function in the MPI standard.
        let call: Call = unsafe { self.0.function(c"MPI_Get_library_version")? };
        let (mut text, mut length) = (vec![0_u8; MAX_VERSION], 0);
        // SAFETY: the buffer is at least as long as the standard's maximum of each implementation.
        let status = unsafe { call(text.as_mut_ptr().cast(), &raw mut length) };
        ensure!(status == 0, "MPI_Get_library_version returns {status}");
        text.truncate(usize::try_from(length).unwrap_or(0));
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// `MPI_Init`.
    ///
    /// # Errors
    /// Its status. Most implementations end the process instead.
    pub(super) fn init(self) -> anyhow::Result<()> {
        type Call = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
        // SAFETY: the type is that of the function in the MPI standard.
        let call: Call = unsafe { self.0.function(c"MPI_Init")? };
        // SAFETY: the standard permits NULL for both; the process calls the function once.
        let status = unsafe { call(ptr::null_mut(), ptr::null_mut()) };
        ensure!(status == 0, "MPI_Init returns {status}");
        Ok(())
    }

    /// The number of ranks of `MPI_COMM_WORLD`.
    ///
    /// # Errors
    /// When the handle of the communicator is not known for this library.
    pub(super) fn world_size(self) -> anyhow::Result<usize> {
        type Call = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
        // SAFETY: handles are pointers or numbers of 32 bits, which the calling conventions of
        // 64-bit processors pass in the same register as an `usize`.
        let call: Call = unsafe { self.0.function(c"MPI_Comm_size")? };
        let object = self.0.symbol(c"ompi_mpi_comm_world");
        // Open MPI's handle is the address of its object; the common binary interface of MPICH,
        // MVAPICH and Intel MPI has this number.
        let handle = object.map_or(0x4400_0000, |object| object.as_ptr().expose_provenance());
        let mut size = 0;
        // SAFETY: the handle is that of the library, which is initialised, and the number is ours.
        let status = unsafe { call(handle, &raw mut size) };
        ensure!(status == 0, "MPI_Comm_size returns {status}");
        Ok(usize::try_from(size)?)
    }

    /// `MPI_Finalize`.
    ///
    /// # Errors
    /// Its status.
    pub(super) fn finalize(self) -> anyhow::Result<()> {
        // SAFETY: the type is that of the function in the MPI standard.
        let call: unsafe extern "C" fn() -> c_int = unsafe { self.0.function(c"MPI_Finalize")? };
        // SAFETY: the library is initialised, and the process calls nothing of it afterwards.
        let status = unsafe { call() };
        ensure!(status == 0, "MPI_Finalize returns {status}");
        Ok(())
    }
}

/// A libfabric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Libfabric(pub(super) Library);

impl Libfabric {
    /// The version as the library prints it, such as `1.17.0`, or else its `fi_version`.
    ///
    /// # Errors
    /// When the library is no libfabric.
    pub(super) fn version(self) -> anyhow::Result<String> {
        type ToString = unsafe extern "C" fn(*const c_void, c_int) -> *const c_char;
        const FI_TYPE_VERSION: c_int = 18;
        let number = self.number()?;
        // SAFETY: the type is that of fi_tostr(3).
        let call: ToString = unsafe { self.0.function(c"fi_tostr")? };
        // SAFETY: the library reads the pointer as that of a text, and prints its own version.
        let text = unsafe { call(c"1".as_ptr().cast(), FI_TYPE_VERSION) };
        if !text.is_null() {
            // SAFETY: a text in a buffer of this thread, which stays until the next call.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            if text.starts_with(|first: char| first.is_ascii_digit()) {
                return Ok(text.into_owned());
            }
        }
        Ok(format!("{}.{}", number >> 16, number & 0xffff))
    }

    fn number(self) -> anyhow::Result<u32> {
        // SAFETY: the type is that of fi_version(3).
        let call: unsafe extern "C" fn() -> u32 = unsafe { self.0.function(c"fi_version")? };
        // SAFETY: the function has no preconditions.
        Ok(unsafe { call() })
    }

    /// The names of the providers, in the order of fi_getinfo(3), each once.
    ///
    /// # Errors
    /// When the library is no libfabric, or has no provider.
    pub(super) fn providers(self) -> anyhow::Result<Vec<String>> {
        type GetInfo = unsafe extern "C" fn(
            u32,
            *const c_char,
            *const c_char,
            u64,
            *const abi::Info,
            *mut *mut abi::Info,
        ) -> c_int;
        // SAFETY: the type is that of fi_getinfo(3).
        let get: GetInfo = unsafe { self.0.function(c"fi_getinfo")? };
        // SAFETY: the type is that of fi_freeinfo(3).
        let free: unsafe extern "C" fn(*mut abi::Info) =
            unsafe { self.0.function(c"fi_freeinfo")? };
        let version = self.number()?;
        let (mut list, nothing) = (ptr::null_mut(), ptr::null());
        // SAFETY: fi_getinfo(3) permits NULL for node, service and hints.
        let status = unsafe { get(version, nothing, nothing, 0, ptr::null(), &raw mut list) };
        ensure!(status == 0, "fi_getinfo returns {status}");
        let mut names = Vec::new();
        let mut next = list;
        while !next.is_null() {
            // SAFETY: the list is the library's; these members have been in every layout.
            let info = unsafe { &*next };
            // SAFETY: every info of fi_getinfo(3) has its attributes.
            let name = unsafe { (*info.fabric_attr).prov_name };
            if !name.is_null() {
                // SAFETY: a text that belongs to the list.
                let name = unsafe { CStr::from_ptr(name) }
                    .to_string_lossy()
                    .into_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            next = info.next;
        }
        // SAFETY: the list of the call above, of which nothing is used any more.
        unsafe { free(list) };
        Ok(names)
    }
}
