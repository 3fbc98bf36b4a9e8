//! Checks of the book's pages: links have targets, the summary lists all chapters, commands and
//! parameters exist, and the example provider is as short as the text says.

#![expect(clippy::unwrap_used, reason = "a missing page fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Every page, by its name in `docs/`.
fn pages() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("docs")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let by_name = pages.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    by_name.collect()
}

/// The lines of a page. Lines in code blocks have the block's language.
fn lines(page: &str) -> Vec<(Option<&str>, &str)> {
    let mut block = None;
    let mut lines = Vec::new();
    for line in page.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, _) => lines.push((block, line)),
        }
    }
    lines
}

/// The targets of links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split("](").skip(1);
    parts.filter_map(|part| part.split(')').next())
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = lines(page).into_iter();
    let headings = headings.filter(|(block, line)| block.is_none() && line.starts_with('#'));
    let is_in_anchor = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
    headings
        .map(|(_, line)| line.trim_start_matches('#').trim().chars())
        .map(|heading| heading.filter(is_in_anchor).collect::<String>())
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect()
}

#[test]
fn every_link_has_an_existing_page_and_heading() {
    let pages = pages();
    let mut bad = Vec::new();
    for (name, text) in &pages {
        let prose = lines(text).into_iter().filter(|(block, _)| block.is_none());
        let links = prose.flat_map(|(_, line)| targets(line));
        for target in links.filter(|target| !target.starts_with("http")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { name } else { file };
            let exists = root().join("docs").join(file).exists();
            let has = |page: &String| anchors(page).contains(heading);
            if !exists || !heading.is_empty() && !pages.get(file).is_some_and(has) {
                bad.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_summary_names_every_page_once() {
    let pages = pages();
    let linked: Vec<&str> = pages["SUMMARY.md"].lines().flat_map(targets).collect();
    let unique: BTreeSet<&str> = linked.iter().copied().collect();
    assert_eq!(linked.len(), unique.len(), "{linked:?}");
    let all = pages.keys().map(String::as_str);
    let all: BTreeSet<&str> = all.filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(unique, all);
}

/// The word after a flag.
fn word_after<'a>(line: &'a str, flag: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == flag)?;
    words.next()
}

#[test]
fn commands_name_existing_packages_aliases_and_subcommands() {
    let (lock, aliases) = (read("Cargo.lock"), read(".cargo/config.toml"));
    let commands = read("fabtests/src/main.rs").to_lowercase();
    let builtin = [
        "build", "run", "test", "doc", "check", "clippy", "fmt", "publish",
    ];
    let is_package = |name: &str| lock.contains(&format!("name = \"{name}\"\n"));
    let is_alias = |name: &str| builtin.contains(&name) || aliases.contains(&format!("\n{name} ="));
    let is_command =
        |name: &str| name.starts_with("fi_") || commands.contains(&format!(" {name}("));
    let (mut bad, mut count) = (Vec::new(), 0);
    for (page, text) in pages() {
        let shell = lines(&text)
            .into_iter()
            .filter(|(block, _)| *block == Some("sh"));
        let cargo = shell.filter_map(|(_, line)| line.split_once("cargo "));
        for command_line in cargo.map(|(_, command_line)| command_line.split(" #").next().unwrap())
        {
            count += 1;
            let package = word_after(command_line, "-p").is_none_or(is_package);
            let alias = is_alias(command_line.split(' ').next().unwrap());
            let is_fabtests = command_line.contains("-p fabtests -- ");
            let command = word_after(command_line, "--").filter(|_| is_fabtests);
            if !package || !alias || !command.is_none_or(is_command) {
                bad.push(format!("{page}: cargo {command_line}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn parameters_that_the_book_names_exist() {
    let params = selvedge_providers::builtin().params();
    let defined: BTreeSet<&str> = params.specs().map(|spec| spec.name).collect();
    let families = ["FI_SHM_", "FI_TCP_", "FI_UDP_", "FI_SIGHT_", "FI_LOG_"];
    let is_word = |character: char| {
        character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_'
    };
    let pages = pages();
    let mut bad = Vec::new();
    for name in [
        "FIRST-HOUR.md",
        "PROVIDERS.md",
        "SHM.md",
        "SHM-REFERENCE.md",
        "TCP-UDP.md",
        "TCP-UDP-REFERENCE.md",
        "OFI.md",
        "FEATURES.md",
        "TUNING.md",
        "RELIABILITY.md",
        "TOOLS.md",
    ] {
        for word in pages[name].split(|character: char| !is_word(character)) {
            let is_parameter = families.iter().any(|family| word.starts_with(family));
            if is_parameter && !defined.contains(word) {
                bad.push(format!("{name}: {word}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_provider_of_the_book_has_fewer_than_300_lines() {
    let pages = pages();
    let code = lines(&pages["A-PROVIDER.md"]).into_iter();
    let code = code.filter(|(block, _)| *block == Some("rust"));
    let code = code.map(|(_, line)| line.trim());
    let count = code
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count();
    assert!((200..300).contains(&count), "{count}");
}
