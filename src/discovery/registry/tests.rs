//! Tests of discovery, over mock providers.

use crate::info::{Candidate, EpType};
use crate::param::Spec;
use crate::{Address, Caps};

use super::*;

/// A provider whose `getinfo` calls `response`.
#[derive(Debug)]
struct Mock {
    name: &'static str,
    response: fn(&Query<'_>) -> Result<Vec<Candidate>, Error>,
    params: &'static [Spec],
}

impl Provider for Mock {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> Version {
        Version::new(117, 2)
    }

    fn params(&self) -> &'static [Spec] {
        self.params
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        (self.response)(query)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        let message = format!("mock {} opens no {}", self.name, info.fabric_attr.name);
        Err(Error::new(Errno::NoSys, message))
    }
}

const fn mock(
    name: &'static str,
    response: fn(&Query<'_>) -> Result<Vec<Candidate>, Error>,
) -> Mock {
    Mock {
        name,
        response,
        params: &[],
    }
}

/// Returns a description of an endpoint type, or a mismatch if the query requests another type.
fn candidate(query: &Query<'_>, ep_type: EpType) -> Candidate {
    let requested = query.hints.info().ep_attr.ep_type;
    let mut info = Info::default();
    info.ep_attr.ep_type = ep_type;
    info.addr_format = AddrFormat::Str;
    if requested != EpType::Unspec && requested != ep_type {
        return Err(Mismatch::new("ep_type", requested, ep_type).of(&info));
    }
    Ok(info)
}

static SHM_PARAMS: [Spec; 1] = [Spec::size("FI_SHM_TX_SIZE", 64, "outstanding sends")];

static SHM: Mock = Mock {
    params: &SHM_PARAMS,
    ..mock("shm", |query| {
        Ok(vec![
            candidate(query, EpType::Rdm),
            candidate(query, EpType::Dgram),
        ])
    })
};
static TCP: Mock = mock("tcp", |query| {
    let with_ip = candidate(query, EpType::Rdm).map(|mut info| {
        info.addr_format = AddrFormat::SockaddrIn;
        info
    });
    Ok(vec![with_ip])
});
static RXM: Mock = mock("ofi_rxm", |query| {
    let layered = candidate(query, EpType::Rdm).map(|mut info| {
        info.fabric_attr.prov_name = "tcp;ofi_rxm".into();
        info
    });
    Ok(vec![layered])
});
static BROKEN: Mock = mock("broken", |_| {
    Err(Error::new(Errno::NoDev, "no device /dev/x"))
});

fn registry(env: &[(&str, &str)]) -> Registry {
    Registry::new()
        .with(&RXM)
        .with(&SHM)
        .with(&TCP)
        .with_params(env.iter().copied().collect())
}

fn provider_names(env: &[(&str, &str)], hints: &Hints) -> Vec<String> {
    registry(env)
        .infos(hints)
        .unwrap_or_default()
        .into_iter()
        .map(|info| info.fabric_attr.prov_name)
        .collect()
}

fn getinfo_with(
    version: Version,
    flags: InfoFlags,
    node: Option<&str>,
    hints: &Hints,
) -> Result<Vec<Info>, Error> {
    registry(&[]).getinfo(version, node, None, flags, hints)
}

#[test]
fn results_have_the_order_of_providers_and_of_their_preference() {
    let infos = registry(&[]).infos(&Hints::new()).unwrap();
    let order: Vec<_> = infos
        .iter()
        .map(|info| (info.fabric_attr.prov_name.as_str(), info.ep_attr.ep_type))
        .collect();
    assert_eq!(
        order,
        [
            ("tcp;ofi_rxm", EpType::Rdm),
            ("shm", EpType::Rdm),
            ("shm", EpType::Dgram),
            ("tcp", EpType::Rdm),
        ]
    );
}

#[test]
fn results_contain_provider_and_versions() {
    let requested = Version::new(1, 17);
    let infos = getinfo_with(
        requested,
        InfoFlags::empty(),
        None,
        &Hints::new().provider("shm"),
    )
    .unwrap();
    let fabric = &infos[0].fabric_attr;
    assert_eq!(fabric.prov_version, Version::new(117, 2));
    assert_eq!(fabric.api_version, requested);
}

#[test]
fn fi_provider_filters_results() {
    let all = ["tcp;ofi_rxm", "shm", "shm", "tcp"];
    let table: &[(&str, &[&str])] = &[
        ("", &all),
        ("shm", &["shm", "shm"]),
        ("SHM", &["shm", "shm"]),
        ("tcp,shm", &all),
        ("tcp", &["tcp;ofi_rxm", "tcp"]),
        ("tcp;ofi_rxm", &["tcp;ofi_rxm"]),
        ("ofi_rxm", &["tcp;ofi_rxm"]),
        ("^shm", &["tcp;ofi_rxm", "tcp"]),
        ("^tcp", &["shm", "shm"]),
        ("^tcp;ofi_rxm", &["shm", "shm", "tcp"]),
        ("^tcp,shm", &[]),
        ("nothing", &[]),
    ];
    for (text, names) in table {
        assert_eq!(
            provider_names(&[("FI_PROVIDER", text)], &Hints::new()),
            *names,
            "{text}"
        );
    }
}

#[test]
fn a_hinted_provider_follows_the_same_grammar() {
    assert_eq!(
        provider_names(&[], &Hints::new().provider("tcp")),
        ["tcp;ofi_rxm", "tcp"]
    );
    assert_eq!(
        provider_names(&[], &Hints::new().provider("ofi_rxm;tcp")),
        ["tcp;ofi_rxm"]
    );
    let env = [("FI_PROVIDER", "shm")];
    assert_eq!(provider_names(&env, &Hints::new().provider("tcp")), [""; 0]);
}

#[test]
fn fi_addr_format_filters_results() {
    let provider_names = |format| provider_names(&[("FI_ADDR_FORMAT", format)], &Hints::new());
    assert_eq!(provider_names("FI_SOCKADDR"), ["tcp"]);
    assert_eq!(provider_names("fi_addr_str"), ["tcp;ofi_rxm", "shm", "shm"]);
}

#[test]
fn no_match_reports_the_mismatched_attribute() {
    let error = registry(&[])
        .infos(&Hints::new().ep_type(EpType::Msg))
        .unwrap_err();
    assert_eq!(error.errno(), Errno::NoData);
    assert_eq!(
        error.message(),
        "no provider matches the request\n\
         ofi_rxm: ep_type: requested FI_EP_MSG, has FI_EP_RDM\n\
         shm: ep_type: requested FI_EP_MSG, has FI_EP_RDM | FI_EP_DGRAM\n\
         tcp: ep_type: requested FI_EP_MSG, has FI_EP_RDM"
    );
}

#[test]
fn no_match_reports_excluded_providers() {
    let hints = Hints::new().provider("tcp").ep_type(EpType::Dgram);
    let error = registry(&[("FI_PROVIDER", "^SHM")])
        .infos(&hints)
        .unwrap_err();
    assert_eq!(
        error.message(),
        "no provider matches the request\n\
         ofi_rxm: ep_type: requested FI_EP_DGRAM, has FI_EP_RDM\n\
         shm: excluded by FI_PROVIDER=^SHM\n\
         tcp: ep_type: requested FI_EP_DGRAM, has FI_EP_RDM"
    );
    let error = registry(&[])
        .infos(&Hints::new().provider("psm2"))
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("\nshm: prov_name: requested psm2, has shm\n"),
        "{error}"
    );
}

