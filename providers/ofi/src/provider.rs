//! The provider: what discovery is told.

use std::ffi::CString;
use std::sync::Arc;

use selvedge::info::{Candidate, Mismatch, Version};
use selvedge::param::{Params, Spec};
use selvedge::{Caps, Errno, Error, Hints, Info, Mode, MrMode, Provider, Query};
use selvedge_kit::attr;

use crate::contexts;
use crate::fabric::Fabric;
use crate::library::{self, Library, Ours, PARAMS};
use crate::names;

/// The ofi provider, for a [`selvedge::Registry`].
#[derive(Clone, Copy, Debug)]
pub struct Ofi;

impl Provider for Ofi {
    fn name(&self) -> &'static str {
        names::LAYER
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn params(&self) -> &'static [Spec] {
        PARAMS
    }

    fn is_enabled(&self, params: &Params) -> bool {
        library::is_asked_for(params)
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        if !library::is_asked_for(query.params) {
            return Ok(Vec::new());
        }
        let library = library::of(query.params)?;
        let node = text("node", query.node)?;
        let service = text("service", query.service)?;
        let version = library.api(query.version.max(OLDEST));
        let hints = Ours::of(&asked(query.hints, version), std::ptr::null_mut());
        let hints = hints.map_err(|errno| Error::new(errno, "hints for libfabric"))?;
        match library.find(version, (&node, &service), query.flags, &hints) {
            Ok(Some(found)) => {
                let all = offers(library, found.each()).into_iter();
                Ok(all.map(|offer| named_rightly(offer?, query)).collect())
            }
            Ok(None) | Err(Errno::NoData) => Ok(refusals(library, query, version)),
            Err(errno) => Err(library.trouble("fi_getinfo", -errno.as_raw())),
        }
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        Ok(Arc::new(Fabric::open(library::of(info.params())?, info)?))
    }
}

/// Older programs mean other things by the modes of registration.
const OLDEST: Version = Version::new(1, 9);

/// Duties of registration that the object model has calls for. The last two are seen to here.
const MR_DUTIES: MrMode = MrMode::LOCAL
    .union(MrMode::VIRT_ADDR)
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY)
    .union(MrMode::ENDPOINT)
    .union(MrMode::RMA_EVENT);
/// Those that are never the application's.
const MR_OWN: MrMode = MrMode::ENDPOINT.union(MrMode::RMA_EVENT);
/// Duties that the application may take on.
const DUTIES: Mode = Mode::MSG_PREFIX.union(Mode::RX_CQ_DATA);

/// The hints as the library is to see them: with what we do for the application added, and what the
/// object model has no call for left out.
fn asked(hints: &Hints, version: Version) -> Info {
    let mut info = hints.info().clone();
    let name = names::core(&info.fabric_attr.prov_name);
    let is_one_name = !name.contains([',', '^']);
    info.fabric_attr.prov_name = if is_one_name { name } else { String::new() };
    info.fabric_attr.api_version = version;
    info.mode = (info.mode & DUTIES) | contexts::MODES;
    let mr_mode = &mut info.domain_attr.mr_mode;
    *mr_mode = (*mr_mode & MR_DUTIES) | MR_OWN;
    info.domain_attr.threading = hints.info().threading_promise();
    info.domain_attr.mode = Mode::empty();
    info.tx_attr.mode = Mode::empty();
    info.rx_attr.mode = Mode::empty();
    info.handle = 0;
    info.nic = None;
    info
}

fn offers(library: &Library, found: Vec<Result<Info, Errno>>) -> Vec<Candidate> {
    let known = found.into_iter().filter_map(|info| match info {
        Ok(info) => {
            library.note(&info);
            let offered = offered(info);
            library.keep_answer(&offered);
            Some(Ok(offered))
        }
        Err(errno) => {
            log::info!(
                target: "selvedge::ofi::core",
                "{library:?} has something that cannot be said here: {errno}"
            );
            None
        }
    });
    known.collect()
}

/// What a library may have and its endpoints do not offer here: work that waits and address vectors
/// with names would need objects of the library's own, as do collectives, and numbers for peers are
/// newer than most.
const LACKED: Caps = Caps::TRIGGER
    .union(Caps::COLLECTIVE)
    .union(Caps::AV_USER_ID)
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SHARED_AV);

/// What the library has, as it is offered.
pub(crate) fn offered(mut info: Info) -> Info {
    info.fabric_attr.prov_name = names::layered(&info.fabric_attr.prov_name);
    info.handle = 0;
    for caps in [
        &mut info.caps,
        &mut info.tx_attr.caps,
        &mut info.rx_attr.caps,
        &mut info.domain_attr.caps,
    ] {
        caps.remove(LACKED);
    }
    let domain = &mut info.domain_attr;
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (0, 0);
    for most in [&mut domain.max_ep_tx_ctx, &mut domain.max_ep_rx_ctx] {
        *most = 1.min(*most);
    }
    for mode in [
        &mut info.mode,
        &mut info.domain_attr.mode,
        &mut info.tx_attr.mode,
        &mut info.rx_attr.mode,
    ] {
        *mode = mode.difference(contexts::MODES);
    }
    info
}

/// Some providers look neither at names nor at capabilities that they do not know.
fn named_rightly(info: Info, query: &Query<'_>) -> Candidate {
    let asked = query.hints.info();
    let names = [
        (
            "fabric_attr.name",
            &asked.fabric_attr.name,
            &info.fabric_attr.name,
        ),
        (
            "domain_attr.name",
            &asked.domain_attr.name,
            &info.domain_attr.name,
        ),
    ];
    for (field, asked, has) in names {
        if !asked.is_empty() && asked != has {
            return Err(Mismatch::new(field, asked, has).of(&info));
        }
    }
    match info.caps.contains(asked.caps) {
        true => Ok(info),
        false => Err(Mismatch::new("caps", asked.caps, info.caps).of(&info)),
    }
}

/// Why there is nothing: the library does not say it, but what it has without the hints, held against
/// them, mostly does.
fn refusals(library: &'static Library, query: &Query<'_>, version: Version) -> Vec<Candidate> {
    let name = query.hints.info().fabric_attr.prov_name.as_str();
    let anything = Hints::anything().provider(name);
    let found = Ours::of(&asked(&anything, version), std::ptr::null_mut())
        .and_then(|hints| library.find(version, (&None, &None), query.flags, &hints));
    let all = found
        .ok()
        .flatten()
        .map(|found| offers(library, found.each()));
    let all = all.unwrap_or_default().into_iter().flatten();
    let mut refused: Vec<_> = all
        .filter_map(|info| attr::check(&info, query).err())
        .map(Err)
        .collect();
    if refused.is_empty() {
        refused.push(nothing(library));
    }
    refused
}

fn nothing(library: &Library) -> Candidate {
    let has = format!("nothing of the kind in libfabric {}", library.version());
    Err(Mismatch::new("hints", "what they say", has))
}

fn text(what: &str, value: Option<&str>) -> Result<Option<CString>, Error> {
    let value = value.map(CString::new).transpose();
    value.map_err(|_| Error::new(Errno::Inval, format!("{what} with a zero in it")))
}
