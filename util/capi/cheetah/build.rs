//! Sets the library's soname and `nodelete`: the library's exit handlers run after a program has
//! unloaded the library.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcheetah.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
