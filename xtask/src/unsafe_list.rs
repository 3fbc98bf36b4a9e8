//! `cargo xtask unsafe`: writes docs/UNSAFE.md, the list of files with unsafe code and their
//! reasons.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::environment::workspace;

const PAGE: &str = "docs/UNSAFE.md";

/// The lint that the workspace denies, in two parts so that this file is not listed.
const LINT: &str = concat!("unsafe", "_code");

const HEAD: &str = "\
# Unsafe code

The workspace denies `{LINT}`. A file with unsafe code states a reason (`#[expect({LINT}, reason = \
\"..\")]`), and each unsafe operation has its own block with a safety comment. This list is a reference: \
`cargo xtask unsafe` generates it from the sources, and a test compares it \
(`the_documented_list_of_unsafe_files_matches_the_code`). A new file in this list requires its own \
change. Tests may use the raw API.

| file | reasons |
|---|---|
";

/// Writes the page.
///
/// # Errors
/// Returns an error if git fails, or if a file cannot be read or written.
pub(crate) fn write() -> anyhow::Result<String> {
    fs::write(workspace().join(PAGE), page()?)?;
    Ok(format!("wrote {PAGE}\n"))
}

fn page() -> anyhow::Result<String> {
    let mut page = HEAD.replace("{LINT}", LINT);
    for (path, reasons) in files()? {
        writeln!(page, "| `{path}` | {} |", reasons.join("; "))?;
    }
    Ok(page)
}

/// Returns the shipped files with unsafe code, and their reasons.
fn files() -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let listed = Command::new("git")
        .current_dir(workspace())
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
        ])
        .output()
        .context("cannot run git")?;
    ensure!(listed.status.success(), "git ls-files failed");
    let listed = String::from_utf8(listed.stdout)?;
    let mut files = BTreeMap::new();
    for path in listed.lines().filter(|path| is_shipped(path)) {
        let path = workspace().join(path);
        // A removed file may still be in the index.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if text.contains(LINT) {
            let path = path.strip_prefix(workspace())?.display().to_string();
            let reasons = reasons(&text);
            ensure!(!reasons.is_empty(), "{path} gives no reason for {LINT}");
            files.insert(path, reasons);
        }
    }
    Ok(files)
}

fn is_shipped(path: &str) -> bool {
    path.starts_with("src/") || path.contains("/src/")
}

/// Returns the distinct reasons of a file.
fn reasons(text: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for (start, _) in text.match_indices(LINT) {
        let Some((_, rest)) = text[start..].split_once("reason = \"") else {
            continue;
        };
        let quoted = rest.split('"').next().unwrap_or_default();
        let reason = quoted.split_whitespace().collect::<Vec<_>>().join(" ");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_list_of_unsafe_files_matches_the_code() -> anyhow::Result<()> {
        let written = fs::read_to_string(workspace().join(PAGE))?;
        assert_eq!(written, page()?, "run `cargo xtask unsafe`");
        Ok(())
    }

    #[test]
    fn reasons_on_one_or_several_lines_are_found_once() {
        let one = format!("#![expect({LINT}, reason = \"posts\")]\n");
        let several = format!("#[expect(\n    {LINT},\n    reason = \"copies\"\n)]\n");
        let other = "#[expect(clippy::unwrap_used, reason = \"a test\")]\n".to_owned();
        let text = [one.clone(), several, other, one].concat();
        assert_eq!(reasons(&text), ["posts", "copies"]);
    }
}
