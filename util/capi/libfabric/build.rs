//! Sets the library's soname, the versions of its symbols, and `nodelete`: programs unload the
//! library while threads still use its code and data.

fn main() {
    let nodes = format!("{}/versions.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=versions.map");
}
