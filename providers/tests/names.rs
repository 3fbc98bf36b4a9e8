//! Aliases: names of libfabric's providers in hints and in `FI_PROVIDER`.

use std::sync::{Mutex, Once, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use selvedge::info::EpType;
use selvedge::{Caps, Hints, Registry};
use selvedge_providers::builtin;

fn registry(providers: &str) -> Registry {
    capture_warnings();
    let params = [("FI_PROVIDER", providers), ("FI_TCP_IFACE", "lo")];
    builtin().with_params(params.into_iter().collect())
}

/// The providers that discovery finds, each once.
fn found(providers: &str, hints: &Hints) -> Vec<String> {
    let infos = registry(providers).infos(hints).unwrap_or_default();
    let names = infos.into_iter().map(|info| info.fabric_attr.prov_name);
    let mut names: Vec<_> = names.collect();
    names.dedup();
    names
}

#[test]
fn names_of_libfabric_providers_select_their_replacements() {
    let aliases = [
        ("tcp;ofi_rxm", "tcp"),
        ("ofi_rxm;tcp", "tcp"),
        ("TCP;OFI_RXM", "tcp"),
        ("ofi_rxm", "tcp"),
        ("net", "tcp"),
        ("net;ofi_rxm", "tcp"),
        ("sockets", "tcp"),
        ("shm;ofi_rxm", "shm"),
    ];
    let rdm = Hints::new().caps(Caps::MSG).ep_type(EpType::Rdm);
    for (name, provider) in aliases {
        let by_hint = found("", &rdm.clone().provider(name));
        let by_variable = found(name, &rdm);
        // The name of a utility provider alone selects every provider that it runs over.
        let expected: &[&str] = if name == "ofi_rxm" {
            &["shm", "tcp"]
        } else {
            &[provider]
        };
        assert_eq!(by_hint, expected, "{name}");
        assert_eq!(by_variable, expected, "{name}");
    }
}

/// A logger that records the warnings of this process. The library logs a warning only once, so all
/// tests read the same record.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

fn capture_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&WARNINGS).expect("no other logger is set");
        log::set_max_level(LevelFilter::Warn);
    });
}

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn a_provider_name_of_another_protocol_logs_a_warning_with_a_remedy() {
    let rdm = Hints::new().caps(Caps::MSG).ep_type(EpType::Rdm);
    for (name, provider) in [("ofi_rxm;net", "tcp"), ("sockets", "tcp"), ("net", "tcp")] {
        assert_eq!(found("", &rdm.clone().provider(name)), [provider]);
    }
    let warnings = WARNINGS.0.lock().unwrap_or_else(PoisonError::into_inner);
    let text = |name| {
        format!(
            "provider {name} was requested, and tcp is used in its place: Selvedge's tcp cannot \
             communicate with libfabric's {name}, which uses another protocol; use Selvedge on \
             both sides, or request tcp on both"
        )
    };
    for name in ["net;ofi_rxm", "sockets"] {
        assert!(warnings.contains(&text(name)), "{name}: {warnings:?}");
    }
    assert!(
        !warnings.contains(&text("net")),
        "net uses the same protocol as tcp: {warnings:?}"
    );
}

#[test]
fn excluding_an_alias_excludes_no_provider() {
    let rdm = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Rdm)
        .provider("tcp");
    for name in ["^tcp;ofi_rxm", "^sockets", "^net"] {
        assert_eq!(found(name, &rdm), ["tcp"], "{name}");
    }
}

#[test]
fn an_alias_without_a_replacement_is_explained() {
    let hints = Hints::new().caps(Caps::MSG).provider("udp;ofi_rxd");
    let error = registry("").infos(&hints).unwrap_err().to_string();
    assert!(
        error.contains("request tcp for reliable endpoints"),
        "{error}"
    );
    assert!(found("", &Hints::new().provider("verbs;ofi_rxm")).is_empty());
}

#[test]
fn an_info_with_an_alias_opens() {
    let hints = Hints::new().caps(Caps::MSG).ep_type(EpType::Rdm);
    let registry = registry("");
    let mut info = registry
        .infos(&hints.clone().provider("tcp"))
        .unwrap()
        .remove(0);
    info.fabric_attr.prov_name = "tcp;ofi_rxm".into();
    let info = registry.adopt(info, &hints).unwrap();
    assert_eq!(info.fabric_attr.prov_name, "tcp");
    info.open().unwrap();
}
