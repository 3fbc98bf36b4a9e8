//! Tests of `xtask install` and the like: which files they install, and where.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use selvedge_testkit::skip::{Need, skip};

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
    run(&["install", "--unstripped"], built, prefix)
}

/// Writes a program that prints a help text. Its first line is `mark`.
fn write_tool(file: &Path, mark: &str) {
    let help = "Does it.\n\nUsage: tool [OPTIONS] <FILE>\n\n  -n, --number <N>  How often\n";
    fs::write(file, format!("#!/bin/sh\n# {mark}\ncat <<END\n{help}END\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn library_links_tools_and_description_are_installed_and_replaced() {
    let (built, prefix) = (folder("built"), folder("prefix"));
    for round in ["first", "second"] {
        for name in ["libfabric.so", "libselvedge_heap_c.so", "libselvedge_fi.so"] {
            fs::write(built.join(name), format!("{round} {name}")).unwrap();
        }
        for name in [
            "fi_info",
            "fi_strerror",
            "fi_top",
            "fabtests",
            "selvedge-run",
        ] {
            write_tool(&built.join(name), &format!("{round} {name}"));
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
        assert!(tool.contains(&format!("{round} fi_info\n")), "{tool}");
        let top = fs::read_to_string(prefix.join("bin/fi_top")).unwrap();
        assert!(top.contains(&format!("{round} fi_top\n")), "{top}");
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
        "--includedir",
        "include/own",
        "--unstripped",
    ]);
    command.arg("--built").arg(&built).env("DESTDIR", &staging);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lib = staging.join("usr/lib/x86_64-linux-gnu");
    assert!(lib.join("libbmi.so").exists() && staging.join("usr/include/own/bmi.h").exists());
    let description = fs::read_to_string(lib.join("pkgconfig/bmi.pc")).unwrap();
    for line in [
        "prefix=/usr\n",
        "libdir=${prefix}/lib/x86_64-linux-gnu\n",
        "includedir=${prefix}/include/own\n",
    ] {
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
        fs::write(built.join(&library), &library).unwrap();
        if let Some(program) = program {
            write_tool(&built.join(program), program);
        }
        let task = format!("install-{name}");
        let output = run(&[&task, "--unstripped"], &built, &prefix);
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

/// Returns the output of a command, or `None`, with a skip, if the program is missing.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success(), "{program} {arguments:?}: {text}");
            Some(text)
        }
        Err(_) => {
            skip(Need::Cc, format_args!("there is no {program}"));
            None
        }
    }
}

#[test]
fn libraries_and_programs_are_stripped_and_keep_their_debug_information_beside_them() {
    let (built, prefix) = (folder("built-with-symbols"), folder("stripped"));
    let source = built.join("tool.c");
    let text = "#include <stdio.h>\nint own(void) { return 7; }\n\
                int main(void) { return puts(\"Does it.\\n\\nUsage: tool\") < own() - 100; }\n";
    fs::write(&source, text).unwrap();
    for (file, kind) in [("cheetahrun", "-O1"), ("libcheetah.so", "-shared")] {
        let file = built.join(file);
        let arguments = ["-g", "-fPIC", kind, "-o", file.to_str().unwrap()];
        let arguments = [&arguments[..], &[source.to_str().unwrap()]].concat();
        if output_of("cc", &arguments).is_none() {
            return;
        }
    }
    // The second round replaces the files of the first.
    for _ in 0..2 {
        let output = run(&["install-cheetah"], &built, &prefix);
        assert!(output.status.success(), "{output:?}");
    }
    for file in ["bin/cheetahrun", "lib/libcheetah.so"] {
        let file = prefix.join(file);
        let name = file.file_name().unwrap().to_str().unwrap();
        let debug = file.with_file_name(".debug").join(format!("{name}.debug"));
        let sections = |file: &Path| output_of("objdump", &["-h", file.to_str().unwrap()]).unwrap();
        let (installed, separate) = (sections(&file), sections(&debug));
        assert!(
            !installed.contains(".debug_info") && installed.contains(".gnu_debuglink"),
            "{installed}"
        );
        assert!(separate.contains(".debug_info"), "{separate}");
        let files = fs::read_dir(debug.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "a temporary file was left");
    }
    let library = prefix.join("lib/libcheetah.so");
    let symbols = output_of("objdump", &["-T", library.to_str().unwrap()]).unwrap();
    assert!(symbols.contains(" own\n"), "{symbols}");
    // A file with its symbols has no debug file of an older one.
    let output = run(&["install-cheetah", "--unstripped"], &built, &prefix);
    assert!(output.status.success(), "{output:?}");
    assert!(!prefix.join("bin/.debug/cheetahrun.debug").exists());
}

#[test]
fn a_missing_objcopy_and_a_file_that_is_no_library_are_explained() {
    let (built, prefix) = (folder("built-without-objcopy"), folder("without-objcopy"));
    fs::write(built.join("libbmi.so"), "no library").unwrap();
    for (objcopy, reason) in [
        (
            "/no/objcopy",
            "cannot run /no/objcopy, which separates debug information",
        ),
        ("objcopy", "pass --unstripped"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("install-bmi").arg("--prefix").arg(&prefix);
        command.arg("--built").arg(&built).env("OBJCOPY", objcopy);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "{said}");
        assert!(said.contains("--unstripped"), "{said}");
        assert!(!prefix.join("lib/libbmi.so").exists());
    }
}

#[test]
fn tools_have_man_pages_and_completions_from_their_help() {
    let (built, prefix) = (folder("built-with-help"), folder("pages"));
    fs::write(built.join("libcheetah.so"), "library").unwrap();
    let tool = built.join("cheetahrun");
    let script = "\
#!/bin/sh
if [ \"$1\" = start ]; then
cat <<END
Starts -- all of it

Usage: tool start --speed <SPEED>

Options:
      --speed <SPEED>  .How 'fast' it\\\\goes [possible values: fast, slow]
  -h, --help           Print help
END
else
cat <<END
Does it.

Usage: tool [OPTIONS] <COMMAND>

Commands:
  start  Starts
  help   Helps

Options:
  -n, --number <N>  How often
END
fi
";
    fs::write(&tool, script).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(&["install-cheetah", "--unstripped"], &built, &prefix);
    assert!(output.status.success(), "{output:?}");
    let read = |file: &str| fs::read_to_string(prefix.join(file)).unwrap();
    let page = read("share/man/man1/cheetahrun.1");
    for text in [
        "Does it",
        "How often",
        "\\-\\-number",
        "cheetahrun\\-start(1)",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = read("share/man/man1/cheetahrun-start.1");
    for text in ["Starts \\-\\- all of it", "fast", "\\-\\-speed"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    check_roff(&prefix.join("share/man/man1"));
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/cheetahrun"),
        ("zsh", "share/zsh/site-functions/_cheetahrun"),
        ("fish", "share/fish/vendor_completions.d/cheetahrun.fish"),
    ] {
        let text = read(file);
        for word in ["number", "start", "speed", "slow"] {
            assert!(text.contains(word), "{shell} {word}: {text}");
        }
        let file = prefix.join(file);
        // A missing shell is no reason to skip the rest.
        if let Ok(output) = Command::new(shell).arg("-n").arg(file).output() {
            assert!(output.status.success(), "{shell}: {output:?}");
        }
    }
}

/// Checks pages with the programs that the machine has.
fn check_roff(pages: &Path) {
    for page in fs::read_dir(pages).unwrap() {
        let page = page.unwrap().path();
        let checks = [
            ("mandoc", &["-T", "lint", "-W", "error"][..]),
            ("man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]),
        ];
        for (program, arguments) in checks {
            let Ok(output) = Command::new(program).args(arguments).arg(&page).output() else {
                continue;
            };
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && errors.is_empty(),
                "{page:?}: {errors}"
            );
        }
    }
}
