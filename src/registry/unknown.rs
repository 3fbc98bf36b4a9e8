//! What a person is told of a provider's name that no provider here has.

use crate::param::nearest;

/// A sentence about the name `layer` that `given` has, with what to do.
pub(super) fn sentence(given: &str, layer: &str, known: &[&str]) -> String {
    let what = format!("{given} names {layer:?}, which is no provider here");
    if let Some(nearest) = nearest(layer, known.iter().copied()) {
        return format!("{what}; did you mean {nearest:?}?");
    }
    if OF_LIBFABRIC.contains(&layer) {
        return format!(
            "{what}; a libfabric that is installed may have it: set FI_OFI_LIBRARY=system, or to the \
             path of a libfabric.so.1, and ask for \"{layer};ofi\""
        );
    }
    format!("{what}; there are {}", known.join(", "))
}

/// Providers of libfabric 1.x and 2.x whose work no provider here does (fi_provider(7)).
const OF_LIBFABRIC: [&str; 13] = [
    "bgq", "cxi", "efa", "gni", "lpp", "mlx", "mrail", "opx", "psm", "psm2", "psm3", "usnic",
    "verbs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_unknown_is_answered_with_what_to_do() {
        let known = ["shm", "tcp", "udp"];
        let table = [
            ("shn", "; did you mean \"shm\"?"),
            ("tpc", "; did you mean \"tcp\"?"),
            ("verbs", "set FI_OFI_LIBRARY=system"),
            ("psm3", "ask for \"psm3;ofi\""),
            ("banana", "; there are shm, tcp, udp"),
        ];
        for (name, end) in table {
            let text = sentence("FI_PROVIDER", name, &known);
            let begin = format!("FI_PROVIDER names {name:?}, which is no provider here");
            assert!(text.starts_with(&begin) && text.contains(end), "{text}");
        }
    }
}
