//! `cargo xtask miri` and `cargo xtask tsan`: tests under Miri and the thread sanitizer, which
//! require the nightly toolchain.
//!
//! Both find data races; Miri also finds undefined behaviour. Neither supports all system calls, so
//! this file lists the tests that run.

use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::environment::host_triple;

/// A set of tests of a package.
struct TestSet {
    package: &'static str,
    /// The target, as arguments of `cargo test`.
    target: &'static [&'static str],
    /// Filters of test names; all tests if empty.
    tests: &'static [&'static str],
    /// Filters of tests to skip.
    skipped: &'static [&'static str],
    /// Whether `--short` includes these tests.
    is_short: bool,
}

/// Tests without system calls that Miri does not support, and without hours of run time.
const MIRI: &[TestSet] = &[
    TestSet {
        package: "selvedge",
        target: &["--lib"],
        tests: &["shared::"],
        skipped: &[],
        is_short: true,
    },
    TestSet {
        package: "selvedge",
        target: &["--lib"],
        tests: &["owned::"],
        skipped: &[],
        is_short: false,
    },
    TestSet {
        package: "selvedge-kit",
        target: &["--test", "shared_regions"],
        tests: &[],
        skipped: &[],
        is_short: true,
    },
    TestSet {
        package: "selvedge-kit",
        target: &["--lib"],
        tests: &[
            "copy::",
            "cq::ring::",
            "cq::sink::",
            "cq::slot::",
            "cq::store::",
            "lock::",
            "segments::",
            "srx::quota::",
            "srx::index::",
            "srx::matcher::",
            "srx::queue::",
        ],
        skipped: &[
            // Leaks a value on purpose.
            "the_value_of_a_taken_lock_is_not_dropped",
            // Use epoll(7).
            "wait",
            "sleep",
            // Take hours.
            "behaves_as_the_lists_do",
            "ten_thousand",
        ],
        is_short: false,
    },
    TestSet {
        package: "selvedge",
        target: &["--test", "owned"],
        tests: &["shared_regions::", "pools::", "polled::", "atomics::"],
        // Four busy threads take an hour.
        skipped: &["threads_share_an_endpoint"],
        is_short: false,
    },
];

/// Tests of code that several threads share.
const TSAN: &[TestSet] = &[
    TestSet {
        package: "selvedge",
        target: &["--lib"],
        tests: &["owned::"],
        skipped: &[],
        is_short: true,
    },
    TestSet {
        package: "selvedge-kit",
        target: &["--test", "shared_regions"],
        tests: &[],
        skipped: &[],
        is_short: true,
    },
    TestSet {
        package: "selvedge-kit",
        target: &["--lib"],
        tests: &[
            "copy::",
            "cq::",
            "progress_list::",
            "lock::",
            "mr::",
            "segments::",
            "srx::",
            "wait::",
        ],
        skipped: &[],
        is_short: true,
    },
    TestSet {
        package: "selvedge-kit",
        target: &["--test", "atomics"],
        tests: &["threads::"],
        skipped: &["both_parts_of_a_complex_number"],
        is_short: false,
    },
];

/// Runs the tests under Miri, or a subset if `is_short`.
///
/// # Errors
/// Returns an error if the toolchain cannot be installed or a test fails.
pub(crate) fn miri(is_short: bool) -> anyhow::Result<String> {
    install(&["miri", "rust-src"])?;
    for set in select(MIRI, is_short) {
        let mut command = cargo();
        command
            .args(["miri", "test"])
            .env("CARGO_TARGET_DIR", "target/miri")
            // Tests read the clock, and memory registration exposes addresses.
            .env(
                "MIRIFLAGS",
                "-Zmiri-disable-isolation -Zmiri-permissive-provenance",
            );
        run(command, set)?;
    }
    Ok("No undefined behaviour.\n".to_owned())
}

/// Runs the tests under the thread sanitizer, or a subset if `is_short`.
///
/// # Errors
/// See [`miri`].
pub(crate) fn tsan(is_short: bool) -> anyhow::Result<String> {
    install(&["rust-src"])?;
    for set in select(TSAN, is_short) {
        let mut command = cargo();
        command
            .args(["test", "-Zbuild-std", "--target", &host_triple()?])
            .env("CARGO_TARGET_DIR", "target/tsan")
            .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
            .env("TSAN_OPTIONS", "halt_on_error=1");
        run(command, set)?;
    }
    Ok("No data races.\n".to_owned())
}

fn select(sets: &'static [TestSet], is_short: bool) -> impl Iterator<Item = &'static TestSet> {
    sets.iter().filter(move |set| set.is_short || !is_short)
}

/// Returns a command of the nightly toolchain's cargo.
fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly");
    // These variables would select this task's own toolchain.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

fn run(mut command: Command, set: &TestSet) -> anyhow::Result<()> {
    command.args(["--package", set.package]).args(set.target);
    command.arg("--").args(set.tests);
    for test in set.skipped {
        command.args(["--skip", test]);
    }
    let status = command.status().context("cargo")?;
    let target = set.target.join(" ");
    ensure!(status.success(), "tests of {} {target} failed", set.package);
    Ok(())
}

/// Installs the nightly toolchain and missing components with rustup.
fn install(components: &[&str]) -> anyhow::Result<()> {
    let listed = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .stderr(Stdio::null())
        .output()
        .context(
            "cannot run rustup, which installs the nightly toolchain; see https://rustup.rs",
        )?;
    let installed = String::from_utf8(listed.stdout)?;
    let is_missing = |component: &&&str| {
        let mut lines = installed.lines();
        !lines.any(|line| line == **component || line.starts_with(&format!("{component}-")))
    };
    let missing: Vec<_> = components.iter().filter(is_missing).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("rustup");
    command.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    for component in &missing {
        command.args(["--component", component]);
    }
    let status = command.status().context("rustup")?;
    if !status.success() {
        bail!(
            "the nightly toolchain lacks {}, and rustup cannot install it; with network access, \
             run `rustup toolchain install nightly --component {}`",
            missing.join(" and "),
            missing.join(",")
        );
    }
    Ok(())
}
