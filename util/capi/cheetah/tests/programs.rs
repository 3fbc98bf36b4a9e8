//! Programs in C++ against `Cheetah/Cheetah.h` and `libcheetah.so`, as real processes.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[path = "../../once.rs"]
mod once;
use once::create_once;
use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};

/// A bound that no working program reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

const STANDARDS: [&str; 8] = [
    "gnu++98", "c++98", "c++03", "c++11", "c++14", "c++17", "c++20", "c++23",
];

/// The folder that the library was built to.
fn library_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let found = folders
        .into_iter()
        .find(|folder| folder.join("libcheetah.so").exists());
    found
        .expect("libcheetah.so is built with its tests")
        .to_owned()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a program with warnings as errors, and returns its path. Reports a skipped test and
/// returns `None` if there is no compiler, or if it does not support the standard.
fn compile(name: &str, standard: &str, options: &[&str]) -> Option<PathBuf> {
    if !is_standard_supported(standard) {
        skip(
            Need::Cxx,
            format_args!("there is no g++ that supports {standard}"),
        );
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}-{standard}{}",
        options.concat().replace(['/', '=', ','], "_")
    ));
    Some(create_once(program, |program| {
        compile_to(program, name, standard, options);
    }))
}

fn compile_to(program: &Path, name: &str, standard: &str, options: &[&str]) {
    let library_folder = library_folder();
    let warnings = [
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wshadow",
        "-Wconversion",
        "-Werror",
    ];
    let output = Command::new("g++")
        .arg(format!("-std={standard}"))
        .args(warnings)
        .args(options)
        .arg("-o")
        .arg(program)
        .arg(root().join(format!("tests/programs/{name}.cc")))
        .arg("-I")
        .arg(root().join("include"))
        .arg("-L")
        .arg(&library_folder)
        .args([
            "-lcheetah",
            &format!("-Wl,-rpath,{}", library_folder.display()),
        ])
        .output()
        .expect("a C++ compiler");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{standard}: {printed}");
}

fn is_standard_supported(standard: &str) -> bool {
    let output = Command::new("g++")
        .args([
            &format!("-std={standard}"),
            "-fsyntax-only",
            "-xc++",
            "/dev/null",
        ])
        .output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        output => output.unwrap().status.success(),
    }
}

fn run(mut command: Command) -> Output {
    for name in ["CHEETAH_RANK", "CHEETAH_SIZE", "CHEETAH_FABRIC", "PMI_FD"] {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finish(command.spawn().unwrap())
}

/// Waits until a program has ended and all processes have closed its output.
fn finish(mut child: Child) -> Output {
    let (close_stream, closed) = mpsc::channel();
    let streams: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().unwrap()),
        Box::new(child.stderr.take().unwrap()),
    ];
    let readers = streams.map(|mut stream| {
        let close_stream = close_stream.clone();
        thread::spawn(move || {
            let mut text = Vec::new();
            stream.read_to_end(&mut text).unwrap();
            // The receiver is dropped after a timeout.
            let _ = close_stream.send(());
            text
        })
    });
    for _ in 0..2 {
        if closed.recv_timeout(TIMEOUT).is_err() {
            let _ = child.kill();
            panic!("a program did not exit within the timeout");
        }
    }
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap());
    let status = child.wait().unwrap();
    Output {
        status,
        stdout,
        stderr,
    }
}

fn run_program(program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args);
    run(command)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_compiles_under_every_standard_without_warnings_and_runs() {
    // The sample of a short run has the oldest and the newest standard.
    for standard in STANDARDS.iter().step_by(part(7, 1)) {
        let Some(program) = compile("all", standard, &["-O1"]) else {
            continue;
        };
        let output = run_program(&program, &["-shmem", "-np", "4", "own"]);
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{standard}: {output:?}");
        assert_eq!(
            printed.matches("context ends well").count(),
            4,
            "{standard}: {printed}"
        );
        assert_eq!(
            printed.matches("before").count(),
            1,
            "{standard}: {printed}"
        );
    }
}

#[test]
fn a_program_runs_with_one_to_eight_contexts_and_any_level_of_optimisation() {
    for level in ["-O0", "-O2"] {
        let Some(program) = compile("all", "gnu++98", &[level]) else {
            return;
        };
        for contexts in part(&["1", "3"][..], &["1", "2", "3", "8"]) {
            let output = run_program(&program, &["own", "-np", contexts, "-shmem"]);
            assert!(output.status.success(), "{contexts}: {output:?}");
        }
    }
}

#[test]
fn a_program_logs_at_fi_log_level_and_refuses_an_invalid_level() {
    let Some(program) = compile("all", "gnu++98", &["-O1"]) else {
        return;
    };
    let run_at_level = |level: &str| {
        let mut command = Command::new(&program);
        command.args(["own", "-np", "1", "-shmem"]);
        command.env("FI_LOG_LEVEL", level);
        run(command)
    };
    let output = run_at_level("info");
    assert!(output.status.success(), "{output:?}");
    assert!(
        text(&output.stderr).contains("discovery: shm: taken"),
        "{output:?}"
    );
    let output = run_at_level("loud");
    assert!(!output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("FI_LOG_LEVEL"), "{output:?}");
}

