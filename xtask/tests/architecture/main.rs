//! The sources follow the rules of docs/ARCHITECTURE.md and docs/DEPENDENCIES.md.

#![expect(clippy::unwrap_used, reason = "a missing page fails the test")]

mod cycles;
mod first_program;
mod first_sentences;
mod folders;
mod imports;
mod message_path;
mod other_authors;
mod packages;
mod peers_bytes;
mod references;
mod shared_memory;
mod sources;
mod test_names;
mod vocabulary;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the checkout.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("xtask is a folder of the workspace").to_owned()
}

/// Returns the rows of the table under `heading` in docs/DEPENDENCIES.md: the words in backticks of
/// the first two cells.
fn table(heading: &str) -> Vec<[BTreeSet<String>; 2]> {
    let page = fs::read_to_string(root().join("docs/DEPENDENCIES.md")).unwrap();
    let section = page.split_once(&format!("\n{heading}\n"));
    let (_, section) = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<_> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "no rows under {heading}");
    rows
}

fn cells(row: &str) -> [BTreeSet<String>; 2] {
    let mut cells = row.split('|').skip(1).map(code_words);
    [cells.next().unwrap(), cells.next().unwrap()]
}

/// The words in backticks.
fn code_words(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
