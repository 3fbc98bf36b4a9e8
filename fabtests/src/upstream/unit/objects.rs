//! `fi_dom_test`, `fi_av_test`, `fi_mr_test`, `fi_setopt_test`.

use anyhow::{Context as _, bail, ensure};
use selvedge::info::EpType;
use selvedge::{
    AddrFormat, Address, AddressVector, Caps, EpOption, EpOptionName, Errno, FiAddr, Info,
    MrAccess, av,
};
use selvedge_testkit::domain::EndpointConfig;
use selvedge_testkit::failure::unsupported;

use super::Cases;
use crate::suite::defect::registry;
use crate::upstream::discover::hints;
use crate::upstream::ground;
use crate::upstream::options::{Options, Sizes};

fn info(options: &Options, caps: Caps) -> anyhow::Result<Info> {
    let hints = hints(options, caps, EpType::Unspec)?;
    Ok(registry()?.infos(&hints)?.remove(0))
}

/// `fi_dom_test -n N`: domains of one fabric.
pub(in crate::upstream) fn dom_test(options: &Options) -> anyhow::Result<()> {
    let count: usize = options.number("n", 1)?;
    let info = info(options, Caps::empty())?;
    let fabric = info.fabric()?;
    let mut cases = Cases::default();
    cases.run("open and close", || {
        let domains: Result<Vec<_>, _> = (0..count).map(|_| fabric.domain(&info)).collect();
        let domains = domains?;
        ensure!(domains.len() == count, "{} domains", domains.len());
        // Each is of use on its own, whichever goes first.
        for domain in domains {
            domain.av(&av::Attr::default())?;
        }
        Ok(())
    });
    cases.end()
}

/// `fi_av_test -g GOOD -n N -s SOURCE`: address vectors, with addresses that are good and bad.
pub(in crate::upstream) fn av_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options, Caps::MSG)?;
    let good = options.text("g").context("-g ADDRESS is missing")?;
    let count: usize = options.number("n", 1)?;
    let ground = ground::open(options, info.clone())?;
    let addresses = good_addresses(&info, good, count.max(1))?;
    let bad = bad_address(&info)?;
    if info.addr_format == AddrFormat::Str && ground.av()?.insert_one(&addresses[0]).is_err() {
        let name = &info.fabric_attr.prov_name;
        return Err(unsupported(format!(
            "{name} has addresses that nobody can make up"
        )));
    }
    let open = |count: usize, av_type| {
        let mut attr = av::Attr::default();
        attr.count = count;
        attr.av_type = av_type;
        ground.domain().av(&attr)
    };
    let mut cases = Cases::default();
    cases.run("open", || {
        for power in 0..=16 {
            open(1 << power, av::Type::Unspec)?;
        }
        Ok(())
    });
    for av_type in [av::Type::Unspec, av::Type::Table, av::Type::Map] {
        let name = av_type.text();
        cases.run(&format!("{name}: good addresses"), || {
            good_ones(&*open(count, av_type)?, &addresses)
        });
        cases.run(&format!("{name}: bad addresses"), || {
            bad_ones(&*open(count, av_type)?, &addresses[0], &bad)
        });
        cases.run(&format!("{name}: what is not there"), || {
            absent_ones(&*open(count, av_type)?, &addresses[0])
        });
    }
    cases.run("insertions before and after an endpoint is opened", || {
        let av = ground.av()?;
        let before = av.insert_one(&addresses[0])?;
        let end = ground.endpoint(EndpointConfig {
            av: Some(av.clone()),
            ..EndpointConfig::default()
        })?;
        let own = end.ep.address()?;
        let after = av.insert_one(&own)?;
        ensure!(before != after, "two addresses have one index");
        ensure!(av.lookup(after)? == own, "another address is found");
        Ok(())
    });
    cases.end()
}

