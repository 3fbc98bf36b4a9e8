//! Names of providers: the library's names, and the same names with the layer `ofi`.
//!
//! libfabric appends the names of layers to the name of the provider, `tcp;ofi_rxm`. This provider
//! is the uppermost layer of everything that it offers.

/// The name of the layer.
pub(crate) const LAYER: &str = "ofi";

/// The name of Selvedge's provider that may use any of this provider's names for its links.
const ANY: &str = "lnx";

/// Adds the layer to a name of the library.
pub(crate) fn with_layer(name: &str) -> String {
    format!("{name};{LAYER}")
}

/// Removes the layer from a name; empty for the layer alone.
pub(crate) fn without_layer(name: &str) -> String {
    let layers = name.split(';').map(str::trim);
    let others = layers.filter(|layer| !layer.eq_ignore_ascii_case(LAYER));
    others.collect::<Vec<_>>().join(";")
}

/// The value of `FI_PROVIDER` for the library: without the layer, and empty, which means all
/// providers, if the list has the layer alone, or [`ANY`]. `None` if the value need not change.
pub(crate) fn filter_for_library(list: &str) -> Option<String> {
    if list.trim_start().starts_with('^') {
        return None;
    }
    let entries: Vec<_> = list.split(',').map(str::trim).collect();
    let cores: Vec<_> = entries.iter().map(|entry| without_layer(entry)).collect();
    let needs_all = [LAYER, ANY].iter().any(|name| {
        let mut entries = entries.iter();
        entries.any(|entry| entry.eq_ignore_ascii_case(name))
    });
    if entries == cores && !needs_all {
        return None;
    }
    Some(if needs_all {
        String::new()
    } else {
        cores.join(",")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_is_added_and_removed() {
        for name in ["tcp", "tcp;ofi_rxm"] {
            assert_eq!(without_layer(&with_layer(name)), name);
        }
        assert_eq!(without_layer("ofi"), "");
        assert_eq!(without_layer("OFI;tcp"), "tcp");
    }

    #[test]
    fn the_librarys_filter_has_no_layer() {
        let table = [
            ("", None),
            ("tcp", None),
            ("^ofi", None),
            ("tcp;ofi_rxm,shm", None),
            ("ofi", Some("")),
            ("shm, ofi", Some("")),
            ("lnx", Some("")),
            ("shm,LNX", Some("")),
            ("tcp;ofi", Some("tcp")),
            ("tcp;ofi_rxm;ofi,shm", Some("tcp;ofi_rxm,shm")),
        ];
        for (list, expected) in table {
            assert_eq!(filter_for_library(list).as_deref(), expected, "{list}");
        }
    }
}
