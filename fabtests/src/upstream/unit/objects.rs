//! `fi_dom_test`, `fi_av_test`, `fi_mr_test` and `fi_setopt_test`.

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
use crate::upstream::options::{Options, Sizes};
use crate::upstream::setup::discover::hints;
use crate::upstream::setup::domain;

fn info(options: &Options, caps: Caps) -> anyhow::Result<Info> {
    let hints = hints(options, caps, EpType::Unspec)?;
    Ok(registry()?.infos(&hints)?.remove(0))
}

/// Runs `fi_dom_test -n N`: domains of one fabric.
pub(in crate::upstream) fn dom_test(options: &Options) -> anyhow::Result<()> {
    let count: usize = options.number("n", 1)?;
    let info = info(options, Caps::empty())?;
    let fabric = info.fabric()?;
    let mut cases = Cases::default();
    cases.run("open and close", || {
        let domains: Result<Vec<_>, _> = (0..count).map(|_| fabric.domain(&info)).collect();
        let domains = domains?;
        ensure!(
            domains.len() == count,
            "opened {} domains, expected {count}",
            domains.len()
        );
        // Each domain works after the domains before it are closed.
        for domain in domains {
            domain.av(&av::Attr::default())?;
        }
        Ok(())
    });
    cases.finish()
}

/// Runs `fi_av_test -g GOOD -n N -s SOURCE`: address vectors with valid and invalid addresses.
pub(in crate::upstream) fn av_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options, Caps::MSG)?;
    let good = options.text("g").context("-g ADDRESS is missing")?;
    let count: usize = options.number("n", 1)?;
    let domain = domain::open(options, info.clone())?;
    let addresses = good_addresses(&info, good, count.max(1))?;
    let bad = bad_address(&info)?;
    if info.addr_format == AddrFormat::Str && domain.av()?.insert_one(&addresses[0]).is_err() {
        let name = &info.fabric_attr.prov_name;
        return Err(unsupported(format!(
            "the addresses of provider {name} cannot be constructed"
        )));
    }
    let open = |count: usize, av_type| {
        let mut attr = av::Attr::default();
        attr.count = count;
        attr.av_type = av_type;
        domain.domain().av(&attr)
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
            check_valid(&*open(count, av_type)?, &addresses)
        });
        cases.run(&format!("{name}: bad addresses"), || {
            check_invalid(&*open(count, av_type)?, &addresses[0], &bad)
        });
        cases.run(&format!("{name}: absent indices"), || {
            check_absent(&*open(count, av_type)?, &addresses[0])
        });
    }
    cases.run("insertions before and after an endpoint is opened", || {
        let av = domain.av()?;
        let before = av.insert_one(&addresses[0])?;
        let endpoint = domain.endpoint(EndpointConfig {
            av: Some(av.clone()),
            ..EndpointConfig::default()
        })?;
        let address = endpoint.ep.address()?;
        let after = av.insert_one(&address)?;
        ensure!(before != after, "two addresses have the same index");
        ensure!(
            av.lookup(after)? == address,
            "the lookup returns another address"
        );
        Ok(())
    });
    cases.finish()
}