/// Addresses that count up from a good one.
fn good_addresses(info: &Info, good: &str, count: usize) -> anyhow::Result<Vec<Address>> {
    (0..count)
        .map(|number| match info.addr_format {
            AddrFormat::Str => Ok(Address::Str(format!("{good}.{number}"))),
            _ => {
                let ip = good
                    .parse()
                    .with_context(|| format!("-g {good:?} is no address"))?;
                let port = u16::try_from(number + 2000).context("too many addresses")?;
                Ok(Address::Ip(std::net::SocketAddr::new(ip, port)))
            }
        })
        .collect()
}

fn bad_address(info: &Info) -> anyhow::Result<Address> {
    match info.addr_format {
        AddrFormat::Str => Ok(Address::Str("no name has spaces".into())),
        _ => Ok("0.0.0.0:0".parse()?),
    }
}

fn good_ones(av: &dyn AddressVector, addresses: &[Address]) -> anyhow::Result<()> {
    let mut indices = vec![FiAddr::NOTAVAIL; addresses.len()];
    let inserted = av.insert(addresses, &mut indices)?;
    ensure!(
        inserted == addresses.len(),
        "{inserted} of {}",
        addresses.len()
    );
    for (index, address) in indices.iter().zip(addresses) {
        let found = av.lookup(*index)?;
        let same = found.to_string().ends_with(&address.to_string());
        ensure!(same, "{address} is inserted, and {found} is found");
    }
    let mut sorted = indices.clone();
    sorted.sort();
    sorted.dedup();
    ensure!(
        sorted.len() == addresses.len(),
        "indices repeat: {indices:?}"
    );
    av.remove(&indices)?;
    for index in indices {
        let found = av.lookup(index);
        ensure!(
            found == Err(Errno::Inval),
            "removed, and yet found: {found:?}"
        );
    }
    Ok(())
}

fn bad_ones(av: &dyn AddressVector, good: &Address, bad: &Address) -> anyhow::Result<()> {
    let mut index = [FiAddr(0)];
    let inserted = av.insert(std::slice::from_ref(bad), &mut index)?;
    ensure!(
        inserted == 0 && index[0] == FiAddr::NOTAVAIL,
        "a bad address has index {index:?}"
    );
    let mixed = [bad.clone(), good.clone(), bad.clone()];
    let mut indices = [FiAddr(0); 3];
    let inserted = av.insert(&mixed, &mut indices)?;
    let has_one = indices[0] == FiAddr::NOTAVAIL
        && indices[1] != FiAddr::NOTAVAIL
        && indices[2] == FiAddr::NOTAVAIL;
    ensure!(inserted == 1 && has_one, "{inserted} of {indices:?}");
    av.lookup(indices[1])?;
    let short = av.insert(&mixed, &mut [FiAddr(0)]);
    ensure!(short == Err(Errno::Inval), "a short list is {short:?}");
    Ok(())
}

fn absent_ones(av: &dyn AddressVector, good: &Address) -> anyhow::Result<()> {
    let used = av.insert_one(good)?;
    for index in [
        FiAddr(used.0 + 1),
        FiAddr(1 << 20),
        FiAddr(u64::MAX),
        FiAddr(u64::MAX - 1),
    ] {
        let (found, removed) = (av.lookup(index), av.remove(&[index]));
        ensure!(
            found == Err(Errno::Inval) && removed == Err(Errno::Inval),
            "index {index:?}: {found:?}, {removed:?}"
        );
    }
    av.remove(&[used])?;
    let again = av.remove(&[used]);
    ensure!(again == Err(Errno::Inval), "removed twice: {again:?}");
    Ok(())
}

/// Every right, alone and with others.
const RIGHTS: [MrAccess; 6] = [
    MrAccess::SEND,
    MrAccess::RECV,
    MrAccess::READ,
    MrAccess::WRITE,
    MrAccess::REMOTE_READ,
    MrAccess::REMOTE_WRITE,
];

