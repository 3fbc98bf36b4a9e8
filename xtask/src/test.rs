//! `cargo xtask test`: runs the tests and summarises the skipped ones.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::environment::cargo;

/// The variable with the path of the record of skips (`selvedge_testkit::skip::RECORD`).
const RECORD: &str = "SELVEDGE_SKIPS";
/// The variable that enables the long form of tests (`selvedge_testkit::long::LONG`).
const LONG: &str = "SELVEDGE_TEST_LONG";

/// Runs `cargo test` for the workspace with these arguments. Returns the skipped tests. A first
/// argument `--long` enables the long form of tests.
pub(crate) fn test(arguments: &[OsString]) -> anyhow::Result<String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let record = std::path::absolute(target.join("skips.txt"))?;
    match fs::remove_file(&record) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", record.display())
        }
        _ => {}
    }
    let mut cargo = cargo();
    let (is_long, arguments) = split_long(arguments);
    if is_long {
        cargo.env(LONG, "1");
    }
    cargo
        .args(["test", "--workspace", "--all-features"])
        .args(arguments);
    let status = cargo.env(RECORD, &record).status();
    let status = status.context("cannot run cargo")?;
    let summary = summary(&fs::read_to_string(&record).unwrap_or_default());
    if !status.success() {
        bail!("tests failed\n{summary}");
    }
    Ok(summary)
}

/// Returns whether the arguments begin with `--long`, and the remaining arguments.
fn split_long(arguments: &[OsString]) -> (bool, &[OsString]) {
    match arguments.split_first() {
        Some((first, rest)) if first == "--long" => (true, rest),
        _ => (false, arguments),
    }
}

/// Returns the distinct lines of the record.
fn summary(record: &str) -> String {
    let lines: BTreeSet<_> = record.lines().collect();
    match lines.len() {
        0 => "\nNo tests skipped.\n".to_owned(),
        count => {
            let lines: Vec<_> = lines.into_iter().collect();
            format!("\n{count} skips:\n{}\n", lines.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{split_long, summary};

    #[test]
    fn a_first_argument_long_enables_the_long_form() {
        let [long, other] = ["--long", "--lib"].map(Into::into);
        assert_eq!(split_long(&[long, other]), (true, &["--lib".into()][..]));
        assert_eq!(
            split_long(&["--lib".into()]),
            (false, &["--lib".into()][..])
        );
        assert_eq!(split_long(&[]), (false, &[][..]));
    }

    #[test]
    fn each_skip_counts_once() {
        let twice =
            "skipped: b needs mpi: none\nskipped: a needs cc: none\nskipped: b needs mpi: none\n";
        let expected = "\n2 skips:\nskipped: a needs cc: none\nskipped: b needs mpi: none\n";
        assert_eq!(summary(twice), expected);
        assert_eq!(summary(""), "\nNo tests skipped.\n");
    }
}
