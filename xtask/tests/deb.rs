//! Tests of `xtask deb`: what the packages have, and what is left after they were removed.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use selvedge_testkit::skip::{Need, skip};

/// Files of Debian's libfabric1, libfabric-bin and libfabric-dev, by the beginnings of their paths.
const DEBIAN_S: [&str; 8] = [
    "./usr/bin/fi_",
    "./usr/include/rdma/",
    "./usr/lib/x86_64-linux-gnu/libfabric.",
    "./usr/lib/aarch64-linux-gnu/libfabric.",
    "./usr/lib/x86_64-linux-gnu/pkgconfig/",
    "./usr/lib/aarch64-linux-gnu/pkgconfig/",
    "./usr/share/man/man1/fi_",
    "./usr/share/man/man3/",
];
/// The one name beginning with `fi_` that libfabric does not have.
const OWN: &str = "fi_top";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns whether the machine has the programs. Otherwise the test is reported as skipped.
fn has_programs() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let missing = ["cc", "objcopy", "dpkg-deb", "dpkg"]
        .into_iter()
        .find(|program| !folders.iter().any(|folder| folder.join(program).exists()));
    if let Some(program) = missing {
        skip(Need::Cc, format_args!("there is no {program}"));
    }
    missing.is_none()
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Builds the packages of stand-ins for the libraries and tools. Returns the files.
fn packages(name: &str) -> Vec<PathBuf> {
    let (built, out) = (
        folder(&format!("{name}-built")),
        folder(&format!("{name}-out")),
    );
    let source = built.join("source.c");
    let text =
        "#include <stdio.h>\nint main(void) { return puts(\"Does.\\n\\nUsage: tool\") < 0; }\n";
    fs::write(&source, text).unwrap();
    let compile = |name: &str, option: &str| {
        let mut cc = Command::new("cc");
        output_of(
            cc.args(["-g", "-fPIC", option, "-o"])
                .arg(built.join(name))
                .arg(&source),
        );
    };
    for name in [
        "libfabric",
        "libselvedge_heap_c",
        "libselvedge_fi",
        "libbmi",
        "libcheetah",
    ] {
        compile(&format!("{name}.so"), "-shared");
    }
    for name in [
        "fi_info",
        "fi_strerror",
        "fi_top",
        "fabtests",
        "selvedge-run",
        "cheetahrun",
    ] {
        compile(name, "-O1");
    }
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let list = output_of(
        xtask
            .arg("deb")
            .arg("--built")
            .arg(&built)
            .arg("--out")
            .arg(&out),
    );
    list.lines().map(PathBuf::from).collect()
}

/// The paths of the files and links in a package.
fn contents(package: &Path) -> Vec<String> {
    let list = output_of(Command::new("dpkg-deb").arg("--contents").arg(package));
    let paths = list.lines().map(|line| {
        let path = line.split(" -> ").next().unwrap();
        path.split_whitespace().last().unwrap().to_owned()
    });
    paths.filter(|path| !path.ends_with('/')).collect()
}

#[test]
fn packages_have_every_file_once_and_none_of_debian_s() {
    if !has_programs() {
        return;
    }
    let mut all = BTreeSet::new();
    let packages = packages("deb");
    assert_eq!(packages.len(), 7, "{packages:?}");
    for package in &packages {
        for path in contents(package) {
            let is_debian_s = DEBIAN_S.iter().any(|beginning| path.starts_with(beginning));
            assert!(!is_debian_s || path.contains(OWN), "{path}");
            assert!(all.insert(path.clone()), "{path} is in two packages");
        }
    }
    for name in [
        "/selvedge/libfabric.so.1",
        "/selvedge/libfabric.so",
        "/libfabric/libselvedge_shm-fi.so",
        "/bin/selvedge-fi_info",
        "/bin/fi_top",
        "/man1/selvedge-fi_info.1",
        "/include/selvedge/rdma/fabric.h",
        "/selvedge/libbmi.so",
        "/bin/cheetahrun",
        "/lib/debug/usr/bin/fi_top.debug",
        "/share/doc/selvedge-tools/copyright",
    ] {
        assert!(
            all.iter().any(|path| path.ends_with(name)),
            "{name}: {all:?}"
        );
    }
    let find = |name: &str| {
        let mut packages = packages.iter();
        packages
            .find(|file| file.to_string_lossy().contains(name))
            .unwrap()
    };
    let field = |package: &str, name: &str| {
        output_of(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(find(package))
                .arg(name),
        )
    };
    let depends = field("selvedge-tools", "Depends");
    assert!(depends.starts_with("libc6 (>= 2."), "{depends}");
    let depends = field("fabric-dev", "Depends");
    assert!(depends.starts_with("libselvedge-fabric1 (= "), "{depends}");
    let scripts = output_of(Command::new("dpkg-deb").arg("--info").arg(find("tools")));
    assert!(
        !scripts.contains("postinst") && !scripts.contains("prerm"),
        "{scripts}"
    );
}

#[test]
fn packages_are_installed_and_removed_and_leave_nothing() {
    if !has_programs() {
        return;
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip(Need::Rights, "dpkg installs packages as root only");
        return;
    }
    let packages = packages("deb-installed");
    let root = folder("deb-root");
    let admin = root.join("var/lib/dpkg");
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(admin.join(name)).unwrap();
    }
    for name in ["status", "available"] {
        fs::write(admin.join(name), "").unwrap();
    }
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command
            .arg("--root")
            .arg(&root)
            .args(["--force-depends", "--log=/dev/null"]);
        command
    };
    output_of(dpkg().arg("--install").args(&packages));
    let library = output_of(
        Command::new("find")
            .arg(&root)
            .args(["-name", "libfabric.so.1"]),
    );
    let content = fs::read(library.trim()).unwrap();
    assert!(content.starts_with(b"\x7fELF"));
    let names: Vec<_> = packages.iter().map(|file| name_of(file)).collect();
    output_of(dpkg().arg("--remove").args(&names));
    let left = output_of(
        Command::new("find")
            .arg(&root)
            .args(["-not", "-path", "*/var*"]),
    );
    assert_eq!(left.trim(), root.to_string_lossy(), "files are left");
}

fn name_of(package: &Path) -> String {
    let field = output_of(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(package)
            .arg("Package"),
    );
    field.trim().to_owned()
}
