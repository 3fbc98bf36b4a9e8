//! `cargo xtask size`: lines of code of each part of the workspace, beside its budget and its ceiling.
//!
//! A *budget* is what the part is planned to have. A *ceiling* is what it may have today: a part that
//! outgrows its ceiling fails the command, so that growth is decided and not noticed afterwards. A
//! ceiling above the budget has a reason.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

/// A part of the workspace, in lines of product code.
struct Part {
    name: &'static str,
    /// The folders that it is made of.
    folders: &'static [&'static str],
    budget: Option<usize>,
    /// The most lines that pass. Raise it with the change that needs it, lower it after one that
    /// removes code.
    ceiling: usize,
    /// Why the ceiling is above the budget, in one sentence; empty where it is not.
    reason: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        name: "fabtests",
        folders: &["fabtests"],
        budget: Some(25_000),
        ceiling: 31_800,
        reason: "Upstream's 58 programs (11,200 lines) keep their own options and outputs and are no \
                 front ends of the suite; the benchmarks (7,500) share no code with the test kit, \
                 which their first build would wait for.",
    },
    Part {
        name: "testkit",
        folders: &["testkit"],
        budget: None,
        ceiling: 4_300,
        reason: "",
    },
    Part {
        name: "shm",
        folders: &["providers/shm"],
        budget: Some(9_500),
        ceiling: 14_800,
        reason: "Restarted peers, proofs of keys, lanes of collectives, mapped memory and telemetry \
                 are kept, and libfabric's shm, by which the budget was measured, has none of them.",
    },
    Part {
        name: "kit",
        folders: &["providers/kit"],
        budget: Some(11_500),
        ceiling: 15_100,
        reason: "Collectives (3,100 lines), telemetry (1,600) and the forwarding layer (700) \
                 stand here once, for all providers.",
    },
    Part {
        name: "tcp",
        folders: &["providers/tcp"],
        budget: Some(6_000),
        ceiling: 7_600,
        reason: "TLS, proofs of keys, passive endpoints and the dialect of stock libfabric each \
                 need their own states of a connection.",
    },
    Part {
        name: "hook, lnx, ofi, udp",
        folders: &[
            "providers/hook",
            "providers/lnx",
            "providers/ofi",
            "providers/udp",
        ],
        budget: Some(7_500),
        ceiling: 9_600,
        reason: "ofi has a file for each class of objects of the other library, and hook one for \
                 each hook and what it keeps of an endpoint.",
    },
    Part {
        name: "C face, abi",
        folders: &["util/capi/fabric", "abi"],
        budget: Some(7_500),
        ceiling: 7_500,
        reason: "",
    },
    Part {
        name: "everything else",
        folders: &[],
        budget: None,
        ceiling: 23_700,
        reason: "",
    },
];

/// The whole workspace.
const ALL: Part = Part {
    name: "all",
    folders: &[],
    budget: Some(85_000),
    ceiling: 113_200,
    reason: "It is the sum of the parts.",
};

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
/// When git or a file cannot be read, or when a part has outgrown its ceiling.
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
    let rows = rows(&files);
    let table = table(&rows);
    let grown = outgrown(&rows);
    ensure!(grown.is_empty(), "{table}\n{grown}");
    Ok(table)
}

