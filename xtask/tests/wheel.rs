//! Tests of `xtask wheel`: what the wheel has, what its installation runs, and what is left of it.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use selvedge_testkit::skip::{Need, skip};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn python() -> OsString {
    std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into())
}

/// Returns whether the machine has what builds a wheel. If not, the test is reported as skipped.
fn has_programs() -> bool {
    let runs = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
    if !runs(Command::new(python()).args(["-c", "import hatchling, pip"])) {
        skip(
            Need::Python,
            "this Python has no hatchling: pip install hatchling",
        );
        return false;
    }
    let has_tools = ["cc", "objcopy"]
        .into_iter()
        .all(|program| runs(Command::new(program).arg("--version")));
    if !has_tools {
        skip(Need::Cc, "there is no cc or no objcopy");
    }
    has_tools
}

/// The wheel of stand-ins for the libraries and tools.
fn wheel() -> &'static Path {
    static WHEEL: OnceLock<PathBuf> = OnceLock::new();
    WHEEL.get_or_init(|| {
        let (built, out) = (folder("wheel-built"), folder("wheel-out"));
        let source = built.join("source.c");
        let text = "#include <stdio.h>\nint main(int count, char **arguments) {\n\
                    (void)arguments; puts(\"Does.\\n\\nUsage: tool\"); return count > 5; }\n";
        fs::write(&source, text).unwrap();
        let compile = |name: &str, option: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-g", "-fPIC", option, "-o"]).arg(built.join(name));
            output_of(cc.arg(&source));
        };
        for name in ["libfabric.so", "libselvedge_heap_c.so", "libselvedge_fi.so"] {
            compile(name, "-shared");
        }
        for name in [
            "fi_info",
            "fi_strerror",
            "fi_top",
            "fabtests",
            "selvedge-run",
        ] {
            compile(name, "-O1");
        }
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask
            .arg("wheel")
            .arg("--built")
            .arg(&built)
            .arg("--out")
            .arg(&out);
        PathBuf::from(output_of(&mut xtask).trim())
    })
}

/// The files and links below a folder, without the modules that Python has compiled.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == "__pycache__" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

#[test]
fn a_wheel_has_libraries_tools_licences_and_the_tag_of_its_glibc() {
    if !has_programs() {
        return;
    }
    let name = wheel().file_name().unwrap().to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let beginning = format!("selvedge-{version}-py3-none-manylinux_2_");
    assert!(
        name.starts_with(&beginning) && name.ends_with("_64.whl"),
        "{name}"
    );
    let unpacked = folder("wheel-unpacked");
    let mut zip = Command::new(python());
    output_of(zip.args(["-m", "zipfile", "-e"]).args([wheel(), &unpacked]));
    for file in [
        "selvedge/__init__.py",
        "selvedge/lib/libfabric.so.1",
        "selvedge/lib/libselvedge_heap.so",
        "selvedge/lib/libfabric/libselvedge_shm-fi.so",
        "selvedge/lib/libfabric/libselvedge_tcp-fi.so",
        "selvedge/bin/selvedge-fi_info",
        "selvedge/bin/selvedge-run",
        "selvedge/bin/fabtests",
    ] {
        assert!(unpacked.join(file).is_file(), "{file}");
    }
    let information = unpacked.join(format!("selvedge-{version}.dist-info"));
    let metadata = fs::read_to_string(information.join("METADATA")).unwrap();
    for line in [
        format!("Version: {version}\n"),
        "License-Expression: MIT OR Apache-2.0\n".to_owned(),
        "License-File: LICENSE-MIT\n".to_owned(),
    ] {
        assert!(metadata.contains(&line), "{metadata}");
    }
    let licences = information.join("licenses");
    assert!(licences.join("LICENSE-MIT").exists() && licences.join("LICENSE-APACHE").exists());
    let description = fs::read_to_string(information.join("WHEEL")).unwrap();
    assert!(
        description.contains("Root-Is-Purelib: false\n"),
        "{description}"
    );
    let library = unpacked.join("selvedge/lib/libfabric.so.1");
    let sections = output_of(Command::new("objdump").arg("-h").arg(library));
    assert!(!sections.contains(".debug_info"), "{sections}");
}

#[test]
fn an_installed_wheel_runs_its_tools_and_leaves_nothing() {
    if !has_programs() {
        return;
    }
    let environment = folder("wheel-environment");
    let mut venv = Command::new(python());
    output_of(venv.args(["-m", "venv", "--without-pip"]).arg(&environment));
    let before = files(&environment);
    let own_python = environment.join("bin/python");
    let pip = || {
        let mut command = Command::new(python());
        command.args(["-m", "pip", "--disable-pip-version-check", "--python"]);
        command.arg(&own_python);
        command
    };
    output_of(pip().args(["install", "--no-index"]).arg(wheel()));
    for tool in ["fi_top", "selvedge-fi_info", "selvedge-run", "fabtests"] {
        let text = output_of(&mut Command::new(environment.join("bin").join(tool)));
        assert_eq!(text, "Does.\n\nUsage: tool\n", "{tool}");
    }
    let run = |arguments: &[&str]| {
        let output = Command::new(&own_python).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let program = "import selvedge; print((selvedge.lib_path() / 'libfabric.so.1').is_file())";
    assert_eq!(run(&["-c", program]), (Some(0), "True\n".to_owned()));
    let (code, text) = run(&["-m", "selvedge", "fi_bottom"]);
    let reason = "cannot run fi_bottom: 'fi_bottom' is no tool of Selvedge: fabtests, fi_top, ";
    assert!(code == Some(1) && text.contains(reason), "{text}");
    let program = "import selvedge; print(selvedge.run('mpiexec', '-n', '2', route='plugin'))";
    assert_eq!(
        run(&["-c", program]),
        (Some(0), "Does.\n\nUsage: tool\n1\n".to_owned())
    );
    output_of(pip().args(["uninstall", "--yes", "selvedge"]));
    let after = files(&environment);
    let left: Vec<_> = after.difference(&before).collect();
    assert!(left.is_empty(), "{left:?}");
}
