//! The checkout and the host triple.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// Returns the root of the checkout.
pub(crate) fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Returns the command `cargo`, without the variables that `cargo run` sets for this program. With
/// them, packages whose builds depend on such variables would be built again, and once more by the
/// next `cargo` of a shell.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        });
        if is_of_package {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Returns the host triple.
pub(crate) fn host_triple() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let version = String::from_utf8(output.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV prints no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_called_without_the_variables_of_this_package() {
        let cargo = cargo();
        let removed: Vec<_> = cargo.get_envs().map(|(name, _)| name).collect();
        assert!(cargo.get_envs().all(|(_, value)| value.is_none()));
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(removed.contains(&name.as_ref()), "{name}: {removed:?}");
        }
    }
}
