//! The error text for an unknown provider name.

use crate::param::nearest;

/// Returns the error text for the unknown provider name `layer` in the setting `given`, with a
/// remedy.
pub(super) fn unknown_name_text(given: &str, layer: &str, known: &[&str]) -> String {
    let text = format!("{given} names {layer:?}, which is not a provider of this library");
    if let Some(nearest) = nearest(layer, known.iter().copied()) {
        return format!("{text}; did you mean {nearest:?}?");
    }
    if LIBFABRIC_PROVIDERS.contains(&layer) {
        return format!(
            "{text}; an installed libfabric may have it: set FI_OFI_LIBRARY=system, or to the path of a \
             libfabric.so.1, and request \"{layer};ofi\""
        );
    }
    format!("{text}; the providers are {}", known.join(", "))
}

/// Providers of libfabric 1.x and 2.x without a counterpart in this library (fi_provider(7)).
const LIBFABRIC_PROVIDERS: [&str; 13] = [
    "bgq", "cxi", "efa", "gni", "lpp", "mlx", "mrail", "opx", "psm", "psm2", "psm3", "usnic",
    "verbs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_text_of_an_unknown_name_has_a_remedy() {
        let known = ["shm", "tcp", "udp"];
        let table = [
            ("shn", "; did you mean \"shm\"?"),
            ("tpc", "; did you mean \"tcp\"?"),
            ("verbs", "set FI_OFI_LIBRARY=system"),
            ("psm3", "request \"psm3;ofi\""),
            ("banana", "; the providers are shm, tcp, udp"),
        ];
        for (name, end) in table {
            let message = unknown_name_text("FI_PROVIDER", name, &known);
            let begin =
                format!("FI_PROVIDER names {name:?}, which is not a provider of this library");
            assert!(
                message.starts_with(&begin) && message.contains(end),
                "{message}"
            );
        }
    }
}
