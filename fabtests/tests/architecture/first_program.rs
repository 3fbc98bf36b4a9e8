//! The first program, which is shown in three places and compiled in one of them.

use std::fs;

use crate::root;

#[test]
fn the_first_program_is_the_same_wherever_it_is_shown() {
    let example = read("examples/hello.rs");
    let (_, program) = example.split_once("\n\n").unwrap();
    for page in [read("README.md"), module_docs(&read("src/lib.rs"))] {
        assert!(page.contains(program), "{page}");
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The text of a file's module documentation.
fn module_docs(source: &str) -> String {
    let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
