//! Sets `nodelete`, because threads and objects of the program use the library after libfabric has
//! closed it, and binds the library's own calls to itself.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}
