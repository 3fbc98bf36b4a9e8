//! The files through which an eight-byte message passes, as docs/ARCHITECTURE.md lists them.

use std::fs;

use crate::{code_words, root};

/// The maximum number of files of the sender or the receiver.
const LIMIT: usize = 8;

#[test]
fn a_message_passes_at_most_eight_files_on_each_side() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let (_, section) = page.split_once("\n## One small message\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut sides = Vec::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| ")) {
        let (step, names) = row.split_once('|').unwrap();
        if step.starts_with("1. ") {
            sides.push(0);
        }
        if step.starts_with(|first: char| first.is_ascii_digit()) {
            *sides.last_mut().unwrap() += 1;
            check_step(step, names);
        }
    }
    assert_eq!(sides.len(), 2, "a sender and a receiver");
    assert!(sides.iter().all(|files| *files <= LIMIT), "{sides:?}");
}

/// Panics unless the file of a step contains every name of its row.
fn check_step(step: &str, names: &str) {
    let file = code_words(step).pop_first().unwrap();
    let file = if file.starts_with("src/") {
        file
    } else {
        format!("providers/{file}")
    };
    let text = fs::read_to_string(root().join(&file));
    let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
    for name in code_words(names) {
        let item = name.rsplit("::").next().unwrap();
        assert!(text.contains(item), "{file} has no {name}");
    }
}
