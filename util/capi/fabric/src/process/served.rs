//! Parameters of providers that another libfabric has loaded.

use std::collections::BTreeMap;

/// Parameters that the other library obeys: it selects the providers and puts its hooks around
/// them.
const OF_OTHER_LIBRARY: [&str; 3] = ["FI_PROVIDER", "FI_PROVIDER_PATH", "FI_HOOK"];

/// The prefix of parameters for Selvedge's providers alone. The other library's providers of the
/// same names read the parameters without it.
const PREFIX: &str = "FI_SELVEDGE_";

/// Returns the parameters for Selvedge's providers. `FI_SELVEDGE_SHM_X` takes precedence over
/// `FI_SHM_X`.
pub(super) fn parameters(parameters: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let (own, mut others): (BTreeMap<_, _>, BTreeMap<_, _>) = parameters
        .into_iter()
        .filter(|(name, _)| !OF_OTHER_LIBRARY.contains(&&**name))
        .partition(|(name, _)| name.starts_with(PREFIX));
    let renamed = own.into_iter().filter_map(|(name, value)| {
        let rest = name.strip_prefix(PREFIX)?;
        Some((format!("FI_{rest}"), value))
    });
    others.extend(renamed);
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parameters_win_and_those_of_the_other_library_are_not_read() {
        let set = [
            ("FI_PROVIDER", "selvedge_shm"),
            ("FI_HOOK", "trace"),
            ("FI_SELVEDGE_SHM_TX_SIZE", "64"),
            ("FI_SHM_TX_SIZE", "512"),
            ("FI_SHM_RX_SIZE", "128"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected = [("FI_SHM_RX_SIZE", "128"), ("FI_SHM_TX_SIZE", "64")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parameters(set.into()), expected.into());
    }
}
