//! No name of an item, a variable, a field or a file contains a word that docs/GLOSSARY.md retires.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proc_macro2::{Delimiter, Ident, Spacing, TokenStream, TokenTree};

use crate::{root, sources};

/// The maximum number of terms: a reader can read all of them in a few minutes.
const MAX_TERMS: usize = 80;

const FOLDERS: [&str; 8] = [
    "src",
    "tests",
    "abi",
    "providers",
    "util",
    "fabtests",
    "testkit",
    "xtask",
];

#[test]
fn the_glossary_is_short() {
    let terms = rows("## Terms").len();
    assert!((40..=MAX_TERMS).contains(&terms), "{terms} terms");
}

#[test]
fn retired_words_occur_in_no_name() {
    let retired: BTreeSet<_> = rows("## Retired words")
        .iter()
        .flat_map(|row| words_of(&row[0]))
        .collect();
    let exceptions = exceptions();
    let mut used = BTreeSet::new();
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for (path, text) in FOLDERS.into_iter().flat_map(sources::files_below) {
        for name in names(&path, &text) {
            for word in segments(&name).filter(|word| retired.contains(word)) {
                let exception = exceptions
                    .iter()
                    .find(|(kept, folder)| *kept == word && path.starts_with(folder));
                match exception {
                    Some(exception) => _ = used.insert(exception),
                    None => _ = found.entry(path.clone()).or_default().insert(name.clone()),
                }
            }
        }
    }
    assert!(found.is_empty(), "retired words in names: {found:#?}");
    let unused: Vec<_> = exceptions
        .iter()
        .filter(|exception| !used.contains(exception))
        .collect();
    assert!(
        unused.is_empty(),
        "exceptions that no name needs: {unused:?}"
    );
}

/// The retired words that names may contain, each with the folder whose files may use it.
fn exceptions() -> BTreeSet<(String, String)> {
    let rows = rows("## Exceptions").into_iter();
    rows.flat_map(|row| {
        let folders = code_or_everywhere(&row[1]);
        let words = words_of(&row[0]).into_iter();
        words.flat_map(move |word| {
            let folders = folders.clone().into_iter();
            folders.map(move |folder| (word.clone(), folder))
        })
    })
    .collect()
}

fn code_or_everywhere(cell: &str) -> Vec<String> {
    match cell {
        "everywhere" => vec![String::new()],
        _ => words_of(cell),
    }
}

/// The words in backticks of a cell.
fn words_of(cell: &str) -> Vec<String> {
    let words = cell.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// The cells of each row of the table below a heading of the page.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("docs/GLOSSARY.md")).unwrap();
    let section = page.split_once(&format!("{heading}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| -> Vec<_> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    lines.skip(1).map(cells).collect()
}

/// The names that a file defines, and the name of the file.
fn names(path: &str, text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let file_name = path.rsplit('/').next().unwrap().trim_end_matches(".rs");
    names.insert(file_name.to_owned());
    let tokens: TokenStream = text
        .parse()
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    collect(tokens, &mut names);
    names
}

/// Adds the names that tokens define: those behind a keyword of an item or `let`, those before a
/// colon (fields and parameters), and the variants of an enumeration.
fn collect(tokens: TokenStream, names: &mut BTreeSet<String>) {
    const KEYWORDS: [&str; 11] = [
        "fn", "struct", "enum", "union", "trait", "mod", "const", "static", "type", "let", "mut",
    ];
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut enumeration = false;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(name) => {
                enumeration |= name == "enum";
                let is_item = index > 0 && is_one_of(&tokens[index - 1], &KEYWORDS);
                if is_item || is_before_colon(&tokens, index) {
                    names.insert(name.to_string());
                }
            }
            TokenTree::Group(group) => {
                if enumeration && group.delimiter() == Delimiter::Brace {
                    names.extend(variants(group.stream()).map(|name| name.to_string()));
                    enumeration = false;
                }
                collect(group.stream(), names);
            }
            _ => {}
        }
    }
}

fn is_one_of(token: &TokenTree, keywords: &[&str]) -> bool {
    matches!(token, TokenTree::Ident(name) if keywords.iter().any(|keyword| name == keyword))
}

fn is_before_colon(tokens: &[TokenTree], index: usize) -> bool {
    let is_colon = |token: Option<&TokenTree>, spacing| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':' && mark.spacing() == spacing);
    let before = index.checked_sub(1).and_then(|index| tokens.get(index));
    is_colon(tokens.get(index + 1), Spacing::Alone) && !is_colon(before, Spacing::Alone)
}

fn variants(body: TokenStream) -> impl Iterator<Item = Ident> {
    let tokens: Vec<_> = body.into_iter().collect();
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
    let variants: Vec<_> = tokens
        .split(is_comma)
        .filter_map(|variant| {
            variant.iter().find_map(|token| match token {
                TokenTree::Ident(name) => Some(name.clone()),
                _ => None,
            })
        })
        .collect();
    variants.into_iter()
}

/// Splits a name into its words, in lower case.
fn segments(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut was_lowercase = false;
    for letter in name.trim_start_matches("r#").chars() {
        if letter == '_' || (letter.is_uppercase() && was_lowercase) {
            words.push(String::new());
        }
        was_lowercase = letter.is_lowercase() || letter.is_ascii_digit();
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[test]
fn every_defined_name_is_found_and_split_into_words() {
    let text = "pub struct OldBed<T> { pub night: T } enum Nap { Short(u8), #[doc = \"x\"] Long = 3 }
        fn get_up(whom: u8) { let (mut desk, _) = (1, 2); let lane = Path::to(whom); let Some(door) = x; }";
    let names = names("src/porch.rs", text);
    let expected = [
        "porch", "OldBed", "night", "Nap", "Short", "Long", "get_up", "whom", "desk", "lane",
    ];
    for name in expected {
        assert!(names.contains(name), "{name} of {names:?}");
    }
    assert!(!names.contains("Path") && !names.contains("to"));
    assert_eq!(
        segments("OldBed2_of").collect::<Vec<_>>(),
        ["old", "bed2", "of"]
    );
    assert_eq!(segments("GET_UP").collect::<Vec<_>>(), ["get", "up"]);
}
