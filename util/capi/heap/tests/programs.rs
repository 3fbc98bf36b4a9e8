//! Programs that are run with `LD_PRELOAD=libselvedge_heap.so`.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use selvedge_testkit::skip::{Need, skip};

#[path = "../../once.rs"]
mod once;
use once::create_once;

/// The library that was built with this test.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let mut files = folders
        .into_iter()
        .map(|folder| folder.join("libselvedge_heap_c.so"));
    let found = files.find(|file| file.exists());
    found.expect("the library is built with its tests")
}

/// Compiles the programs with warnings as errors; `None` without a C compiler.
fn compile() -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip(Need::Cc, "there is no cc");
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heap");
    Some(create_once(program, |program| {
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"])
            // The compiler would remove allocations without a use.
            .args(["-fno-builtin", "-o"])
            .arg(program)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/heap.c"))
            .args(["-lpthread", "-ldl"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }))
}

/// Runs a program under the heap, which must succeed, and returns its error output.
fn run(name: &str, environment: &[(&str, &str)]) -> String {
    let Some(program) = compile() else {
        return String::new();
    };
    let output = Command::new(program)
        .arg(name)
        .env("LD_PRELOAD", library())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{name}: {:?}\n{errors}",
        output.status
    );
    errors
}

#[test]
fn every_function_of_memory_keeps_its_contract() {
    assert_eq!(run("functions", &[]), "");
}

#[test]
fn c_programs_that_fork_have_separate_memory_and_peers_keep_the_old_bytes() {
    assert_eq!(run("fork", &[]), "");
}

#[test]
fn vfork_and_posix_spawn_leave_the_memory_shared() {
    assert_eq!(run("vfork", &[]), "");
}

#[test]
fn threads_of_c_programs_that_write_during_forks_lose_nothing() {
    assert_eq!(run("threads", &[]), "");
}

#[test]
fn realloc_keeps_the_bytes_whether_or_not_it_moves_them() {
    assert_eq!(run("realloc", &[]), "");
}

#[test]
fn advice_and_locks_have_defined_results() {
    assert_eq!(run("advice", &[]), "");
}

#[test]
fn malloc_returns_null_when_the_address_space_ends() {
    assert_eq!(run("address-space", &[]), "");
}

#[test]
fn the_heap_takes_a_quarter_of_a_limited_address_space() {
    assert_eq!(run("address-quarter", &[("FI_HEAP_LIMIT", "1g")]), "");
}

#[test]
fn a_limit_of_file_sizes_does_not_end_the_program() {
    assert_eq!(run("file-size", &[]), "");
}

#[test]
fn a_limit_of_data_counts_the_heap_s_memory_only_after_a_fork() {
    assert_eq!(run("data", &[]), "");
}

#[test]
fn kept_memory_is_given_back_when_an_allocation_fails() {
    assert_eq!(run("retained", &[]), "");
}

#[test]
fn memory_that_is_locked_in_advance_survives_a_fork() {
    assert_eq!(run("lock-all", &[]), "");
}

#[test]
fn usable_bytes_belong_to_one_allocation() {
    assert_eq!(run("usable-size", &[]), "");
}

#[test]
fn a_control_group_does_not_run_out_of_memory_that_the_program_never_touches() {
    let Some(program) = compile() else { return };
    let group = match Group::create(128 << 20) {
        Ok(group) => group,
        Err(reason) => return skip(Need::System, &reason),
    };
    let output = group
        .command(&program)
        .arg("group")
        .env("HEAP", library())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{errors}", output.status);
    assert_eq!(errors, "");
}

/// A control group of this test, which is removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a group with a limit of memory, in version 1 or 2.
    fn create(limit: u64) -> Result<Self, String> {
        let name = format!("selvedge-heap-{}", std::process::id());
        let hierarchies = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let mut reason = String::from("no control groups of memory are mounted");
        for (mount, file) in hierarchies {
            let group = Self(Path::new(mount).join(&name));
            let created = std::fs::create_dir(&group.0)
                .and_then(|()| std::fs::write(group.0.join(file), limit.to_string()));
            match created {
                Ok(()) => return Ok(group),
                Err(error) => reason = format!("a control group cannot be created: {error}"),
            }
        }
        Err(reason)
    }

    /// A command that enters the group and runs a program with `$HEAP` preloaded.
    fn command(&self, program: &Path) -> Command {
        let script = r#"echo $$ > "$0/cgroup.procs" && LD_PRELOAD="$HEAP" exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.0).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended; a failure leaves an empty group.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn allocations_beyond_the_limit_go_to_the_next_allocator() {
    assert_eq!(run("limit", &[("FI_HEAP_LIMIT", "8m")]), "");
}

#[test]
fn the_bounds_of_the_heap_s_allocations_are_parameters() {
    let bounds = [("FI_HEAP_THRESHOLD", "1m"), ("FI_HEAP_LARGEST", "2m")];
    assert_eq!(run("bounds", &bounds), "");
}

#[test]
fn a_wrong_parameter_is_reported_and_the_default_used() {
    let errors = run("pages", &[("FI_HEAP_THRESHOLD", "banana")]);
    if !errors.is_empty() {
        assert_eq!(
            errors,
            "selvedge heap: FI_HEAP_THRESHOLD=banana: expected a size from 4096 to 1073741824, \
             such as 65536, 64k or 1m; the heap uses 65536\n"
        );
    }
}

#[test]
fn a_program_may_close_the_heap_s_descriptors() {
    assert_eq!(run("descriptors", &[]), "");
}

#[test]
fn peers_can_neither_resize_nor_write_the_files() {
    assert_eq!(run("pages", &[]), "");
}

/// A program in Python: large objects that grow, shrink and are copied, threads, subprocesses, and
/// processes that are forked while the threads run.
const PYTHON: &str = r#"
import multiprocessing, os, subprocess, sys, threading, zlib
data = bytearray(b"ab" * 5_000_000)
data += bytes(3_000_000)
assert zlib.crc32(data) == zlib.crc32(bytes(data))
text = "x" * 10_000_000
assert text.upper() == "X" * 10_000_000 and text.encode().decode() == text
numbers = list(range(2_000_000))
assert sorted(numbers, reverse=True)[0] == 1_999_999
stop = threading.Event()
def churn():
    while not stop.is_set():
        block = bytearray(os.urandom(64) * 5000)
        assert block[:64] * 5000 == block
threads = [threading.Thread(target=churn) for _ in range(2)]
[thread.start() for thread in threads]
for _ in range(5):
    assert subprocess.check_output([sys.executable, "-c", "print(len(bytes(10**7)))"]) == b"10000000\n"
    pid = os.fork()
    if pid == 0:
        ok = data[:2] == b"ab" and data[-1] == 0
        data[:] = b"c" * len(data)
        os._exit(not ok)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert data[:2] == b"ab" and data[9_999_999:10_000_001] == b"b\0"
stop.set()
[thread.join() for thread in threads]
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(len, [data[:n] for n in (100_000, 200_000, 300_000)]) == [100_000, 200_000, 300_000]
print("done")
"#;

#[test]
fn a_program_in_python_runs_on_the_heap() {
    let mut command = Command::new("python3");
    let command = command.args(["-W", "ignore", "-c", PYTHON]);
    let Ok(output) = command.env("LD_PRELOAD", library()).output() else {
        return skip(Need::System, "there is no python3");
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done\n",
        "{errors}"
    );
    assert_eq!(errors, "");
}
