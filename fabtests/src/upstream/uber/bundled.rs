//! The configurations that come with the suite.

use anyhow::Context as _;

/// By name: those of the quick set, all calls with checks, all calls timed, and connections.
const BUNDLED: [(&str, &str); 4] = [
    ("quick", include_str!("configs/quick.test")),
    ("verify", include_str!("configs/verify.test")),
    ("all", include_str!("configs/all.test")),
    ("connected", include_str!("configs/connected.test")),
];

/// The text of a file, or of the one that comes with the suite under that name.
///
/// # Errors
/// The system's, with the names that there are.
pub(super) fn find(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = BUNDLED.iter().find(|(own, _)| *own == name) {
        return Ok((*text).to_owned());
    }
    std::fs::read_to_string(name).with_context(|| {
        let names = BUNDLED.map(|(own, _)| own).join(", ");
        format!("cannot read {name}, which is none of {names}")
    })
}

/// Where packages put upstream's files, and where its sources have them.
const FOLDERS: [&str; 3] = [".", "/usr/local/share/fabtests", "/usr/share/fabtests"];

/// The file of a test of a provider (`-p PROVIDER -t NAME`): upstream's where it is installed, and
/// otherwise the one that comes with the suite under that name.
pub(super) fn of_test(provider: &str, name: &str) -> String {
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
    fn all_that_is_bundled_can_be_read_and_makes_sense() {
        for (name, text) in BUNDLED {
            let configs = config::parse(text).unwrap();
            let cases = configs.iter().map(|config| Case::read(config).unwrap());
            let with_sense = cases.filter(|case| case.nonsense().is_none()).count();
            println!("{name}: {with_sense} of {}", configs.len());
            assert_eq!(with_sense, configs.len(), "{name}");
        }
    }
}