/// Counts one file. Tests stand at its end, or it is one of tests.
fn count(path: &str, text: &str) -> Lines {
    let is_test = ["/tests/", "/examples/"].iter().any(|at| path.contains(at))
        || ["tests/", "examples/"]
            .iter()
            .any(|at| path.starts_with(at))
        || ["/tests.rs", "/fuzz.rs"]
            .iter()
            .any(|at| path.ends_with(at));
    let tests = [
        "\n#[cfg(test)]\nmod ",
        "\n#[cfg(all(test, not(loom)))]\nmod ",
    ];
    let (product, test) = match tests.iter().find_map(|tests| text.find(tests)) {
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

/// What each part has, and what the whole has.
fn rows(files: &BTreeMap<&str, Lines>) -> Vec<(&'static Part, Lines)> {
    let parts = PARTS.iter().map(|part| {
        let mut sum = Lines::default();
        for (_, lines) in files.iter().filter(|(path, _)| is_in(part, path)) {
            sum.add(*lines);
        }
        (part, sum)
    });
    let mut rows: Vec<_> = parts.collect();
    let mut all = Lines::default();
    for (_, lines) in &rows {
        all.add(*lines);
    }
    rows.push((&ALL, all));
    rows
}

/// Whether a file belongs to a part. The part without folders has every file that no other has.
fn is_in(part: &Part, path: &str) -> bool {
    let is_below = |part: &Part| {
        let mut folders = part.folders.iter();
        folders.any(|at| {
            path.strip_prefix(at)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    match part.folders {
        [] => !PARTS.iter().any(is_below),
        _ => is_below(part),
    }
}

/// One line for each part and for the whole, then the reasons of ceilings above a budget.
fn table(rows: &[(&'static Part, Lines)]) -> String {
    let mut out = format!(
        "{:<22}{:>9}{:>9}{:>9}{:>9}\n",
        "part", "product", "test", "budget", "ceiling"
    );
    for (part, Lines { product, test }) in rows {
        let budget = part
            .budget
            .map_or_else(String::new, |lines| lines.to_string());
        let (name, ceiling) = (part.name, part.ceiling);
        writeln!(
            out,
            "{name:<22}{product:>9}{test:>9}{budget:>9}{ceiling:>9}"
        )
        .expect("a string takes all");
    }
    out.push_str("\nWhy ceilings are above budgets:\n");
    for (part, _) in rows.iter().filter(|(part, _)| !part.reason.is_empty()) {
        writeln!(out, "{}: {}", part.name, part.reason).expect("a string takes all");
    }
    out
}

/// One sentence for each part that has outgrown its ceiling.
fn outgrown(rows: &[(&'static Part, Lines)]) -> String {
    let grown = rows
        .iter()
        .filter(|(part, lines)| lines.product > part.ceiling);
    let sentences = grown.map(|(part, lines)| {
        format!(
            "{} has {} lines of product code and may have {}: remove code, or raise the ceiling in \
             xtask/src/size.rs and say why",
            part.name, lines.product, part.ceiling
        )
    });
    sentences.collect::<Vec<_>>().join("\n")
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
        let unmodelled = text.replace("cfg(test)", "cfg(all(test, not(loom)))");
        assert_eq!(count("src/one.rs", &unmodelled), product);
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
        let rows = rows(&files);
        let row = |name: &str| {
            let mut rows = rows.iter();
            let (_, lines) = rows.find(|(part, _)| part.name == name).unwrap();
            (lines.product, lines.test)
        };
        assert_eq!(row("shm"), (7, 3));
        assert_eq!(row("C face, abi"), (0, 0));
        assert_eq!(row("everything else"), (7, 3));
        assert_eq!(row("all"), (14, 6));
    }

    #[test]
    fn a_part_that_outgrows_its_ceiling_is_named() {
        let lines = |product| Lines { product, test: 0 };
        let shm = PARTS.iter().find(|part| part.name == "shm").unwrap();
        assert_eq!(outgrown(&[(shm, lines(shm.ceiling))]), "");
        let sentence = outgrown(&[(shm, lines(shm.ceiling + 1))]);
        assert!(sentence.starts_with("shm has"), "{sentence}");
    }

    #[test]
    fn a_ceiling_above_its_budget_has_a_reason_of_one_sentence() {
        for part in PARTS.iter().chain([&ALL]) {
            let is_above = part.budget.is_some_and(|budget| part.ceiling > budget);
            let sentences = part.reason.matches('.').count();
            assert_eq!(sentences, usize::from(is_above), "{}", part.name);
        }
    }
}
