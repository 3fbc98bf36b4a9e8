//! Checks by tools of the nightly toolchain: Miri, which runs tests in an interpreter of Rust's memory
//! model, and the thread sanitizer, which watches compiled tests and the standard library.
//!
//! Both find accesses that race. Neither runs what talks to the system in its own way, so the parts
//! that are tested are named here.

use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::environment::host;

/// Tests of a package that run under a tool.
struct Part {
    package: &'static str,
    /// Where they are: what `cargo test` is told.
    target: &'static [&'static str],
    /// Parts of their names; all if there are none.
    tests: &'static [&'static str],
    /// Parts of names that are left out.
    left_out: &'static [&'static str],
    /// Whether the short form runs them, too.
    is_short: bool,
}

/// Parts that make no system calls which Miri does not know, and do not take it hours.
const MIRI: &[Part] = &[
    Part {
        package: "selvedge",
        target: &["--lib"],
        tests: &["shared::"],
        left_out: &[],
        is_short: true,
    },
    Part {
        package: "selvedge",
        target: &["--lib"],
        tests: &["owned::"],
        left_out: &[],
        is_short: false,
    },
    Part {
        package: "selvedge-kit",
        target: &["--test", "shared_regions"],
        tests: &[],
        left_out: &[],
        is_short: true,
    },
    Part {
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
        left_out: &[
            // A value that is forgotten, as it has to be, is a leak.
            "the_value_of_a_taken_lock_is_not_dropped",
            // They wait by epoll(7).
            "wait",
            "sleep",
            // Many random operations take hours.
            "behaves_as_the_lists_do",
            "ten_thousand",
        ],
        is_short: false,
    },
    Part {
        package: "selvedge",
        target: &["--test", "owned"],
        tests: &["windows::", "pools::", "polled::", "atomics::"],
        // Four threads that poll without rest: an hour.
        left_out: &["threads_share_an_endpoint"],
        is_short: false,
    },
];

/// Parts that several threads use at once.
const TSAN: &[Part] = &[
    Part {
        package: "selvedge",
        target: &["--lib"],
        tests: &["owned::"],
        left_out: &[],
        is_short: true,
    },
    Part {
        package: "selvedge-kit",
        target: &["--test", "shared_regions"],
        tests: &[],
        left_out: &[],
        is_short: true,
    },
    Part {
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
        left_out: &[],
        is_short: true,
    },
    Part {
        package: "selvedge-kit",
        target: &["--test", "atomics"],
        tests: &["threads::"],
        left_out: &["both_parts_of_a_complex_number"],
        is_short: false,
    },
];

/// Runs the tests under Miri; a few of them in the short form.
///
/// # Errors
/// What is missing and how it is installed, or which tests have failed.
pub(crate) fn miri(is_short: bool) -> anyhow::Result<String> {
    install(&["miri", "rust-src"])?;
    for part in chosen(MIRI, is_short) {
        let mut command = cargo();
        command
            .args(["miri", "test"])
            .env("CARGO_TARGET_DIR", "target/miri")
            // Tests ask for the time, and registration exposes addresses to keys.
            .env(
                "MIRIFLAGS",
                "-Zmiri-disable-isolation -Zmiri-permissive-provenance",
            );
        run(command, part)?;
    }
    Ok("No access to memory that the language does not allow.\n".to_owned())
}

/// Runs the tests under the thread sanitizer; a few of them in the short form.
///
/// # Errors
/// As [`miri`].
pub(crate) fn tsan(is_short: bool) -> anyhow::Result<String> {
    install(&["rust-src"])?;
    for part in chosen(TSAN, is_short) {
        let mut command = cargo();
        command
            .args(["test", "-Zbuild-std", "--target", &host()?])
            .env("CARGO_TARGET_DIR", "target/tsan")
            .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
            .env("TSAN_OPTIONS", "halt_on_error=1");
        run(command, part)?;
    }
    Ok("No two accesses of threads race.\n".to_owned())
}

fn chosen(parts: &'static [Part], is_short: bool) -> impl Iterator<Item = &'static Part> {
    parts.iter().filter(move |part| part.is_short || !is_short)
}

/// Cargo of the nightly toolchain.
fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly");
    // The toolchain that runs this task is not the one that is wanted.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

fn run(mut command: Command, part: &Part) -> anyhow::Result<()> {
    command.args(["--package", part.package]).args(part.target);
    command.arg("--").args(part.tests);
    for test in part.left_out {
        command.args(["--skip", test]);
    }
    let status = command.status().context("cargo")?;
    let target = part.target.join(" ");
    ensure!(
        status.success(),
        "tests of {} {target} have failed",
        part.package
    );
    Ok(())
}

/// Has rustup install the nightly toolchain with these components, unless they are there.
fn install(components: &[&str]) -> anyhow::Result<()> {
    let listed = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .stderr(Stdio::null())
        .output()
        .context("rustup, which installs the nightly toolchain: see https://rustup.rs")?;
    let installed = String::from_utf8(listed.stdout)?;
    let has = |component: &&&str| {
        let mut lines = installed.lines();
        !lines.any(|line| line == **component || line.starts_with(&format!("{component}-")))
    };
    let missing: Vec<_> = components.iter().filter(has).copied().collect();
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
            "the nightly toolchain lacks {}, and rustup could not install it; where there is \
             network access, run `rustup toolchain install nightly --component {}`",
            missing.join(" and "),
            missing.join(",")
        );
    }
    Ok(())
}
