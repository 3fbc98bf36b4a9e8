//! The name that programs find the library by, and that it stays where it was loaded: threads may
//! still have something of it when a program lets it go.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbmi.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