#[test]
fn strings_and_vectors_have_their_own_header() {
    for standard in ["gnu++98", "c++20"] {
        let Some(program) = compile("all", standard, &["-DWITH_STD"]) else {
            continue;
        };
        let output = run_program(&program, &["own", "-np", "2", "-shmem"]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_header_is_clean_under_the_sanitizers() {
    let sanitizers = ["-g", "-fsanitize=address,undefined"];
    let Some(program) = compile("all", "gnu++98", &sanitizers) else {
        return;
    };
    let output = run_program(&program, &["own", "-np", "2", "-shmem"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn errors_end_the_program_with_a_message_unless_a_handler_is_set() {
    let Some(program) = compile("errors", "c++11", &[]) else {
        return;
    };
    let table = [
        (
            "mismatch",
            false,
            "contexts have registered different functions or handlers",
        ),
        ("death", false, "context 1 of 3 has failed"),
        (
            "pointer",
            true,
            "noted: get of 1 bytes at 0x20 of context 1",
        ),
        ("handler", true, "noted: barrier within a handler"),
        (
            "overrun",
            true,
            "noted: pack() has written more than size() said",
        ),
        ("arguments", true, "noted: put of -1 bytes"),
        ("arguments", true, "noted: put of 4 bytes at a null pointer"),
        ("arguments", true, "noted: there is no context 77"),
        ("arguments", true, "noted: there is no context -1"),
        ("arguments", true, "noted 13 errors"),
        ("late", true, "noted: poll after finalize"),
        ("timeout", true, "noted: wait has lasted"),
    ];
    for (case, ends_well, message) in table {
        let output = run_program(&program, &[case, "-shmem", "-np", "3"]);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.success(), ends_well, "{case}: {printed}");
        assert!(printed.contains(message), "{case}: {printed}");
    }
}

/// Runs a program in which context `context` puts 100 bytes to a bad address and then makes `call`.
/// Returns the output, and whether the exit code is 0 rather than 1.
fn end_after_failed_put(call: &str, handler: &str, context: &str) -> Option<(String, bool)> {
    let program = compile("errors", "c++11", &[])?;
    let output = run_program(
        &program,
        &["put", call, handler, context, "-shmem", "-np", "3"],
    );
    let printed = text(&output.stdout) + &text(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{call}, {handler}: {output:?}");
    Some((printed, code == Some(0)))
}

const FAILED_PUT: &str = "put of 100 bytes at 0x30 of context 1";

#[test]
fn barrier_finalize_and_destructor_report_failures_to_the_error_handler() {
    let table = [
        ("barrier", "after the barrier: 1"),
        ("halves", "after the barrier: 1"),
        ("finalize", "after finalize: 1"),
        ("destructor", "noted: put"),
    ];
    for (call, message) in table {
        let Some((printed, ends_well)) = end_after_failed_put(call, "note", "0") else {
            return;
        };
        assert!(ends_well && printed.contains(message), "{call}: {printed}");
        let reports = printed.matches(FAILED_PUT).count();
        assert_eq!(reports, 1, "{call}: {printed}");
    }
}

#[test]
fn barrier_finalize_and_destructor_end_a_program_without_an_error_handler_on_failure() {
    for call in ["barrier", "halves", "finalize", "destructor"] {
        let Some((printed, ends_well)) = end_after_failed_put(call, "none", "0") else {
            return;
        };
        let message = format!("Cheetah: {FAILED_PUT}");
        assert!(
            !ends_well && printed.contains(&message),
            "{call}: {printed}"
        );
    }
}

#[test]
fn a_failure_in_a_forked_context_makes_the_program_fail() {
    let Some((printed, ends_well)) = end_after_failed_put("destructor", "none", "1") else {
        return;
    };
    let messages = [
        "Cheetah: put of 100 bytes at 0x30 of context 2",
        "context 1 has ended with exit code 1",
    ];
    for message in messages {
        assert!(!ends_well && printed.contains(message), "{printed}");
    }
}

#[test]
fn an_error_handler_that_throws_from_a_destructor_ends_the_program_with_the_message() {
    let Some((printed, ends_well)) = end_after_failed_put("destructor", "throw", "0") else {
        return;
    };
    for start in ["noted", "Cheetah"] {
        let message = format!("{start}: {FAILED_PUT}");
        assert!(!ends_well && printed.contains(&message), "{printed}");
    }
}

#[test]
fn a_failure_reported_by_a_wait_is_not_reported_again_by_barrier_and_finalize() {
    let Some((printed, ends_well)) = end_after_failed_put("reported", "note", "0") else {
        return;
    };
    for line in ["after the barrier: 1", "after finalize: 1"] {
        assert!(ends_well && printed.contains(line), "{printed}");
    }
}

#[test]
fn the_header_compiles_without_exceptions() {
    compile("all", "c++11", &["-fno-exceptions"]);
}
