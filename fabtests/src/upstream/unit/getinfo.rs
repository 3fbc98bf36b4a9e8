//! `fi_getinfo_test`: discovery with and without hints.

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Progress, Version};
use selvedge::param::Params;
use selvedge::{Caps, Errno, Hints, Info, InfoFlags, Mode, MrMode, MsgOrder};
use selvedge_testkit::failure::unsupported;

use super::Cases;
use crate::suite::defect::registry;
use crate::upstream::options::{Options, PORT};

/// Runs the program: `fi_getinfo_test -s SOURCE DESTINATION`.
pub(in crate::upstream) fn getinfo_test(options: &Options) -> anyhow::Result<()> {
    let base = hints(options);
    infos_of(&base).context("fi_getinfo finds no provider")?;
    let mut cases = Cases::default();
    check_addresses(&mut cases, options, &Hints::anything(), "without hints");
    check_addresses(&mut cases, options, &base, "with hints");
    cases.run("api version", || check_versions(&base));
    cases.run("returned attributes open", || open_all(&base));
    cases.run("unknown domain name", || check_unknown_domain(&base));
    cases.run("FI_PROVIDER is applied to each call", || {
        check_environment(&base)
    });
    cases.run("message order", || check_orders(&base));
    cases.run("maximum ordered sizes", || check_ordered_sizes(&base));
    cases.run("memory registration modes", || check_mr_modes(&base));
    cases.run("progress", || check_progress(&base));
    cases.run("capabilities", || check_capabilities(&base));
    cases.run("domain capabilities", || check_domain_caps(&base));
    cases.finish()
}

/// Makes hints that accept every mode bit, so that no mode excludes a provider.
fn hints(options: &Options) -> Hints {
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    Hints::new()
        .mode(Mode::all())
        .mr_mode(MrMode::all() - MrMode::BASIC - MrMode::SCALABLE)
        .provider(&text(&options.provider))
        .fabric(&text(&options.fabric))
        .domain(&text(&options.domain))
        .ep_type(options.ep_type.unwrap_or(EpType::Unspec))
}

fn infos_of(hints: &Hints) -> Result<Vec<Info>, selvedge::Error> {
    registry()?.infos(hints)
}

