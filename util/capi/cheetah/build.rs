//! Sets the library's soname and `nodelete`: its exit handlers run after a program has unloaded it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcheetah.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
