//! Programs in C against `bmi.h` and `libbmi.so`, as real processes.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../once.rs"]
mod once;
use once::create_once;

/// A bound that no working program reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The folder that the library was built to.
fn library_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let found = folders
        .into_iter()
        .find(|folder| folder.join("libbmi.so").exists());
    found.expect("libbmi.so is built with its tests").to_owned()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// Compiles a program of `tests/c` with warnings as errors, and returns its path.
fn compile(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    create_once(program, |program| compile_to(program, name))
}

fn compile_to(program: &Path, name: &str) {
    let library_folder = library_folder();
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
            "-o",
        ])
        .arg(program)
        .arg(sources().join(format!("{name}.c")))
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-L")
        .arg(&library_folder)
        .args(["-lbmi", &format!("-Wl,-rpath,{}", library_folder.display())])
        .output()
        .expect("a C compiler");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
}

fn start(program: &Path, argument: &str) -> Child {
    Command::new(program)
        .arg(argument)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("a program did not exit within the timeout");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A URL that no other test on this machine uses.
fn unique_url(name: &str) -> String {
    format!("shm://{name}-{}", std::process::id())
}

fn exchange_over(scheme: &str) {
    let mut server = start(&compile("server"), scheme);
    let mut printed = BufReader::new(server.stdout.take().unwrap());
    let mut url = String::new();
    printed.read_line(&mut url).unwrap();
    let mut client = start(&compile("client"), url.trim_end());
    assert!(wait_for_exit(&mut client).success());
    assert!(wait_for_exit(&mut server).success());
}

#[test]
fn a_server_and_a_client_in_c_exchange_messages_over_shm() {
    exchange_over("shm");
}

#[test]
fn a_server_and_a_client_in_c_exchange_messages_over_tcp() {
    exchange_over("tcp");
}

#[test]
fn a_killed_peer_causes_an_error_and_no_signal() {
    for scheme in ["shm", "tcp"] {
        assert!(wait_for_exit(&mut start(&compile("signal"), scheme)).success());
    }
}

#[test]
fn programs_for_orangefs_and_for_bmi_without_hints_build_and_run() {
    assert!(wait_for_exit(&mut start(&compile("orangefs"), &unique_url("orangefs"))).success());
}

#[test]
fn programs_of_the_first_bmi_build_and_run() {
    assert!(wait_for_exit(&mut start(&compile("seed"), &unique_url("seed"))).success());
}

#[test]
fn wrong_calls_in_c_return_their_code_and_damage_nothing() {
    let output = Command::new(compile("misuse"))
        .arg(unique_url("misuse"))
        .env_remove("FI_LOG_LEVEL")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    // The return value is only a number; the log has the reason and the remedy.
    for message in [
        "address \"bogus\": expected scheme://host:port",
        "address 4711 has no peer; pass an address from BMI_addr_lookup",
    ] {
        assert!(printed.contains(message), "{printed}");
    }
}

#[test]
fn messages_go_to_files_streams_and_the_system_s_log() {
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gossip-{}", std::process::id()));
    let output = Command::new(compile("gossip"))
        .arg(unique_url("gossip"))
        .arg(&file)
        .env_remove("FI_LOG_LEVEL")
        .output()
        .unwrap();
    // A missing file needs no removal.
    let _ = std::fs::remove_file(&file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "[E] stderr\n[E] disabled\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "before, [E] stdout, after\n");
}