/// Calls fi_getinfo. Returns `None` if fi_getinfo returns no data.
fn find_infos(hints: &Hints) -> anyhow::Result<Option<Vec<Info>>> {
    match infos_of(hints) {
        Ok(infos) => Ok(Some(infos)),
        Err(error) if error.errno() == Errno::NoData => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Tests nodes and services as source and as destination.
fn check_addresses(cases: &mut Cases, options: &Options, hints: &Hints, label: &str) {
    let source = options.source.as_deref().unwrap_or("127.0.0.1");
    let peer = options.server.as_deref().unwrap_or("127.0.0.1");
    let none = InfoFlags::empty();
    for (name, node, service, flags) in [
        ("nothing", None, None, none),
        ("node", Some(peer), None, none),
        ("service", None, Some(PORT), none),
        ("node and service", Some(peer), Some(PORT), none),
        ("source node", Some(source), None, InfoFlags::SOURCE),
        ("source service", None, Some(PORT), InfoFlags::SOURCE),
        (
            "source node and service",
            Some(source),
            Some(PORT),
            InfoFlags::SOURCE,
        ),
    ] {
        cases.run(&format!("{label}: {name}"), || {
            let registry = registry()?;
            let infos = registry.getinfo(Version::API, node, service, flags, hints)?;
            for info in infos {
                let is_source = flags.contains(InfoFlags::SOURCE);
                ensure!(
                    !is_source || info.src_addr.is_some(),
                    "the attributes have no source address: {info:?}"
                );
                ensure!(
                    is_source || node.is_none() || info.dest_addr.is_some(),
                    "the attributes have no destination address: {info:?}"
                );
            }
            Ok(())
        });
    }
}

fn check_versions(base: &Hints) -> anyhow::Result<()> {
    let registry = registry()?;
    for version in [
        Version::new(1, 5),
        Version::new(1, 21),
        Version::new(2, 0),
        Version::API,
    ] {
        let infos = registry.getinfo(version, None, None, InfoFlags::empty(), base)?;
        for info in infos {
            let echo = info.fabric_attr.api_version;
            ensure!(
                echo == version,
                "requested API version {version}, but {echo} is returned"
            );
        }
    }
    let above = Version::new(Version::API.major, Version::API.minor + 1);
    let result = registry.getinfo(above, None, None, InfoFlags::empty(), base);
    ensure!(
        result.is_err_and(|error| error.errno() == Errno::NoSys),
        "fi_getinfo accepts the API version {above}, expected FI_ENOSYS"
    );
    Ok(())
}

fn open_all(base: &Hints) -> anyhow::Result<()> {
    for info in infos_of(base)? {
        let name = info.fabric_attr.prov_name.clone();
        info.open()
            .with_context(|| format!("cannot open the attributes of provider {name}"))?;
    }
    Ok(())
}

fn check_unknown_domain(base: &Hints) -> anyhow::Result<()> {
    let result = find_infos(&base.clone().domain("no domain has this name"))?;
    ensure!(
        result.is_none(),
        "fi_getinfo finds a domain that does not exist"
    );
    Ok(())
}

fn check_environment(base: &Hints) -> anyhow::Result<()> {
    for info in infos_of(base)? {
        let name = info.fabric_attr.prov_name;
        let named = |value: &str| {
            let params: Params = [("FI_PROVIDER", value)].into_iter().collect();
            anyhow::Ok(registry()?.with_params(params))
        };
        let found = named(&name)?.infos(base)?;
        ensure!(
            found.iter().all(|info| info.fabric_attr.prov_name == name),
            "FI_PROVIDER={name} finds other providers"
        );
        let others = named(&format!("^{name}"))?.infos(base).unwrap_or_default();
        ensure!(
            others.iter().all(|info| info.fabric_attr.prov_name != name),
            "FI_PROVIDER=^{name} finds the excluded provider"
        );
    }
    Ok(())
}

/// Tests each order, and all orders together. The returned order must include the requested order.
fn check_orders(base: &Hints) -> anyhow::Result<()> {
    for order in MsgOrder::all().iter().chain([MsgOrder::all()]) {
        for info in find_infos(&base.clone().msg_order(order))?.unwrap_or_default() {
            let returned = info.tx_attr.msg_order & info.rx_attr.msg_order;
            ensure!(
                returned.contains(order),
                "requested message order {order}, but {returned} is returned"
            );
        }
    }
    Ok(())
}

fn check_ordered_sizes(base: &Hints) -> anyhow::Result<()> {
    type Size = fn(&mut Info) -> &mut usize;
    let sizes: [(MsgOrder, Size); 3] = [
        (MsgOrder::RAW, |info| &mut info.ep_attr.max_order_raw_size),
        (MsgOrder::WAR, |info| &mut info.ep_attr.max_order_war_size),
        (MsgOrder::WAW, |info| &mut info.ep_attr.max_order_waw_size),
    ];
    let mut tried = 0;
    for (order, size) in sizes {
        let hints = base.clone().caps(Caps::RMA).msg_order(order);
        for mut info in find_infos(&hints)?.unwrap_or_default() {
            tried += 1;
            let max = *size(&mut info);
            ensure!(max > 0, "the maximum ordered size of {order} is 0");
            let name = info.fabric_attr.prov_name.clone();
            let requested = |bytes: usize| {
                let hints = hints.clone().provider(&name);
                find_infos(&hints.edit(|info| *size(info) = bytes))
            };
            for mut info in requested(max)?.unwrap_or_default() {
                ensure!(
                    *size(&mut info) >= max,
                    "the maximum ordered size is less than requested: {info:?}"
                );
            }
            if let Some(too_large) = max.checked_add(1) {
                ensure!(
                    requested(too_large)?.is_none(),
                    "fi_getinfo accepts {too_large} bytes for {order}, more than the maximum"
                );
            }
        }
    }
    match tried {
        0 => Err(unsupported("the provider orders no remote accesses")),
        _ => Ok(()),
    }
}

/// Tests all combinations of registration modes. The returned modes must be among the requested
/// modes.
fn check_mr_modes(base: &Hints) -> anyhow::Result<()> {
    let modes = [
        MrMode::LOCAL,
        MrMode::RAW,
        MrMode::VIRT_ADDR,
        MrMode::ALLOCATED,
        MrMode::PROV_KEY,
        MrMode::MMU_NOTIFY,
        MrMode::RMA_EVENT,
        MrMode::ENDPOINT,
    ];
    for mask in 0_u32..1 << modes.len() {
        let chosen = modes
            .iter()
            .enumerate()
            .filter(|(index, _)| mask >> index & 1 == 1);
        let requested: MrMode = chosen.map(|(_, mode)| *mode).collect();
        let hints = base.clone().caps(Caps::MSG | Caps::RMA).mr_mode(requested);
        for info in find_infos(&hints)?.unwrap_or_default() {
            let returned = info.domain_attr.mr_mode;
            ensure!(
                requested.contains(returned),
                "offered the modes {requested}, but {returned} are required"
            );
        }
    }
    Ok(())
}

fn check_progress(base: &Hints) -> anyhow::Result<()> {
    for requested in [Progress::Manual, Progress::Auto] {
        for info in find_infos(&base.clone().data_progress(requested))?.unwrap_or_default() {
            let returned = info.domain_attr.data_progress;
            // Automatic progress includes manual progress.
            let is_sufficient = returned == requested || returned == Progress::Auto;
            ensure!(
                is_sufficient,
                "requested {requested}, but {returned} is returned"
            );
        }
    }
    Ok(())
}

/// The capabilities that transmit attributes cannot have.
const NEVER_TX: Caps = Caps::RECV
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::MULTI_RECV)
    .union(Caps::SOURCE)
    .union(Caps::RMA_EVENT)
    .union(Caps::DIRECTED_RECV)
    .union(NEVER_EITHER);
/// The capabilities that receive attributes cannot have.
const NEVER_RX: Caps = Caps::SEND
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::FENCE)
    .union(Caps::MULTICAST)
    .union(NEVER_EITHER);
