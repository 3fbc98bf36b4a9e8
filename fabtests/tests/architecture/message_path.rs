//! The files that docs/ARCHITECTURE.md follows an eight-byte message through.

use std::fs;

use crate::{code_words, root};

/// The most files of one side.
const LIMIT: usize = 8;

#[test]
fn a_message_is_followed_through_eight_files_a_side_that_have_what_they_are_said_to_have() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let (_, section) = page.split_once("\n## One small message\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut sides = Vec::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| ")) {
        let (step, what) = row.split_once('|').unwrap();
        if step.starts_with("1. ") {
            sides.push(0);
        }
        if step.starts_with(|first: char| first.is_ascii_digit()) {
            *sides.last_mut().unwrap() += 1;
            check(step, what);
        }
    }
    assert_eq!(sides.len(), 2, "a sender and a receiver");
    assert!(sides.iter().all(|files| *files <= LIMIT), "{sides:?}");
}

/// Panics unless the file of a step has every name that stands beside it.
fn check(step: &str, what: &str) {
    let file = code_words(step).pop_first().unwrap();
    let file = match file.starts_with("src/") {
        true => file,
        false => format!("providers/{file}"),
    };
    let text = fs::read_to_string(root().join(&file));
    let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
    for name in code_words(what) {
        let item = name.rsplit("::").next().unwrap();
        assert!(text.contains(item), "{file} has no {name}");
    }
}