/// Returns addresses that are derived from a valid address by counting.
fn good_addresses(info: &Info, good: &str, count: usize) -> anyhow::Result<Vec<Address>> {
    (0..count)
        .map(|number| match info.addr_format {
            AddrFormat::Str => Ok(Address::Str(format!("{good}.{number}"))),
            _ => {
                let ip = good
                    .parse()
                    .with_context(|| format!("-g {good:?} is no address"))?;
                let port =
                    u16::try_from(number + 2000).context("-n exceeds the number of ports")?;
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

fn check_valid(av: &dyn AddressVector, addresses: &[Address]) -> anyhow::Result<()> {
    let mut indices = vec![FiAddr::NOTAVAIL; addresses.len()];
    let inserted = av.insert(addresses, &mut indices)?;
    ensure!(
        inserted == addresses.len(),
        "inserted {inserted} of {} addresses",
        addresses.len()
    );
    for (index, address) in indices.iter().zip(addresses) {
        let found = av.lookup(*index)?;
        let is_same = found.to_string().ends_with(&address.to_string());
        ensure!(
            is_same,
            "inserted {address}, but the lookup returns {found}"
        );
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
            "the lookup of a removed index returns {found:?}, expected FI_EINVAL"
        );
    }
    Ok(())
}

fn check_invalid(av: &dyn AddressVector, good: &Address, bad: &Address) -> anyhow::Result<()> {
    let mut index = [FiAddr(0)];
    let inserted = av.insert(std::slice::from_ref(bad), &mut index)?;
    ensure!(
        inserted == 0 && index[0] == FiAddr::NOTAVAIL,
        "an invalid address has index {index:?}, expected FI_ADDR_NOTAVAIL"
    );
    let mixed = [bad.clone(), good.clone(), bad.clone()];
    let mut indices = [FiAddr(0); 3];
    let inserted = av.insert(&mixed, &mut indices)?;
    let has_one = indices[0] == FiAddr::NOTAVAIL
        && indices[1] != FiAddr::NOTAVAIL
        && indices[2] == FiAddr::NOTAVAIL;
    ensure!(
        inserted == 1 && has_one,
        "inserting one valid and two invalid addresses returns {inserted} with the indices {indices:?}"
    );
    av.lookup(indices[1])?;
    let result = av.insert(&mixed, &mut [FiAddr(0)]);
    ensure!(
        result == Err(Errno::Inval),
        "inserting with too few index slots returns {result:?}, expected FI_EINVAL"
    );
    Ok(())
}

fn check_absent(av: &dyn AddressVector, good: &Address) -> anyhow::Result<()> {
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
            "lookup and removal of the absent index {index:?} return {found:?} and {removed:?}, expected FI_EINVAL"
        );
    }
    av.remove(&[used])?;
    let result = av.remove(&[used]);
    ensure!(
        result == Err(Errno::Inval),
        "the second removal of an index returns {result:?}, expected FI_EINVAL"
    );
    Ok(())
}

/// All access rights, of which every combination is tested.
const RIGHTS: [MrAccess; 6] = [
    MrAccess::SEND,
    MrAccess::RECV,
    MrAccess::READ,
    MrAccess::WRITE,
    MrAccess::REMOTE_READ,
    MrAccess::REMOTE_WRITE,
];

/// Runs `fi_mr_test`: registrations of all sizes with all access rights.
pub(in crate::upstream) fn mr_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options, Caps::MSG | Caps::RMA)?;
    let limit = info.domain_attr.mr_iov_limit;
    let domain = domain::open(options, info)?;
    let mut cases = Cases::default();
    cases.run("register every size with every right", || {
        for size in Sizes::All.list(usize::MAX) {
            let block = domain.buffers(size)?;
            for mask in 0_u32..1 << RIGHTS.len() {
                let chosen = RIGHTS
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| mask >> index & 1 == 1);
                let access: MrAccess = chosen.map(|(_, right)| *right).collect();
                // The same key is used repeatedly: it is free after the region is closed.
                let rights = block.memory.register(domain.domain(), access, 0xC0DE);
                rights.with_context(|| format!("cannot register {size} bytes with {access}"))?;
            }
        }
        Ok(())
    });
    cases.run("a key in use", || {
        let access = MrAccess::REMOTE_READ;
        let (first_block, second_block) = (domain.buffers(64)?, domain.buffers(64)?);
        let first = first_block
            .memory
            .register(domain.domain(), access, 0xC0DE)?;
        if first.remote()?.key != 0xC0DE {
            return Err(unsupported("the provider chooses the keys"));
        }
        let second = second_block
            .memory
            .register(domain.domain(), access, 0xC0DE);
        ensure!(second.is_err(), "two regions have the same key");
        Ok(())
    });
    cases.run("regions of several segments", || {
        ensure!(
            limit > 0,
            "mr_iov_limit is 0 although remote access is supported"
        );
        let block = domain.buffers(64 * limit.min(16))?;
        for count in 1..=limit.min(16) {
            let access = MrAccess::REMOTE_WRITE;
            let region = block
                .memory
                .register_segments(domain.domain(), access, 0xC0DE, count);
            region.with_context(|| format!("cannot register {count} segments"))?;
        }
        Ok(())
    });
    cases.run("memory whose pages are replaced", || {
        let block = domain.buffers(1 << 20)?;
        for _ in 0..5 {
            let access = MrAccess::REMOTE_WRITE;
            drop(block.memory.register(domain.domain(), access, 0xC0DE)?);
            block.memory.renew()?;
        }
        Ok(())
    });
    cases.finish()
}

/// Runs `fi_setopt_test`: reads endpoint options, sets them to the same value, and reads them
/// again.
pub(in crate::upstream) fn setopt_test(options: &Options) -> anyhow::Result<()> {
    use EpOptionName as Name;
    let mut options = options.clone();
    options.ep_type.get_or_insert(EpType::Rdm);
    // Interface-specific options are known only to endpoints with that interface.
    let domain = domain::open(&options, info(&options, Caps::empty())?)?;
    let endpoint = domain.endpoint(EndpointConfig::default())?;
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
            let value = match endpoint.ep.option(name) {
                Ok(value) => value,
                Err(Errno::NoProtoOpt) => {
                    return Err(unsupported("the provider does not know the option"));
                }
                Err(errno) => return Err(errno).context("fi_getopt"),
            };
            match endpoint.ep.set(value) {
                Ok(()) | Err(Errno::NoProtoOpt | Errno::OpNotSupp | Errno::Inval) => {}
                Err(errno) => return Err(errno).context("fi_setopt"),
            }
            let after = endpoint.ep.option(name)?;
            ensure!(
                after == value,
                "set {value:?}, but reading returns {after:?}"
            );
            Ok(())
        });
    }
    cases.run("set and read a value", || {
        match endpoint.ep.set(EpOption::MinMultiRecv(12345)) {
            Ok(()) => {}
            Err(Errno::NoProtoOpt | Errno::OpNotSupp) => {
                return Err(unsupported("the provider cannot set the option"));
            }
            Err(errno) => bail!("FI_OPT_MIN_MULTI_RECV: {errno}"),
        }
        let after = endpoint.ep.option(Name::MinMultiRecv)?;
        ensure!(
            after == EpOption::MinMultiRecv(12345),
            "reading the option returns {after:?}, expected 12345"
        );
        Ok(())
    });
    cases.finish()
}
