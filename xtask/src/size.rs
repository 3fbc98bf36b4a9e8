//! `cargo xtask size`: lines of code of each part of the workspace, beside what it is planned to have.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

/// Parts with a plan: their name, the folders they are made of, and the most lines of product code.
const PLANNED: &[(&str, &[&str], usize)] = &[
    ("fabtests", &["fabtests"], 25_000),
    ("shm", &["providers/shm"], 9_500),
    ("kit", &["providers/kit"], 11_500),
    ("tcp", &["providers/tcp"], 6_000),
    (
        "hook, lnx, ofi, udp",
        &[
            "providers/hook",
            "providers/lnx",
            "providers/ofi",
            "providers/udp",
        ],
        7_500,
    ),
    ("C face, abi", &["util/capi/fabric", "abi"], 7_500),
];
/// The most lines of product code of the whole workspace.
const WHOLE: usize = 85_000;

/// Lines without blank ones and comments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    product: usize,
    test: usize,
}

impl Lines {
    fn add(&mut self, other: Self) {
        self.product += other.product;
        self.test += other.test;
    }
}

/// Counts the files that git knows.
///
/// # Errors
/// When git or a file cannot be read.
pub(crate) fn size() -> anyhow::Result<String> {
    let listed = Command::new("git")
        .args(["ls-files", "*.rs"])
        .output()
        .context("cannot run git")?;
    ensure!(listed.status.success(), "git ls-files has failed");
    let listed = String::from_utf8(listed.stdout)?;
    let mut files = BTreeMap::new();
    for path in listed.lines() {
        let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
        files.insert(path, count(path, &text));
    }
    Ok(table(&files))
}

/// Counts one file. Tests stand at its end, or it is one of tests.
fn count(path: &str, text: &str) -> Lines {
    let is_test = path.starts_with("testkit/")
        || ["/tests/", "/examples/"].iter().any(|at| path.contains(at))
        || ["tests/", "examples/"]
            .iter()
            .any(|at| path.starts_with(at))
        || ["/tests.rs", "/fuzz.rs"]
            .iter()
            .any(|at| path.ends_with(at));
    let (product, test) = match text.find("\n#[cfg(test)]\nmod ") {
        _ if is_test => ("", text),
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    Lines {
        product: code(product),
        test: code(test),
    }
}

fn code(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

/// One row for each part, one for everything else, and one for the whole.
fn table(files: &BTreeMap<&str, Lines>) -> String {
    let sum = |is_in: &dyn Fn(&str) -> bool| {
        let mut sum = Lines::default();
        for (_, lines) in files.iter().filter(|(path, _)| is_in(path)) {
            sum.add(*lines);
        }
        sum
    };
    let is_below = |path: &str, folders: &[&str]| {
        let mut folders = folders.iter();
        folders.any(|at| {
            path.strip_prefix(at)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let mut out = format!(
        "{:<22}{:>9}{:>9}{:>9}\n",
        "part", "product", "test", "planned"
    );
    let mut row = |name: &str, lines: Lines, planned: &str| {
        let Lines { product, test } = lines;
        writeln!(out, "{name:<22}{product:>9}{test:>9}{planned:>9}").expect("a string takes all");
    };
    for (name, folders, most) in PLANNED {
        row(
            name,
            sum(&|path| is_below(path, folders)),
            &most.to_string(),
        );
    }
    let is_planned = |path: &str| {
        let mut planned = PLANNED.iter();
        planned.any(|(_, folders, _)| is_below(path, folders))
    };
    row("everything else", sum(&|path| !is_planned(path)), "");
    row("all", sum(&|_| true), &WHOLE.to_string());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_comments_are_no_code_and_tests_are_told_apart() {
        let text = "//! Text.\n\nfn one() {}\n    // Why.\n\n#[cfg(test)]\nmod tests {\n}\n";
        let product = count("providers/shm/src/lib.rs", text);
        assert_eq!(
            product,
            Lines {
                product: 1,
                test: 3
            }
        );
        let test = count("providers/shm/tests/one.rs", text);
        assert_eq!(
            test,
            Lines {
                product: 0,
                test: 4
            }
        );
    }

    #[test]
    fn a_folder_counts_for_its_part_alone() {
        let lines = Lines {
            product: 7,
            test: 3,
        };
        let files = BTreeMap::from([("providers/shm/src/lib.rs", lines), ("abi2/lib.rs", lines)]);
        let table = table(&files);
        let row = |name: &str| {
            let row = table.lines().find(|row| row.starts_with(name)).unwrap();
            row.split_whitespace().rev().take(3).collect::<Vec<_>>()
        };
        assert_eq!(row("shm"), ["9500", "3", "7"]);
        assert_eq!(row("C face, abi"), ["7500", "0", "0"]);
        assert_eq!(row("all"), ["85000", "6", "14"]);
    }
}
