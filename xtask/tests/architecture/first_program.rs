//! The first programs, which the documentation shows and the workspace compiles as examples.

use std::fs;

use crate::root;

#[test]
fn the_first_program_is_the_same_in_all_documents() {
    let hello = program("examples/hello.rs");
    let module_docs = module_docs(&read("src/lib.rs"));
    assert!(module_docs.contains(&hello), "{module_docs}");
    let two_processes = program("examples/two_processes.rs");
    for page in [read("README.md"), read("docs/FIRST-HOUR.md")] {
        assert!(page.contains(&two_processes), "{page}");
    }
    let key_value = program("util/service/examples/key_value.rs");
    assert!(read("docs/SERVICE.md").contains(&key_value));
}

/// The text of an example without its module documentation.
fn program(path: &str) -> String {
    let example = read(path);
    let (_, program) = example.split_once("\n\n").unwrap();
    program.to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The module documentation of a file.
fn module_docs(source: &str) -> String {
    let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
