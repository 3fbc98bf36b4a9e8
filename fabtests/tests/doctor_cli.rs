//! Runs the command `fabtests doctor`, also in processes that may not use something that it
//! examines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(unsafe_code, reason = "restricts the process that is started")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Pid;
use serde_json::Value;

/// The names of all findings, in the order of the report.
const NAMES: [&str; 15] = [
    "messages",
    "shared memory",
    "rendezvous",
    "cross-memory attach",
    "peers that die",
    "cores",
    "frequency",
    "processor quota",
    "descriptors",
    "placement",
    "huge pages",
    "locked memory",
    "/dev/shm",
    "membarrier",
    "namespaces",
];

fn doctor(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.arg("doctor").args(args);
    command
}

/// Runs the doctor in a process that calls `restrict` first. Returns the output, and the report in
/// it.
fn run_restricted(
    restrict: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> (Output, Value) {
    let mut command = doctor(&["--json"]);
    // SAFETY: `restrict` makes system calls only.
    let output = unsafe { command.pre_exec(restrict) }.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output, report)
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["name"] == name)
        .unwrap()
}

/// Checks that the exit code agrees with the report.
#[track_caller]
fn check_exit_code(output: &Output, report: &Value) {
    let expected = match (&report["works"], &report["full_speed"]) {
        (Value::Bool(true), Value::Bool(true)) => 0,
        (Value::Bool(true), Value::Bool(false)) => 1,
        _ => 3,
    };
    assert_eq!(output.status.code(), Some(expected), "{report}");
}

/// Makes the kernel fail a system call with `errno`, in this process and its children.
fn deny(call: i64, errno: i32) -> io::Result<()> {
    let instruction = |code: u32, k: u32, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            call as u32,
            0,
            1,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno as u32,
            0,
            0,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    nix::sys::prctl::set_no_new_privs()?;
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` points to a valid program, which the kernel copies during the call.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn the_report_has_every_finding_and_agrees_with_the_exit_code() {
    let (output, report) = run_restricted(|| Ok(()));
    check_exit_code(&output, &report);
    assert_eq!(report["works"], true, "{report}");
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().collect();
    assert_eq!(findings.len(), NAMES.len());
    for (finding, name) in findings.iter().zip(NAMES) {
        assert_eq!(finding["name"], name);
        let severity = finding["verdict"].as_str().unwrap();
        assert!(
            ["good", "note", "slow", "broken"].contains(&severity),
            "{finding}"
        );
        for field in ["found", "meaning"] {
            assert!(!finding[field].as_str().unwrap().is_empty(), "{finding}");
        }
        let advice = &finding["advice"];
        assert!(
            advice.is_null() || advice.as_str().unwrap().ends_with('.'),
            "{finding}"
        );
    }
    let text = doctor(&[]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for name in NAMES {
        assert!(text.contains(&format!("  {name}: ")), "{text}");
    }
}

#[test]
fn placement_names_the_nodes_of_the_machine_and_of_messages() {
    let file = std::env::temp_dir().join(format!("doctor-{}.xml", std::process::id()));
    let all = vec!["0xffffffff"; 32].join(",");
    // The pages of a machine with one node lie on node 0, wherever the process is said to run.
    for (here, there, verdict) in [(0, 1000, "good"), (1000, 0, "note")] {
        let object = |id: u32, cpus: &str| {
            format!(r#"<object type="NUMANode" os_index="{id}" cpuset="{cpus}" local_memory="1"/>"#)
        };
        let (this, other) = (object(here, &all), object(there, "0x0"));
        std::fs::write(&file, format!("<topology>{this}{other}</topology>")).unwrap();
        let output = doctor(&["--json"])
            .env("HWLOC_XMLFILE", &file)
            .env("HWLOC_THISSYSTEM", "1")
            .output()
            .unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap();
        let finding = finding(&report, "placement");
        let found = finding["found"].as_str().unwrap();
        for part in [
            format!("node {here} has processors 0-1023"),
            format!("node {there} has no processors"),
            format!("this process runs on node {here}; its messages lie on node 0"),
        ] {
            assert!(found.contains(&part), "{part}: {finding}");
        }
        assert_eq!(finding["verdict"], verdict, "{finding}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn without_cross_memory_attach_shm_is_slower() {
    let (output, report) = run_restricted(|| deny(libc::SYS_process_vm_readv, libc::EPERM));
    assert_eq!(output.status.code(), Some(1), "{report}");
    let finding = finding(&report, "cross-memory attach");
    assert_eq!(finding["verdict"], "slow");
    let meaning = finding["meaning"].as_str().unwrap();
    assert!(
        meaning.contains("bounce") && finding["advice"].is_string(),
        "{finding}"
    );
}

#[test]
fn without_memory_files_shm_does_not_work() {
    let (output, report) = run_restricted(|| deny(libc::SYS_memfd_create, libc::ENOSYS));
    assert_eq!(output.status.code(), Some(3), "{report}");
    for name in ["shared memory", "messages"] {
        assert_eq!(finding(&report, name)["verdict"], "broken");
    }
    let found = finding(&report, "shared memory")["found"].as_str().unwrap();
    assert!(found.contains("memfd_create"), "{found}");
}

#[test]
fn without_pidfds_peer_failures_are_noticed_by_sockets() {
    let (output, report) = run_restricted(|| {
        deny(libc::SYS_pidfd_open, libc::ENOSYS)?;
        deny(libc::SYS_getsockopt, libc::ENOPROTOOPT)
    });
    // Reading a peer's credentials uses getsockopt(2) too, so the rendezvous is broken.
    assert_eq!(output.status.code(), Some(3), "{report}");
    assert_eq!(finding(&report, "peers that die")["verdict"], "note");
    assert_eq!(finding(&report, "rendezvous")["verdict"], "broken");
}

#[test]
fn few_descriptors_allow_few_peers() {
    let (output, report) = run_restricted(|| Ok(setrlimit(Resource::RLIMIT_NOFILE, 64, 64)?));
    check_exit_code(&output, &report);
    let finding = finding(&report, "descriptors");
    assert_eq!(finding["verdict"], "note");
    assert!(
        finding["found"].as_str().unwrap().starts_with("64 "),
        "{finding}"
    );
}

#[test]
fn one_core_is_slow() {
    let this_thread = Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread).unwrap();
    let core = (0..CpuSet::count()).find(|&core| allowed.is_set(core).unwrap());
    let mut one_core = CpuSet::new();
    one_core.set(core.unwrap()).unwrap();
    let (output, report) = run_restricted(move || Ok(sched_setaffinity(this_thread, &one_core)?));
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!(finding(&report, "cores")["verdict"], "slow");
}
