//! `cargo xtask size`: lines of code of each part of the workspace, with its budget and its
//! ceiling.
//!
//! A *budget* is the planned size of the part. A *ceiling* is the current limit: the command fails
//! if a part exceeds it, so growth requires a decision. A ceiling above the budget has a reason.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

/// A part of the workspace and its limits in lines of product code.
struct Part {
    name: &'static str,
    /// The directories of the part; all remaining files if empty.
    dirs: &'static [&'static str],
    budget: Option<usize>,
    /// The limit. Raise it with the change that needs it; lower it after removing code.
    ceiling: usize,
    /// The reason for a ceiling above the budget, in one sentence; otherwise empty.
    reason: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        name: "fabtests",
        dirs: &["fabtests"],
        budget: Some(25_000),
        ceiling: 38_250,
        reason: "Upstream's 58 programs (11,200 lines) keep their own options and outputs and are not \
                 front ends of the suite; the benchmarks (9,450, with contestants over six other \
                 libraries) share no code with the test kit, \
                 which would delay their first build; the campaign over the service layer has 585, \
                 the examination of MPI launchers with the start of jobs over Selvedge (2,000) reads \
                 the output of four launchers and three libraries, and the doctor reports NUMA nodes (90).",
    },
    Part {
        name: "testkit",
        dirs: &["testkit"],
        budget: None,
        ceiling: 4_450,
        reason: "",
    },
    Part {
        name: "shm",
        dirs: &["providers/shm"],
        budget: Some(9_500),
        ceiling: 16_120,
        reason: "Restarted peers, proofs of keys, collective channels, mapped memory, lent messages \
                 (550 lines), the shared heap, the classes of large messages (170), NUMA \
                 nodes (100), the credentials of peers and telemetry remain; libfabric's shm, the basis of the \
                 budget, has none of them.",
    },
    Part {
        name: "kit",
        dirs: &["providers/kit"],
        budget: Some(11_500),
        ceiling: 16_430,
        reason: "Collectives (3,350 lines), telemetry (1,750), the forwarding layer (800), the \
                 key table (530), the yields and brief parks of polling threads (180) and the receives of lent \
                 messages (40), NUMA nodes (250) and network devices (50) are shared by all providers.",
    },
    Part {
        name: "tcp",
        dirs: &["providers/tcp"],
        budget: Some(6_000),
        ceiling: 7_965,
        reason: "TLS with the credentials of peers, proofs of keys, passive endpoints and the protocol of stock libfabric each \
                 require their own connection states.",
    },
    Part {
        name: "hook, lnx, ofi, udp",
        dirs: &[
            "providers/hook",
            "providers/lnx",
            "providers/ofi",
            "providers/udp",
        ],
        budget: Some(7_500),
        ceiling: 10_450,
        reason: "ofi has a file for each object class of the other library, and hook one for each \
                 hook and its endpoint state; lnx selects its links and probes peers over another \
                 library (650 lines).",
    },
    Part {
        name: "C interface, abi",
        dirs: &[
            "util/capi/fabric",
            "util/capi/libfabric",
            "util/capi/provider",
            "abi",
        ],
        budget: Some(7_500),
        ceiling: 7_600,
        reason: "Reads of completion queues learn whether a second poll pays (70 lines), network interfaces \
                 are read from C (40), and registrations name devices (40).",
    },
    Part {
        name: "service",
        dirs: &["util/service"],
        budget: None,
        ceiling: 6_345,
        reason: "",
    },
    Part {
        name: "everything else",
        dirs: &[],
        budget: None,
        ceiling: 28_420,
        reason: "",
    },
];

/// The whole workspace.
const ALL: Part = Part {
    name: "all",
    dirs: &[],
    budget: Some(85_000),
    ceiling: sum_of_ceilings(),
    reason: "The sum of the ceilings of the parts; descriptive names are longer than the first \
             names, and rustfmt breaks more lines.",
};

const fn sum_of_ceilings() -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < PARTS.len() {
        sum += PARTS[index].ceiling;
        index += 1;
    }
    sum
}

/// Numbers of lines, without blank lines and comments.
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

