//! Tests of `xtask install` and the like: which files they install, and where.

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

fn run(task: &[&str], built: &Path, prefix: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(task).arg("--prefix").arg(prefix);
    command.arg("--built").arg(built).output().unwrap()
}

fn install(built: &Path, prefix: &Path) -> Output {
    run(&["install"], built, prefix)
}

#[test]
fn library_links_tools_and_description_are_installed_and_replaced() {
    let (built, prefix) = (folder("built"), folder("prefix"));
    for round in ["first", "second"] {
        for name in [
            "libfabric.so",
            "libselvedge_heap_c.so",
            "libselvedge_fi.so",
            "fi_info",
            "fi_strerror",
            "fi_top",
            "fabtests",
        ] {
            fs::write(built.join(name), format!("{round} {name}")).unwrap();
        }
        let output = install(&built, &prefix);
        assert!(output.status.success(), "{output:?}");
        for link in ["lib/libfabric.so.1", "lib/libfabric.so"] {
            let library = fs::read_to_string(prefix.join(link)).unwrap();
            assert_eq!(library, format!("{round} libfabric.so"));
        }
        let heap = fs::read_to_string(prefix.join("lib/libselvedge_heap.so")).unwrap();
        assert_eq!(heap, format!("{round} libselvedge_heap_c.so"));
        for name in ["shm", "tcp"] {
            let file = prefix.join(format!("lib/libfabric/libselvedge_{name}-fi.so"));
            let provider = fs::read_to_string(file).unwrap();
            assert_eq!(provider, format!("{round} libselvedge_fi.so"));
        }
        let tool = fs::read_to_string(prefix.join("bin/fi_info")).unwrap();
        assert_eq!(tool, format!("{round} fi_info"));
        let top = fs::read_to_string(prefix.join("bin/fi_top")).unwrap();
        assert_eq!(top, format!("{round} fi_top"));
    }
    let description = fs::read_to_string(prefix.join("lib/pkgconfig/libfabric.pc")).unwrap();
    assert!(
        description.contains("includedir=${prefix}/include\n"),
        "{description}"
    );
    assert!(
        description.contains(&format!("prefix={}\n", prefix.display())),
        "{description}"
    );
    assert!(prefix.join("share/doc/selvedge/CFACE.md").exists());
    assert!(prefix.join("include/rdma/providers/fi_prov.h").exists());
    let headers = fs::read_to_string(prefix.join("include/rdma/fabric.h")).unwrap();
    let number = |name: &str| {
        let (_, rest) = headers
            .split_once(&format!("#define FI_{name}_VERSION "))
            .unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let version = ["MAJOR", "MINOR", "REVISION"].map(number).join(".");
    let line = format!("Version: {version}\n");
    assert!(
        description.contains(&line),
        "{description} is not of {version}"
    );
}

#[test]
fn a_package_is_staged_below_destdir_and_names_the_final_folders() {
    let (built, staging) = (folder("built-staged"), folder("staging"));
    fs::write(built.join("libbmi.so"), "library").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args([
        "install-bmi",
        "--prefix",
        "/usr",
        "--libdir",
        "lib/x86_64-linux-gnu",
    ]);
    command.arg("--built").arg(&built).env("DESTDIR", &staging);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lib = staging.join("usr/lib/x86_64-linux-gnu");
    assert!(lib.join("libbmi.so").exists() && staging.join("usr/include/bmi.h").exists());
    let description = fs::read_to_string(lib.join("pkgconfig/bmi.pc")).unwrap();
    for line in ["prefix=/usr\n", "libdir=${prefix}/lib/x86_64-linux-gnu\n"] {
        assert!(description.contains(line), "{description}");
    }
}

#[test]
fn libraries_with_headers_of_their_own_are_installed_with_them() {
    let table = [
        ("bmi", &["bmi.h", "bmi-types.h", "pvfs2.h"][..], None),
        (
            "cheetah",
            &["cheetah.h", "Cheetah/Cheetah.h"],
            Some("cheetahrun"),
        ),
    ];
    for (name, headers, program) in table {
        let (built, prefix) = (folder(&format!("built-{name}")), folder(name));
        let library = format!("lib{name}.so");
        for file in [Some(&*library), program].into_iter().flatten() {
            fs::write(built.join(file), file).unwrap();
        }
        let output = run(&[&format!("install-{name}")], &built, &prefix);
        assert!(output.status.success(), "{output:?}");
        for header in headers {
            assert!(prefix.join("include").join(header).exists(), "{header}");
        }
        assert!(prefix.join("lib").join(library).exists());
        assert!(program.is_none_or(|program| prefix.join("bin").join(program).exists()));
        let description = prefix.join(format!("lib/pkgconfig/{name}.pc"));
        let description = fs::read_to_string(description).unwrap();
        for line in [
            format!("prefix={}\n", prefix.display()),
            format!("Libs: -L${{libdir}} -l{name}\n"),
            "Cflags: -I${includedir}\n".to_owned(),
        ] {
            assert!(description.contains(&line), "{description}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let output = install(&folder("empty"), &folder("nowhere"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("libfabric.so"),
        "{said}"
    );
}
