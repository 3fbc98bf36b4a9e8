//! The name that programs find the library by, and that it stays where it was loaded: what is done
//! at exit is in it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcheetah.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