#[test]
fn no_match_without_providers_is_reported() {
    let error = Registry::new().infos(&Hints::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no provider matches the request: No data available\nno provider has a candidate"
    );
}

#[test]
fn results_keep_a_provider_that_was_created_at_run_time() {
    let provider = Arc::new(mock("late", |query| {
        Ok(vec![candidate(query, EpType::Rdm)])
    }));
    let weak = Arc::downgrade(&provider);
    let registry = Registry::new().with(&SHM).with_shared(provider);
    let hints = Hints::new().provider("late");
    let info = registry.infos(&hints).unwrap().remove(0);
    drop(registry);
    let error = info.open().unwrap_err();
    assert!(error.message().starts_with("mock late opens no"), "{error}");
    drop(info);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_provider_that_fails_does_not_hide_the_others() {
    let registry = registry(&[]).with(&BROKEN);
    assert_eq!(registry.infos(&Hints::new()).unwrap().len(), 4);
    let error = registry
        .infos(&Hints::new().provider("broken"))
        .unwrap_err();
    assert!(
        error
            .message()
            .ends_with("\nbroken: no device /dev/x: No such device"),
        "{error}"
    );
}

#[test]
fn a_bad_parameter_fails_its_provider() {
    let env = [("FI_SHM_TX_SIZE", "banana")];
    assert_eq!(provider_names(&env, &Hints::new()), ["tcp;ofi_rxm", "tcp"]);
    let error = registry(&env)
        .infos(&Hints::new().provider("shm"))
        .unwrap_err();
    let reason = "\nshm: FI_SHM_TX_SIZE=\"banana\": expected a size such as 4096, 64k or 1m: \
                  Invalid argument\n";
    assert!(error.message().contains(reason), "{error}");
}

#[test]
fn a_bad_parameter_of_the_core_fails_discovery() {
    let error = registry(&[("FI_ADDR_FORMAT", "x25")])
        .infos(&Hints::new())
        .unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    assert!(
        error
            .message()
            .starts_with("FI_ADDR_FORMAT=\"x25\": expected one of "),
        "{error}"
    );
}

#[test]
fn explanations_cover_every_candidate() {
    let hints = Hints::new().ep_type(EpType::Dgram);
    let texts: Vec<_> = registry(&[("FI_PROVIDER", "^tcp")])
        .explain(Version::API, None, None, InfoFlags::empty(), &hints)
        .unwrap()
        .iter()
        .map(Explanation::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "ofi_rxm: ep_type: requested FI_EP_DGRAM, has FI_EP_RDM",
            "shm: ep_type: requested FI_EP_DGRAM, has FI_EP_RDM",
            "shm: taken",
            "tcp: excluded by FI_PROVIDER=^tcp",
        ]
    );
}

