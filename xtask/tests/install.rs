//! The layout that is installed.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn install(built: &Path, prefix: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["install", "--headers", "/no/such/headers"]);
    command
        .arg("--prefix")
        .arg(prefix)
        .arg("--built")
        .arg(built);
    command.output().unwrap()
}

#[test]
fn library_links_tools_and_description_are_installed_and_replaced() {
    let (built, prefix) = (folder("built"), folder("prefix"));
    for round in ["first", "second"] {
        for name in ["libfabric.so", "fi_info", "fi_strerror", "fabtests"] {
            fs::write(built.join(name), format!("{round} {name}")).unwrap();
        }
        let output = install(&built, &prefix);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("there is no rdma/fabric.h in /no/such/headers"),
            "{said}"
        );
        for link in ["lib/libfabric.so.1", "lib/libfabric.so"] {
            let library = fs::read_to_string(prefix.join(link)).unwrap();
            assert_eq!(library, format!("{round} libfabric.so"));
        }
        let tool = fs::read_to_string(prefix.join("bin/fi_info")).unwrap();
        assert_eq!(tool, format!("{round} fi_info"));
    }
    let description = fs::read_to_string(prefix.join("lib/pkgconfig/libfabric.pc")).unwrap();
    assert!(
        description.contains("includedir=/no/such/headers\n"),
        "{description}"
    );
    assert!(
        description.contains(&format!("prefix={}\n", prefix.display())),
        "{description}"
    );
    assert!(prefix.join("share/doc/selvedge/CFACE.md").exists());
}

#[test]
fn what_is_not_there_is_named() {
    let output = install(&folder("empty"), &folder("nowhere"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("libfabric.so"),
        "{said}"
    );
}
