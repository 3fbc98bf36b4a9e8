//! Sets the library's soname, the versions of its symbols, and `nodelete`: clients unload the
//! library while its code and data are still in use.

fn main() {
    let nodes = format!("{}/versions.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=versions.map");
}
