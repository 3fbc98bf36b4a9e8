//! Sets the library's soname and `nodelete`: the library has fork handlers and memory of the
//! program.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libselvedge_heap.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
