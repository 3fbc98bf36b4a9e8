//! Discovery, fi_getinfo(3): results match the request, and can be opened.

use selvedge::info::EpType;
use selvedge::{Caps, Errno, Hints};

use crate::suite::context::check::{holds, same};
use crate::suite::context::{RAW, Result, Test, TestContext};
use crate::suite::defect::Defect;

tests! {
    capabilities(Caps::empty()) catches [IgnoresHints, DropsCaps] .apis(RAW).processes(1);
    limits(Caps::MSG) catches [IgnoresHints] .apis(RAW).processes(1);
    unknown_names(Caps::MSG) catches [IgnoresHints] .apis(RAW).processes(1);
    every_result_opens(Caps::empty()) catches [NeverCloses] .apis(RAW).processes(1);
}

const PRIMARY: [Caps; 5] = [
    Caps::MSG,
    Caps::TAGGED,
    Caps::RMA,
    Caps::ATOMIC,
    Caps::DIRECTED_RECV,
];

/// The results of a request for capabilities have these capabilities, and no other primary ones.
fn capabilities(ctx: &mut TestContext) -> Result {
    let mut found = 0;
    for set in 0..1_u32 << PRIMARY.len() {
        let requested = PRIMARY
            .iter()
            .enumerate()
            .filter(|(index, _)| set & (1 << index) != 0)
            .fold(Caps::empty(), |caps, (_, cap)| caps | *cap);
        let hints = Hints::new().provider(&ctx.provider).caps(requested);
        for info in ctx.registry().infos(&hints).unwrap_or_default() {
            let message = format!("requested {requested}, but {} is returned", info.caps);
            holds(&message, info.caps.contains(requested))?;
            let unrequested = info.caps & (PRIMARY.into_iter().collect::<Caps>() - requested);
            // `DIRECTED_RECV` modifies other capabilities: a request for it alone may be answered
            // with any of them.
            let allows_all = (requested - Caps::DIRECTED_RECV).is_empty();
            holds(message, allows_all || unrequested.is_empty())?;
            found += 1;
        }
    }
    holds("there are results", found > 0)
}

/// A request for the advertised inject size succeeds. Requests beyond the limits are refused, and
/// the error text names the attribute.
fn limits(ctx: &mut TestContext) -> Result {
    let advertised = ctx.info_for(&ctx.hints())?;
    let limit = advertised.tx_attr.inject_size;
    let info = ctx.info_for(&ctx.hints().inject_size(limit))?;
    holds(
        "the advertised inject size can be requested",
        info.tx_attr.inject_size >= limit,
    )?;
    let refused = ctx
        .registry()
        .infos(&ctx.hints().inject_size(limit.saturating_mul(1000) + 1));
    let error = refused
        .err()
        .map(|error| (error.errno(), error.to_string()));
    let (errno, text) = error.unwrap_or_else(|| (Errno::Other, "the request succeeded".to_owned()));
    same("an inject size beyond the limit", errno, Errno::NoData)?;
    holds(
        format!("{text:?} names the attribute"),
        text.contains("inject_size"),
    )?;
    let iov_limit = advertised.tx_attr.iov_limit;
    let refused = ctx
        .registry()
        .infos(&ctx.hints().iov_limit(iov_limit + 1000));
    holds(
        "a request for more segments than the limit is refused",
        refused.is_err(),
    )?;
    holds(
        "the maximum message size is above 0",
        advertised.ep_attr.max_msg_size > 0,
    )?;
    holds(
        "both queues have room for operations",
        advertised.tx_attr.size > 0 && advertised.rx_attr.size > 0,
    )
}

/// Requests for names that do not exist, and for a capability that no provider has, find nothing.
fn unknown_names(ctx: &mut TestContext) -> Result {
    let requests = [
        ctx.hints().domain("no such domain"),
        ctx.hints().fabric("no such fabric"),
        ctx.hints().provider("no such provider"),
        ctx.hints().caps(Caps::MSG | Caps::XPU),
    ];
    for hints in requests {
        let errno = ctx
            .registry()
            .infos(&hints)
            .err()
            .map(|error| error.errno());
        same(
            "a request that no provider fulfils",
            errno,
            Some(Errno::NoData),
        )?;
    }
    Ok(())
}

/// Every result can be opened, and has the current API version.
fn every_result_opens(ctx: &mut TestContext) -> Result {
    let infos = ctx
        .registry()
        .infos(&Hints::new().provider(&ctx.provider))?;
    holds("there are results", !infos.is_empty())?;
    for info in infos {
        same(
            "provider",
            info.fabric_attr.prov_name.as_str(),
            ctx.provider.as_str(),
        )?;
        same(
            "API version",
            info.fabric_attr.api_version,
            selvedge::info::Version::API,
        )?;
        holds(
            "the endpoint type is specified",
            info.ep_attr.ep_type != EpType::Unspec,
        )?;
        let domain = info.open()?;
        holds(
            "a completion queue can be opened",
            domain.cq(&selvedge::cq::Attr::default()).is_ok(),
        )?;
        holds(
            "an address vector can be opened",
            domain.av(&selvedge::av::Attr::default()).is_ok(),
        )?;
        if info.ep_attr.ep_type != EpType::Msg {
            let cq = domain.cq(&selvedge::cq::Attr::default())?;
            let av = domain.av(&selvedge::av::Attr::default())?;
            domain.endpoint(&info, selvedge::Bindings::new(cq, av))?;
        }
    }
    Ok(())
}