#[test]
fn only_known_versions_and_flags_are_accepted() {
    let none = InfoFlags::empty();
    let unknown = InfoFlags::from_bits_retain(1 << 3);
    let combined = InfoFlags::PROV_ATTR_ONLY | InfoFlags::NUMERICHOST;
    let attr_only = InfoFlags::PROV_ATTR_ONLY;
    let (new, rdm) = (Hints::new(), Hints::new().ep_type(EpType::Rdm));
    let table = [
        (Version::new(2, 7), none, &new, Errno::NoSys),
        (Version::new(3, 0), none, &new, Errno::NoSys),
        (Version::API, unknown, &new, Errno::BadFlags),
        (Version::API, combined, &new, Errno::BadFlags),
        (Version::API, attr_only, &rdm, Errno::Inval),
        (Version::API, InfoFlags::SOURCE, &new, Errno::NoData),
    ];
    for (version, flags, hints, errno) in table {
        let error = getinfo_with(version, flags, None, hints).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
    }
    let accepted = InfoFlags::SOURCE | InfoFlags::NUMERICHOST | InfoFlags::RESCAN;
    getinfo_with(Version::new(1, 3), accepted, Some("::1"), &new).unwrap();
}

#[test]
fn an_unknown_flag_is_reported() {
    let flags = InfoFlags::SOURCE | InfoFlags::from_bits_retain(1 << 3);
    let error = getinfo_with(Version::API, flags, None, &Hints::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "flags FI_SOURCE | 0x8: Flags not supported"
    );
}

#[test]
fn prov_attr_only_lists_the_providers() {
    let names: Vec<_> = getinfo_with(Version::API, InfoFlags::PROV_ATTR_ONLY, None, &Hints::new())
        .unwrap()
        .into_iter()
        .map(|info| {
            (
                info.fabric_attr.prov_name,
                info.fabric_attr.prov_version,
                info.caps,
            )
        })
        .collect();
    let version = Version::new(117, 2);
    let listed = ["ofi_rxm", "shm", "tcp"];
    assert_eq!(
        names,
        listed.map(|name| (name.to_owned(), version, Caps::empty()))
    );
}

