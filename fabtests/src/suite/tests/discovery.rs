//! Discovery, fi_getinfo(3): what is answered is what was asked for, and it opens.

use selvedge::info::EpType;
use selvedge::{Caps, Errno, Hints};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::{Cx, RAW, Result, Test};
use crate::suite::flaw::Flaw;

tests! {
    capabilities(Caps::empty()) catches [IgnoresHints, DropsCaps] .faces(RAW).processes(1);
    limits(Caps::MSG) catches [IgnoresHints] .faces(RAW).processes(1);
    what_is_not_there(Caps::MSG) catches [IgnoresHints] .faces(RAW).processes(1);
    every_result_opens(Caps::empty()) catches [NeverCloses] .faces(RAW).processes(1);
}

const PRIMARY: [Caps; 5] = [
    Caps::MSG,
    Caps::TAGGED,
    Caps::RMA,
    Caps::ATOMIC,
    Caps::DIRECTED_RECV,
];

/// Whoever asks for capabilities gets those, and no other primary ones.
fn capabilities(cx: &mut Cx) -> Result {
    let mut found = 0;
    for set in 0..1_u32 << PRIMARY.len() {
        let asked = PRIMARY
            .iter()
            .enumerate()
            .filter(|(place, _)| set & (1 << place) != 0)
            .fold(Caps::empty(), |caps, (_, cap)| caps | *cap);
        let hints = Hints::new().provider(&cx.provider).caps(asked);
        for info in cx.registry().infos(&hints).unwrap_or_default() {
            let what = format!("asked for {asked}, got {}", info.caps);
            holds(&what, info.caps.contains(asked))?;
            let unasked = info.caps & (PRIMARY.into_iter().collect::<Caps>() - asked);
            // A modifier alone asks for nothing that it could modify.
            let is_anything = (asked - Caps::DIRECTED_RECV).is_empty();
            holds(what, is_anything || unasked.is_empty())?;
            found += 1;
        }
    }
    holds("there is something to find", found > 0)
}

/// Sizes that are asked for are there, and those beyond the limits are refused by name.
fn limits(cx: &mut Cx) -> Result {
    let has = cx.info_for(&cx.hints())?;
    let most = has.tx_attr.inject_size;
    let info = cx.info_for(&cx.hints().inject_size(most))?;
    holds(
        "the inject size that there is",
        info.tx_attr.inject_size >= most,
    )?;
    let refused = cx
        .registry()
        .infos(&cx.hints().inject_size(most.saturating_mul(1000) + 1));
    let text = refused
        .err()
        .map(|error| (error.errno(), error.to_string()));
    let (errno, text) = text.unwrap_or_else(|| (Errno::Other, "it was found".to_owned()));
    same("an inject size beyond the limit", errno, Errno::NoData)?;
    holds(
        format!("{text:?} names the attribute"),
        text.contains("inject_size"),
    )?;
    let pieces = has.tx_attr.iov_limit;
    let refused = cx.registry().infos(&cx.hints().iov_limit(pieces + 1000));
    holds("more pieces than there may be", refused.is_err())?;
    holds("messages of some size", has.ep_attr.max_msg_size > 0)?;
    holds(
        "room for operations",
        has.tx_attr.size > 0 && has.rx_attr.size > 0,
    )
}

/// Names that nobody has.
fn what_is_not_there(cx: &mut Cx) -> Result {
    let odd = [
        cx.hints().domain("no such domain"),
        cx.hints().fabric("no such fabric"),
        cx.hints().provider("no such provider"),
        cx.hints().caps(Caps::MSG | Caps::XPU),
    ];
    for hints in odd {
        let errno = cx.registry().infos(&hints).err().map(|error| error.errno());
        same("what is not there", errno, Some(Errno::NoData))?;
    }
    Ok(())
}

/// Every result can be opened, and says which API it is of.
fn every_result_opens(cx: &mut Cx) -> Result {
    let infos = cx.registry().infos(&Hints::new().provider(&cx.provider))?;
    holds("there are results", !infos.is_empty())?;
    for info in infos {
        same(
            "provider",
            info.fabric_attr.prov_name.as_str(),
            cx.provider.as_str(),
        )?;
        same(
            "API version",
            info.fabric_attr.api_version,
            selvedge::info::Version::API,
        )?;
        holds("a kind of endpoint", info.ep_attr.ep_type != EpType::Unspec)?;
        let domain = info.open()?;
        holds("a queue", domain.cq(&selvedge::cq::Attr::default()).is_ok())?;
        holds(
            "an address vector",
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