/// The capabilities that neither transmit nor receive attributes can have. The last three are
/// returned only if they are requested.
const NEVER_EITHER: Caps = Caps::LOCAL_COMM
    .union(Caps::REMOTE_COMM)
    .union(Caps::SHARED_AV)
    .union(Caps::TAGGED_DIRECTED_RECV)
    .union(Caps::TAGGED_MULTI_RECV)
    .union(Caps::EXACT_DIRECTED_RECV);

/// The primary capabilities.
const PRIMARY: Caps = Caps::MSG
    .union(Caps::RMA)
    .union(Caps::TAGGED)
    .union(Caps::ATOMIC);

/// Tests all combinations of nine capabilities.
fn check_capabilities(base: &Hints) -> anyhow::Result<()> {
    let caps = [
        Caps::MSG,
        Caps::RMA,
        Caps::TAGGED,
        Caps::ATOMIC,
        Caps::MULTICAST,
        Caps::COLLECTIVE,
        Caps::NAMED_RX_CTX,
        Caps::DIRECTED_RECV,
        Caps::HMEM,
    ];
    let mut found = 0;
    for mask in 1_u32..1 << caps.len() {
        let chosen = caps
            .iter()
            .enumerate()
            .filter(|(index, _)| mask >> index & 1 == 1);
        let requested: Caps = chosen.map(|(_, caps)| *caps).collect();
        for info in find_infos(&base.clone().caps(requested))?.unwrap_or_default() {
            found += 1;
            check_caps(&info, requested)?;
        }
    }
    ensure!(
        found > 0,
        "fi_getinfo returns no data for every combination of capabilities"
    );
    Ok(())
}

fn check_caps(info: &Info, requested: Caps) -> anyhow::Result<()> {
    let returned = info.caps;
    ensure!(
        returned.contains(requested),
        "requested {requested}, but {returned} is returned"
    );
    // If no primary capability is requested, all primary capabilities are returned.
    if requested.intersects(PRIMARY) {
        let unrequested = (returned & PRIMARY) - requested;
        ensure!(
            unrequested.is_empty(),
            "requested {requested}, but {unrequested} is returned too"
        );
    }
    let (tx, rx) = (info.tx_attr.caps, info.rx_attr.caps);
    ensure!(
        !tx.intersects(NEVER_TX),
        "the transmit attributes have the capabilities {}",
        tx & NEVER_TX
    );
    ensure!(
        !rx.intersects(NEVER_RX),
        "the receive attributes have the capabilities {}",
        rx & NEVER_RX
    );
    Ok(())
}

fn check_domain_caps(base: &Hints) -> anyhow::Result<()> {
    let all = Caps::LOCAL_COMM | Caps::REMOTE_COMM | Caps::SHARED_AV;
    for mask in 0_u32..8 {
        let chosen = all
            .iter()
            .enumerate()
            .filter(|(index, _)| mask >> index & 1 == 1);
        let requested: Caps = chosen.map(|(_, caps)| caps).collect();
        for info in find_infos(&base.clone().caps(requested))?.unwrap_or_default() {
            let returned = info.caps;
            ensure!(
                returned.contains(requested),
                "requested {requested}, but {returned} is returned"
            );
            let communication = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
            ensure!(
                returned.intersects(communication),
                "neither local nor remote communication is returned: {returned}"
            );
        }
    }
    Ok(())
}
