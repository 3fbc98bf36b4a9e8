//! Names of providers: the library's own, and with our layer behind them.
//!
//! libfabric writes layers behind the provider that they lie on, `tcp;ofi_rxm`; this provider is
//! the uppermost layer of everything that it offers.

/// Our layer.
pub(crate) const LAYER: &str = "ofi";

/// What the library calls a provider that it knows by `name`, as we offer it.
pub(crate) fn layered(name: &str) -> String {
    format!("{name};{LAYER}")
}

/// What the library knows a name of ours by; empty for our layer alone.
pub(crate) fn core(name: &str) -> String {
    let own = name.split(';').map(str::trim);
    let others = own.filter(|layer| !layer.eq_ignore_ascii_case(LAYER));
    others.collect::<Vec<_>>().join(";")
}

/// `FI_PROVIDER` as the library is to see it: without our layer, and empty, for all, if it asks for
/// that layer alone anywhere. `None` if it need not change.
pub(crate) fn filter(list: &str) -> Option<String> {
    if list.trim_start().starts_with('^') {
        return None;
    }
    let entries: Vec<_> = list.split(',').map(str::trim).collect();
    let cores: Vec<_> = entries.iter().map(|entry| core(entry)).collect();
    if entries == cores {
        return None;
    }
    let takes_all = entries
        .iter()
        .any(|entry| entry.eq_ignore_ascii_case(LAYER));
    Some(if takes_all {
        String::new()
    } else {
        cores.join(",")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_layer_comes_and_goes() {
        for name in ["tcp", "tcp;ofi_rxm"] {
            assert_eq!(core(&layered(name)), name);
        }
        assert_eq!(core("ofi"), "");
        assert_eq!(core("OFI;tcp"), "tcp");
    }

    #[test]
    fn the_library_sees_a_filter_of_names_that_it_knows() {
        let table = [
            ("", None),
            ("tcp", None),
            ("^ofi", None),
            ("tcp;ofi_rxm,shm", None),
            ("ofi", Some("")),
            ("shm, ofi", Some("")),
            ("tcp;ofi", Some("tcp")),
            ("tcp;ofi_rxm;ofi,shm", Some("tcp;ofi_rxm,shm")),
        ];
        for (list, seen) in table {
            assert_eq!(filter(list).as_deref(), seen, "{list}");
        }
    }
}
