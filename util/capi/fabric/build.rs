//! The name that programs find the library by, the versions of its symbols, and that it stays where
//! it was loaded: clients close it while something of it is still in use.

fn main() {
    let nodes = format!("{}/versions.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=versions.map");
}
