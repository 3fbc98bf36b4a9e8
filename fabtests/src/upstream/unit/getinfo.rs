//! `fi_getinfo_test`: discovery, with and without hints.

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Progress, Version};
use selvedge::param::Params;
use selvedge::{Caps, Errno, Hints, Info, InfoFlags, Mode, MrMode, MsgOrder};
use selvedge_testkit::failure::unsupported;

use super::Cases;
use crate::suite::defect::registry;
use crate::upstream::options::{Options, PORT};

/// The program: `fi_getinfo_test -s SOURCE DESTINATION`.
pub(in crate::upstream) fn getinfo_test(options: &Options) -> anyhow::Result<()> {
    let base = hints(options);
    ask(&base).context("no provider at all")?;
    let mut cases = Cases::default();
    addresses(&mut cases, options, &Hints::anything(), "without hints");
    addresses(&mut cases, options, &base, "with hints");
    cases.run("api version", || versions(&base));
    cases.run("results open", || opens(&base));
    cases.run("a domain that is not there", || bad_domain(&base));
    cases.run("FI_PROVIDER is read each time", || environment(&base));
    cases.run("message order", || orders(&base));
    cases.run("sizes of ordered accesses", || ordered_sizes(&base));
    cases.run("duties of registration", || mr_modes(&base));
    cases.run("progress", || progress(&base));
    cases.run("capabilities", || capabilities(&base));
    cases.run("capabilities of domains", || domain_caps(&base));
    cases.end()
}

/// All duties are taken on: nothing is refused for their sake.
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

fn ask(hints: &Hints) -> Result<Vec<Info>, selvedge::Error> {
    registry()?.infos(hints)
}

/// Asks, and says whether there is nothing.
fn ask_or_nothing(hints: &Hints) -> anyhow::Result<Option<Vec<Info>>> {
    match ask(hints) {
        Ok(infos) => Ok(Some(infos)),
        Err(error) if error.errno() == Errno::NoData => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Nodes and services, of here and of there.
fn addresses(cases: &mut Cases, options: &Options, hints: &Hints, which: &str) {
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
        cases.run(&format!("{which}: {name}"), || {
            let registry = registry()?;
            let infos = registry.getinfo(Version::API, node, service, flags, hints)?;
            for info in infos {
                let is_source = flags.contains(InfoFlags::SOURCE);
                ensure!(
                    !is_source || info.src_addr.is_some(),
                    "no local address: {info:?}"
                );
                ensure!(
                    is_source || node.is_none() || info.dest_addr.is_some(),
                    "no address of the peer: {info:?}"
                );
            }
            Ok(())
        });
    }
}

fn versions(base: &Hints) -> anyhow::Result<()> {
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
            ensure!(echo == version, "asked for {version}, {echo} comes back");
        }
    }
    let above = Version::new(Version::API.major, Version::API.minor + 1);
    let answer = registry.getinfo(above, None, None, InfoFlags::empty(), base);
    ensure!(
        answer.is_err_and(|error| error.errno() == Errno::NoSys),
        "version {above} is answered"
    );
    Ok(())
}

fn opens(base: &Hints) -> anyhow::Result<()> {
    for info in ask(base)? {
        let name = info.fabric_attr.prov_name.clone();
        info.open().with_context(|| format!("a result of {name}"))?;
    }
    Ok(())
}

fn bad_domain(base: &Hints) -> anyhow::Result<()> {
    let answer = ask_or_nothing(&base.clone().domain("no domain has this name"))?;
    ensure!(answer.is_none(), "a domain of any name is found");
    Ok(())
}

fn environment(base: &Hints) -> anyhow::Result<()> {
    for info in ask(base)? {
        let name = info.fabric_attr.prov_name;
        let named = |value: &str| {
            let params: Params = [("FI_PROVIDER", value)].into_iter().collect();
            anyhow::Ok(registry()?.with_params(params))
        };
        let found = named(&name)?.infos(base)?;
        ensure!(
            found.iter().all(|info| info.fabric_attr.prov_name == name),
            "FI_PROVIDER={name} finds others"
        );
        let others = named(&format!("^{name}"))?.infos(base).unwrap_or_default();
        ensure!(
            others.iter().all(|info| info.fabric_attr.prov_name != name),
            "FI_PROVIDER=^{name} finds it"
        );
    }
    Ok(())
}

/// Each order alone, and all together: kept if it is answered.
fn orders(base: &Hints) -> anyhow::Result<()> {
    for order in MsgOrder::all().iter().chain([MsgOrder::all()]) {
        for info in ask_or_nothing(&base.clone().msg_order(order))?.unwrap_or_default() {
            let kept = info.tx_attr.msg_order & info.rx_attr.msg_order;
            ensure!(kept.contains(order), "asked for {order}, {kept} is kept");
        }
    }
    Ok(())
}

