//! The configuration files included in the suite.

use anyhow::Context as _;

/// The files by name: `quick` for the quick set, `verify` with all calls checked, `all` with all
/// calls measured, and `connected` with connected endpoints.
const BUNDLED: [(&str, &str); 4] = [
    ("quick", include_str!("configs/quick.test")),
    ("verify", include_str!("configs/verify.test")),
    ("all", include_str!("configs/all.test")),
    ("connected", include_str!("configs/connected.test")),
];

/// Reads a file, or returns an included file with this name.
///
/// # Errors
/// The system's error, with the names of the included files.
pub(super) fn read(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = BUNDLED.iter().find(|(bundled, _)| *bundled == name) {
        return Ok((*text).to_owned());
    }
    std::fs::read_to_string(name).with_context(|| {
        let names = BUNDLED.map(|(bundled, _)| bundled).join(", ");
        format!("cannot read the file {name}; the included configurations are {names}")
    })
}

/// The folders in which packages and upstream's sources have upstream's configuration files.
const FOLDERS: [&str; 3] = [".", "/usr/local/share/fabtests", "/usr/share/fabtests"];

/// Returns the file for a test of a provider (`-p PROVIDER -t NAME`): upstream's file if it is
/// installed, and otherwise the included file with this name.
pub(super) fn find_for_test(provider: &str, name: &str) -> String {
    let path = |folder| format!("{folder}/test_configs/{provider}/{name}.test");
    let found = FOLDERS.into_iter().map(path);
    let mut found = found.filter(|path| std::path::Path::new(path).exists());
    found.next().unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::config;
    use super::*;

    #[test]
    fn bundled_configurations_are_valid() {
        for (name, text) in BUNDLED {
            let configs = config::parse(text).unwrap();
            let cases = configs.iter().map(|config| Case::read(config).unwrap());
            let valid = cases.filter(|case| case.invalid_reason().is_none()).count();
            println!("{name}: {valid} of {}", configs.len());
            assert_eq!(valid, configs.len(), "{name}");
        }
    }
}