#[test]
fn queries_reach_the_provider_unchanged() {
    static ECHO: Mock = mock("echo", |query| {
        let mut info = Info::default();
        let text = format!("{:?} {:?} {}", query.node, query.service, query.flags);
        info.src_addr = Some(Address::Str(text));
        Ok(vec![Ok(info)])
    });
    let infos = Registry::new()
        .with(&ECHO)
        .with_params(Params::default())
        .getinfo(
            Version::API,
            Some("n"),
            Some("s"),
            InfoFlags::SOURCE,
            &Hints::new(),
        )
        .unwrap();
    let text = "Some(\"n\") Some(\"s\") FI_SOURCE".to_owned();
    assert_eq!(infos[0].src_addr, Some(Address::Str(text)));
}

#[test]
#[expect(
    unsafe_code,
    reason = "the threading promise is the subject of the test"
)]
fn promises_and_parameters_reach_the_results() {
    // SAFETY: no object is opened from these hints.
    let hints = unsafe { Hints::new().promise_threading(crate::info::Threading::Domain) };
    let infos = registry(&[("FI_SHM_TX_SIZE", "2k")]).infos(&hints).unwrap();
    for info in &infos {
        assert_eq!(info.threading_promise(), crate::info::Threading::Domain);
        assert_eq!(info.params().size("FI_SHM_TX_SIZE").unwrap(), 2048);
    }
    let infos = registry(&[]).infos(&Hints::from(infos[0].clone())).unwrap();
    assert_eq!(infos[0].threading_promise(), crate::info::Threading::Safe);
}

#[test]
fn results_open_with_their_provider() {
    let hints = Hints::new().provider("shm");
    let info = registry(&[]).infos(&hints).unwrap().remove(0);
    assert_eq!(info.open().unwrap_err().message(), "mock shm opens no ");
    assert_eq!(
        registry(&[]).fabric(&info).unwrap_err().message(),
        "mock shm opens no "
    );
}

#[test]
fn a_layered_result_opens_with_its_upper_layer() {
    let mut info = Info::default();
    info.fabric_attr.prov_name = "tcp;OFI_RXM".into();
    assert_eq!(
        registry(&[]).fabric(&info).unwrap_err().message(),
        "mock ofi_rxm opens no "
    );
    info.fabric_attr.prov_name = "psm2".into();
    let error = registry(&[]).fabric(&info).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("prov_name \"psm2\" names \"psm2\""),
        "{text}"
    );
    assert!(text.contains("FI_OFI_LIBRARY"), "{text}");
    assert!(text.ends_with(": No such device"), "{text}");
}

#[test]
fn an_error_without_results_suggests_provider_names() {
    let error = registry(&[("FI_PROVIDER", "shn")])
        .infos(&Hints::new())
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("did you mean \"shm\"?"), "{text}");
    let hints = Hints::new().provider("verbs");
    let text = registry(&[]).infos(&hints).unwrap_err().to_string();
    assert!(text.contains("prov_name names \"verbs\""), "{text}");
    assert!(text.contains("FI_OFI_LIBRARY"), "{text}");
}

#[test]
fn an_info_that_no_registry_has_returned_does_not_open() {
    let error = Info::default().open().unwrap_err();
    assert_eq!(error.errno(), Errno::NoDev);
}

#[test]
fn an_info_that_no_registry_has_returned_opens_after_adoption() {
    let mut info = Info::default();
    info.fabric_attr.prov_name = "over;SHM".into();
    assert_eq!(info.fabric().unwrap_err().errno(), Errno::NoDev);
    let params = [("FI_SHM_TX_SIZE", "7")].into_iter().collect();
    let registry = Registry::new().with(&SHM).with_params(params);
    let adopted = registry.adopt(info.clone(), &Hints::new()).unwrap();
    assert_eq!(adopted.params().size("FI_SHM_TX_SIZE").unwrap(), 7);
    assert_eq!(adopted.fabric().unwrap_err().errno(), Errno::NoSys);
    info.fabric_attr.prov_name = "unknown".into();
    let error = registry.adopt(info, &Hints::new()).unwrap_err();
    assert_eq!(error.errno(), Errno::NoDev);
    assert!(error.message().contains("unknown"), "{error}");
}
