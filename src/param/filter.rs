//! `Filter`: an include or exclude list of names, with the grammar of `FI_PROVIDER`.

/// A comma-separated list of names. A leading `^` negates the whole list. Case is ignored.
///
/// A name may have layers, joined by `;` in any order, such as `tcp;ofi_rxm`. An entry of one layer
/// matches every name with that layer: `tcp` also matches `tcp;ofi_rxm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    negated: bool,
    entries: Vec<String>,
}

impl Filter {
    /// Parses a list. Empty entries are ignored. An empty list admits every name.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (negated, list) = match text.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let entries = list
            .split(',')
            .map(|entry| entry.trim().to_ascii_lowercase())
            .filter(|entry| !entry.is_empty())
            .collect();
        Self { negated, entries }
    }

    /// Returns whether the list admits `name`.
    pub fn admits(&self, name: &str) -> bool {
        let listed = || self.entries.iter().any(|entry| matches(entry, name));
        self.entries.is_empty() || listed() != self.negated
    }

    /// Returns whether the list may admit a name with `layer`, alone or with other layers.
    pub fn may_admit_with(&self, layer: &str) -> bool {
        if self.negated {
            return self.admits(layer);
        }
        self.entries.is_empty() || self.entries.iter().any(|entry| has_layer(entry, layer))
    }

    /// Returns whether the list is an include list, which is not negated and not empty.
    pub fn admits_listed_only(&self) -> bool {
        !self.negated && !self.entries.is_empty()
    }

    /// Returns every layer of every entry.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flat_map(|entry| layers(entry))
    }
}

fn matches(entry: &str, name: &str) -> bool {
    if layers(entry).count() == 1 {
        return has_layer(name, entry);
    }
    layers(entry).count() == layers(name).count()
        && layers(entry).all(|layer| has_layer(name, layer))
}

fn has_layer(name: &str, layer: &str) -> bool {
    layers(name).any(|candidate| candidate.eq_ignore_ascii_case(layer.trim()))
}

fn layers(name: &str) -> impl Iterator<Item = &str> {
    name.split(';').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_the_grammar_of_fi_provider() {
        let table = [
            ("", "shm", true),
            ("^", "shm", true),
            (" , ,", "shm", true),
            ("shm", "shm", true),
            ("SHM", "shm", true),
            ("shm", "SHM", true),
            ("shm", "tcp", false),
            ("tcp,shm", "shm", true),
            (" tcp , shm ", "shm", true),
            ("tcp,shm", "udp", false),
            ("^shm", "shm", false),
            ("^shm", "tcp", true),
            ("^tcp,shm", "shm", false),
            ("^tcp,shm", "udp", true),
            ("tcp", "tcp;ofi_rxm", true),
            ("ofi_rxm", "tcp;ofi_rxm", true),
            ("tcp;ofi_rxm", "tcp;ofi_rxm", true),
            ("ofi_rxm;tcp", "tcp;ofi_rxm", true),
            ("tcp;ofi_rxm", "tcp", false),
            ("tcp;ofi_rxm", "udp;ofi_rxd", false),
            ("udp", "tcp;ofi_rxm", false),
            ("^tcp", "tcp;ofi_rxm", false),
            ("^tcp;ofi_rxm", "tcp;ofi_rxm", false),
            ("^tcp;ofi_rxm", "tcp", true),
            ("sh", "shm", false),
        ];
        for (text, name, admitted) in table {
            assert_eq!(
                Filter::parse(text).admits(name),
                admitted,
                "{text:?} {name}"
            );
        }
    }

    #[test]
    fn a_layer_may_be_admitted_if_an_entry_contains_it() {
        let table = [
            ("", "tcp", true),
            ("tcp;ofi_rxm", "tcp", true),
            ("tcp;ofi_rxm", "ofi_rxm", true),
            ("tcp;ofi_rxm", "shm", false),
            ("^tcp;ofi_rxm", "tcp", true),
            ("^tcp", "tcp", false),
        ];
        for (text, layer, admitted) in table {
            let filter = Filter::parse(text);
            assert_eq!(filter.may_admit_with(layer), admitted, "{text:?} {layer}");
        }
    }
}