/// Counts the lines of the files in git.
///
/// # Errors
/// Returns an error if git fails, a file cannot be read, or a part exceeds its ceiling.
pub(crate) fn size() -> anyhow::Result<String> {
    let listed = Command::new("git")
        .args(["ls-files", "*.rs"])
        .output()
        .context("cannot run git")?;
    ensure!(listed.status.success(), "git ls-files failed");
    let listed = String::from_utf8(listed.stdout)?;
    let mut files = BTreeMap::new();
    for path in listed.lines() {
        let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
        files.insert(path, count(path, &text));
    }
    let rows = rows(&files);
    let table = table(&rows);
    let exceeded = exceeded_ceilings(&rows);
    ensure!(exceeded.is_empty(), "{table}\n{exceeded}");
    Ok(table)
}

/// Counts the lines of a file. Tests are at its end, or the file is a test file.
fn count(path: &str, text: &str) -> Lines {
    let is_test = ["/tests/", "/examples/"]
        .iter()
        .any(|dir| path.contains(dir))
        || ["tests/", "examples/"]
            .iter()
            .any(|dir| path.starts_with(dir))
        || ["/tests.rs", "/fuzz.rs"]
            .iter()
            .any(|name| path.ends_with(name));
    let tests = [
        "\n#[cfg(test)]\nmod ",
        "\n#[cfg(all(test, not(loom)))]\nmod ",
    ];
    // A declaration of a module in another file ends no product code.
    let has_body = |at: usize| {
        text[at..]
            .lines()
            .nth(2)
            .is_some_and(|it| it.ends_with('{'))
    };
    let mut starts = tests.iter().flat_map(|tests| text.match_indices(tests));
    let (product, test) = match starts.find(|&(at, _)| has_body(at)) {
        _ if is_test => ("", text),
        Some((at, _)) => text.split_at(at),
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

/// Returns the line counts of each part and of the workspace.
fn rows(files: &BTreeMap<&str, Lines>) -> Vec<(&'static Part, Lines)> {
    let parts = PARTS.iter().map(|part| {
        let mut total = Lines::default();
        for (_, lines) in files.iter().filter(|(path, _)| is_in(part, path)) {
            total.add(*lines);
        }
        (part, total)
    });
    let mut rows: Vec<_> = parts.collect();
    let mut all = Lines::default();
    for (_, lines) in &rows {
        all.add(*lines);
    }
    rows.push((&ALL, all));
    rows
}

/// Returns whether a file belongs to a part. The part without directories has the remaining files.
fn is_in(part: &Part, path: &str) -> bool {
    let is_below = |part: &Part| {
        let mut dirs = part.dirs.iter();
        dirs.any(|dir| {
            path.strip_prefix(dir)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    match part.dirs {
        [] => !PARTS.iter().any(is_below),
        _ => is_below(part),
    }
}

/// Formats the table, followed by the reasons for ceilings above a budget.
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
        .expect("writing to a string succeeds");
    }
    out.push_str("\nReasons for ceilings above budgets:\n");
    for (part, _) in rows.iter().filter(|(part, _)| !part.reason.is_empty()) {
        writeln!(out, "{}: {}", part.name, part.reason).expect("writing to a string succeeds");
    }
    out
}

/// Returns one sentence for each part that exceeds its ceiling.
fn exceeded_ceilings(rows: &[(&'static Part, Lines)]) -> String {
    let exceeding = rows
        .iter()
        .filter(|(part, lines)| lines.product > part.ceiling);
    let sentences = exceeding.map(|(part, lines)| {
        format!(
            "{} has {} lines of product code, above its ceiling of {}: remove code, or raise the \
             ceiling in xtask/src/size.rs with a reason",
            part.name, lines.product, part.ceiling
        )
    });
    sentences.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_are_not_product_code() {
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
        let declared = format!("fn one() {{}}\n#[cfg(test)]\nmod tests;\n{}", &text[13..]);
        assert_eq!(
            count("src/one.rs", &declared),
            Lines {
                product: 4,
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
    fn a_directory_counts_for_one_part() {
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
        assert_eq!(row("C interface, abi"), (0, 0));
        assert_eq!(row("everything else"), (7, 3));
        assert_eq!(row("all"), (14, 6));
    }

    #[test]
    fn a_part_above_its_ceiling_is_reported() {
        let lines = |product| Lines { product, test: 0 };
        let shm = PARTS.iter().find(|part| part.name == "shm").unwrap();
        assert_eq!(exceeded_ceilings(&[(shm, lines(shm.ceiling))]), "");
        let sentence = exceeded_ceilings(&[(shm, lines(shm.ceiling + 1))]);
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