fn ordered_sizes(base: &Hints) -> anyhow::Result<()> {
    type Size = fn(&mut Info) -> &mut usize;
    let sizes: [(MsgOrder, Size); 3] = [
        (MsgOrder::RAW, |info| &mut info.ep_attr.max_order_raw_size),
        (MsgOrder::WAR, |info| &mut info.ep_attr.max_order_war_size),
        (MsgOrder::WAW, |info| &mut info.ep_attr.max_order_waw_size),
    ];
    let mut tried = 0;
    for (order, size) in sizes {
        let hints = base.clone().caps(Caps::RMA).msg_order(order);
        for mut info in ask_or_nothing(&hints)?.unwrap_or_default() {
            tried += 1;
            let most = *size(&mut info);
            ensure!(most > 0, "{order} is kept up to 0 bytes");
            let name = info.fabric_attr.prov_name.clone();
            let asked = |bytes: usize| {
                let hints = hints.clone().provider(&name);
                ask_or_nothing(&hints.edit(|info| *size(info) = bytes))
            };
            for mut info in asked(most)?.unwrap_or_default() {
                ensure!(*size(&mut info) >= most, "less than asked for: {info:?}");
            }
            if let Some(more) = most.checked_add(1) {
                ensure!(
                    asked(more)?.is_none(),
                    "{order} of {more} bytes is answered"
                );
            }
        }
    }
    match tried {
        0 => Err(unsupported("no order of remote accesses is kept")),
        _ => Ok(()),
    }
}

/// Duties that come back are among those that were offered.
fn mr_modes(base: &Hints) -> anyhow::Result<()> {
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
            .filter(|(at, _)| mask >> at & 1 == 1);
        let asked: MrMode = chosen.map(|(_, mode)| *mode).collect();
        let hints = base.clone().caps(Caps::MSG | Caps::RMA).mr_mode(asked);
        for info in ask_or_nothing(&hints)?.unwrap_or_default() {
            let got = info.domain_attr.mr_mode;
            ensure!(asked.contains(got), "offered {asked}, {got} is wanted");
        }
    }
    Ok(())
}

fn progress(base: &Hints) -> anyhow::Result<()> {
    for asked in [Progress::Manual, Progress::Auto] {
        for info in ask_or_nothing(&base.clone().data_progress(asked))?.unwrap_or_default() {
            let got = info.domain_attr.data_progress;
            // Automatic progress is more than was asked for.
            let fits = got == asked || got == Progress::Auto;
            ensure!(fits, "asked for {asked}, got {got}");
        }
    }
    Ok(())
}

/// What sending, receiving and neither of them can have.
const NEVER_TX: Caps = Caps::RECV
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::MULTI_RECV)
    .union(Caps::SOURCE)
    .union(Caps::RMA_EVENT)
    .union(Caps::DIRECTED_RECV)
    .union(NEVER_EITHER);
const NEVER_RX: Caps = Caps::SEND
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::FENCE)
    .union(Caps::MULTICAST)
    .union(NEVER_EITHER);
/// The last three are given only to those that ask for them.
const NEVER_EITHER: Caps = Caps::LOCAL_COMM
    .union(Caps::REMOTE_COMM)
    .union(Caps::SHARED_AV)
    .union(Caps::TAGGED_DIRECTED_RECV)
    .union(Caps::TAGGED_MULTI_RECV)
    .union(Caps::EXACT_DIRECTED_RECV);

/// Ways to move data.
const WAYS: Caps = Caps::MSG
    .union(Caps::RMA)
    .union(Caps::TAGGED)
    .union(Caps::ATOMIC);

/// All combinations of nine capabilities.
fn capabilities(base: &Hints) -> anyhow::Result<()> {
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
    let mut answered = 0;
    for mask in 1_u32..1 << caps.len() {
        let chosen = caps
            .iter()
            .enumerate()
            .filter(|(at, _)| mask >> at & 1 == 1);
        let asked: Caps = chosen.map(|(_, caps)| *caps).collect();
        for info in ask_or_nothing(&base.clone().caps(asked))?.unwrap_or_default() {
            answered += 1;
            check_caps(&info, asked)?;
        }
    }
    ensure!(answered > 0, "no combination of capabilities is answered");
    Ok(())
}

fn check_caps(info: &Info, asked: Caps) -> anyhow::Result<()> {
    let got = info.caps;
    ensure!(got.contains(asked), "asked for {asked}, got {got}");
    // Who asks for no way to move data gets all of them.
    if asked.intersects(WAYS) {
        let unasked = (got & WAYS) - asked;
        ensure!(
            unasked.is_empty(),
            "asked for {asked}, got {unasked} besides"
        );
    }
    let (tx, rx) = (info.tx_attr.caps, info.rx_attr.caps);
    ensure!(!tx.intersects(NEVER_TX), "sending has {}", tx & NEVER_TX);
    ensure!(!rx.intersects(NEVER_RX), "receiving has {}", rx & NEVER_RX);
    Ok(())
}

fn domain_caps(base: &Hints) -> anyhow::Result<()> {
    let all = Caps::LOCAL_COMM | Caps::REMOTE_COMM | Caps::SHARED_AV;
    for mask in 0_u32..8 {
        let chosen = all.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
        let asked: Caps = chosen.map(|(_, caps)| caps).collect();
        for info in ask_or_nothing(&base.clone().caps(asked))?.unwrap_or_default() {
            let got = info.caps;
            ensure!(got.contains(asked), "asked for {asked}, got {got}");
            let reach = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
            ensure!(got.intersects(reach), "nobody can be reached: {got}");
        }
    }
    Ok(())
}
