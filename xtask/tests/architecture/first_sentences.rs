//! Every source file begins with a sentence of documentation.

use crate::sources;

#[test]
fn every_file_begins_with_a_sentence_of_documentation() {
    let files = sources::shipped_files().into_iter();
    let undocumented = files.filter(|(_, text)| !begins_with_a_sentence(text));
    let undocumented: Vec<_> = undocumented.map(|(path, _)| path).collect();
    assert!(
        undocumented.is_empty(),
        "no first sentence in {undocumented:#?}"
    );
}

/// Whether the first paragraph of a file's documentation contains a sentence.
fn begins_with_a_sentence(text: &str) -> bool {
    let paragraph = text.lines().map_while(|line| line.strip_prefix("//! "));
    let paragraph = paragraph.collect::<Vec<_>>().join(" ");
    let words = paragraph.split_whitespace().count();
    words > 1 && paragraph.contains(['.', ':'])
}

#[test]
fn a_sentence_has_words_and_a_full_stop() {
    assert!(begins_with_a_sentence(
        "//! Words of\n//! a file.\n\nuse std::fs;\n"
    ));
    assert!(!begins_with_a_sentence("//! Words of a file\n"));
    assert!(!begins_with_a_sentence("//! Words.\n"));
    assert!(!begins_with_a_sentence("use std::fs; // a file.\n"));
}
