//! Sets the library's soname and `nodelete`: threads may still use the library's code and data when
//! a program unloads the library.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbmi.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
