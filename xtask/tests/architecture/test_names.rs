//! The tests that documents name as evidence exist.

use std::collections::BTreeSet;
use std::fs;

use crate::{code_words, root, sources};

#[test]
fn tests_that_documents_name_exist() {
    let folders = [
        "src",
        "tests",
        "abi",
        "providers",
        "util",
        "fabtests",
        "testkit",
        "xtask",
    ];
    let sources: String = folders
        .into_iter()
        .flat_map(sources::files_below)
        .map(|(_, text)| text)
        .collect();
    let missing: Vec<_> = names_in_documents()
        .into_iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the words of the documents that have the form of a test name: a sentence with
/// underscores.
fn names_in_documents() -> BTreeSet<String> {
    let pages = fs::read_dir(root().join("docs")).unwrap();
    pages
        .map(|page| fs::read_to_string(page.unwrap().path()).unwrap())
        .flat_map(|text| code_words(&text))
        .filter(|word| is_test_name(word))
        .collect()
}

fn is_test_name(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    word.bytes().all(is_plain) && word.matches('_').count() >= 4
}