/// `fi_mr_test`: registrations of every size with every right.
pub(in crate::upstream) fn mr_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options, Caps::MSG | Caps::RMA)?;
    let limit = info.domain_attr.mr_iov_limit;
    let ground = ground::open(options, info)?;
    let mut cases = Cases::default();
    cases.run("register every size with every right", || {
        for size in Sizes::All.list(usize::MAX) {
            let block = ground.buffers(size)?;
            for mask in 0_u32..1 << RIGHTS.len() {
                let chosen = RIGHTS
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| mask >> at & 1 == 1);
                let access: MrAccess = chosen.map(|(_, right)| *right).collect();
                // The same key again and again: it is free when the region is gone.
                let rights = block.memory.register(ground.domain(), access, 0xC0DE);
                rights.with_context(|| format!("{size} bytes with {access}"))?;
            }
        }
        Ok(())
    });
    cases.run("a key that is taken", || {
        let access = MrAccess::REMOTE_READ;
        let (one, two) = (ground.buffers(64)?, ground.buffers(64)?);
        let first = one.memory.register(ground.domain(), access, 0xC0DE)?;
        if first.remote()?.key != 0xC0DE {
            return Err(unsupported("the provider chooses the keys"));
        }
        let second = two.memory.register(ground.domain(), access, 0xC0DE);
        ensure!(second.is_err(), "two regions have one key");
        Ok(())
    });
    cases.run("regions in pieces", || {
        ensure!(limit > 0, "mr_iov_limit is 0, and there is remote access");
        let block = ground.buffers(64 * limit.min(16))?;
        for count in 1..=limit.min(16) {
            let access = MrAccess::REMOTE_WRITE;
            let region = block
                .memory
                .register_segments(ground.domain(), access, 0xC0DE, count);
            region.with_context(|| format!("{count} pieces"))?;
        }
        Ok(())
    });
    cases.run("memory whose pages are others each time", || {
        let block = ground.buffers(1 << 20)?;
        for _ in 0..5 {
            let access = MrAccess::REMOTE_WRITE;
            drop(block.memory.register(ground.domain(), access, 0xC0DE)?);
            block.memory.renew()?;
        }
        Ok(())
    });
    cases.end()
}

/// `fi_setopt_test`: options of endpoints that are read, set to the same again, and read.
pub(in crate::upstream) fn setopt_test(options: &Options) -> anyhow::Result<()> {
    use EpOptionName as Name;
    let mut options = options.clone();
    options.ep_type.get_or_insert(EpType::Rdm);
    // An option of an interface is known to endpoints that have it.
    let ground = ground::open(&options, info(&options, Caps::empty())?)?;
    let end = ground.endpoint(EndpointConfig::default())?;
    let mut cases = Cases::default();
    for name in [
        Name::MinMultiRecv,
        Name::CmDataSize,
        Name::MaxMsgSize,
        Name::MaxTaggedSize,
        Name::MaxRmaSize,
        Name::MaxAtomicSize,
        Name::InjectMsgSize,
        Name::InjectTaggedSize,
        Name::InjectRmaSize,
        Name::InjectAtomicSize,
    ] {
        cases.run(&format!("{name:?}"), || {
            let value = match end.ep.option(name) {
                Ok(value) => value,
                Err(Errno::NoProtoOpt) => return Err(unsupported("not known")),
                Err(errno) => return Err(errno).context("fi_getopt"),
            };
            match end.ep.set(value) {
                Ok(()) | Err(Errno::NoProtoOpt | Errno::OpNotSupp | Errno::Inval) => {}
                Err(errno) => return Err(errno).context("fi_setopt"),
            }
            let after = end.ep.option(name)?;
            ensure!(after == value, "{value:?} has become {after:?}");
            Ok(())
        });
    }
    cases.run("a value that is set is there", || {
        match end.ep.set(EpOption::MinMultiRecv(12345)) {
            Ok(()) => {}
            Err(Errno::NoProtoOpt | Errno::OpNotSupp) => return Err(unsupported("cannot be set")),
            Err(errno) => bail!("FI_OPT_MIN_MULTI_RECV: {errno}"),
        }
        let now = end.ep.option(Name::MinMultiRecv)?;
        ensure!(now == EpOption::MinMultiRecv(12345), "it is {now:?}");
        Ok(())
    });
    cases.end()
}
