//! The provider: discovery.

use std::ffi::CString;
use std::sync::Arc;

use selvedge::info::{Candidate, Mismatch, Version};
use selvedge::param::{Params, Spec};
use selvedge::{Caps, Errno, Error, Hints, Info, Mode, MrMode, Provider, Query};
use selvedge_kit::attr;

use crate::contexts;
use crate::fabric::Fabric;
use crate::library::{self, Library, OwnInfo, PARAMS};
use crate::library::{implied_caps, names};

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
        library::is_requested(params)
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        if !library::is_requested(query.params) {
            return Ok(Vec::new());
        }
        let library = library::load_requested(query.params)?;
        let node = text("node", query.node)?;
        let service = text("service", query.service)?;
        let version = library.api(query.version.max(OLDEST_API));
        let hints = OwnInfo::new(&library_hints(query.hints, version), std::ptr::null_mut());
        let hints = hints.map_err(|errno| Error::new(errno, "hints for libfabric"))?;
        match library.discover(version, (&node, &service), query.flags, &hints) {
            Ok(Some(found)) => {
                let all = to_offered(library, found.to_infos(), query).into_iter();
                Ok(all
                    .map(|candidate| check_names(candidate?, query))
                    .collect())
            }
            Ok(None) | Err(Errno::NoData) => Ok(mismatches(library, query, version)),
            Err(errno) => Err(library.call_error("fi_getinfo", -errno.as_raw())),
        }
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        Ok(Arc::new(Fabric::open(
            library::load_requested(info.params())?,
            info,
        )?))
    }
}

/// Older API versions give the registration modes other meanings.
const OLDEST_API: Version = Version::new(1, 9);

/// Registration modes for which the object model has calls. This provider itself fulfils the last
/// two.
const SUPPORTED_MR_MODES: MrMode = MrMode::LOCAL
    .union(MrMode::VIRT_ADDR)
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY)
    .union(MrMode::ENDPOINT)
    .union(MrMode::RMA_EVENT)
    .union(MrMode::HMEM);
/// Registration modes that the application never has to fulfil.
const INTERNAL_MR_MODES: MrMode = MrMode::ENDPOINT.union(MrMode::RMA_EVENT);
/// Modes that the application may fulfil.
const SUPPORTED_MODES: Mode = Mode::MSG_PREFIX.union(Mode::RX_CQ_DATA);

/// The hints for the library: with the modes that this provider fulfils for the application, and
/// without the fields for which the object model has no call.
fn library_hints(hints: &Hints, version: Version) -> Info {
    let mut info = hints.info().clone();
    let name = names::without_layer(&info.fabric_attr.prov_name);
    let is_one_name = !name.contains([',', '^']);
    info.fabric_attr.prov_name = if is_one_name { name } else { String::new() };
    info.fabric_attr.api_version = version;
    implied_caps::remove(&mut info);
    info.mode = (info.mode & SUPPORTED_MODES) | contexts::MODES;
    let mr_mode = &mut info.domain_attr.mr_mode;
    *mr_mode = (*mr_mode & SUPPORTED_MR_MODES) | INTERNAL_MR_MODES;
    info.domain_attr.threading = hints.info().threading_promise();
    info.domain_attr.mode = Mode::empty();
    info.tx_attr.mode = Mode::empty();
    info.rx_attr.mode = Mode::empty();
    info.handle = 0;
    info.nic = None;
    info
}

fn to_offered(
    library: &Library,
    found: Vec<Result<Info, Errno>>,
    query: &Query<'_>,
) -> Vec<Candidate> {
    let candidates = found.into_iter().filter_map(|info| match info {
        Ok(info) => {
            library.record_context_mode(&info);
            let mut offered = offered_info(info);
            implied_caps::add(&mut offered, query.hints.info().caps);
            library.record_discovered(&offered);
            Some(Ok(offered))
        }
        Err(errno) => {
            log::info!(
                target: "selvedge::ofi::core",
                "skipped an info of {library:?} that the object model cannot express: {errno}"
            );
            None
        }
    });
    candidates.collect()
}

/// Capabilities of a library that this provider does not offer. Deferred work, named address
/// vectors and collectives would need objects of the library. User IDs of peers are newer than most
/// libraries.
const UNSUPPORTED_CAPS: Caps = Caps::TRIGGER
    .union(Caps::COLLECTIVE)
    .union(Caps::AV_USER_ID)
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SHARED_AV);

/// Converts an info of the library to the info that the provider offers.
pub(crate) fn offered_info(mut info: Info) -> Info {
    info.fabric_attr.prov_name = names::with_layer(&info.fabric_attr.prov_name);
    info.handle = 0;
    for caps in [
        &mut info.caps,
        &mut info.tx_attr.caps,
        &mut info.rx_attr.caps,
        &mut info.domain_attr.caps,
    ] {
        caps.remove(UNSUPPORTED_CAPS);
    }
    let domain = &mut info.domain_attr;
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (0, 0);
    for limit in [&mut domain.max_ep_tx_ctx, &mut domain.max_ep_rx_ctx] {
        *limit = 1.min(*limit);
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

/// Checks names and capabilities, because some of the library's providers ignore names and
/// capabilities that they do not have.
fn check_names(info: Info, query: &Query<'_>) -> Candidate {
    let requested = query.hints.info();
    let names = [
        (
            "fabric_attr.name",
            &requested.fabric_attr.name,
            &info.fabric_attr.name,
        ),
        (
            "domain_attr.name",
            &requested.domain_attr.name,
            &info.domain_attr.name,
        ),
    ];
    for (field, requested, has) in names {
        if !requested.is_empty() && requested != has {
            return Err(Mismatch::new(field, requested, has).of(&info));
        }
    }
    if info.caps.contains(requested.caps) {
        Ok(info)
    } else {
        Err(Mismatch::new("caps", requested.caps, info.caps).of(&info))
    }
}

/// Explains an empty result. The library states no reasons, so this function compares the hints
/// with the infos that the library returns without hints.
fn mismatches(library: &'static Library, query: &Query<'_>, version: Version) -> Vec<Candidate> {
    let name = query.hints.info().fabric_attr.prov_name.as_str();
    let anything = Hints::anything().provider(name);
    let found = OwnInfo::new(&library_hints(&anything, version), std::ptr::null_mut())
        .and_then(|hints| library.discover(version, (&None, &None), query.flags, &hints));
    let all = found
        .ok()
        .flatten()
        .map(|found| to_offered(library, found.to_infos(), query));
    let all = all.unwrap_or_default().into_iter().flatten();
    let mut mismatches_found: Vec<_> = all
        .filter_map(|info| attr::check(&info, query).err())
        .map(Err)
        .collect();
    if mismatches_found.is_empty() {
        mismatches_found.push(no_match(library));
    }
    mismatches_found
}

fn no_match(library: &Library) -> Candidate {
    let has = format!("no match in libfabric {}", library.version());
    Err(Mismatch::new("hints", "the requested values", has))
}

fn text(argument: &str, value: Option<&str>) -> Result<Option<CString>, Error> {
    let value = value.map(CString::new).transpose();
    value.map_err(|_| {
        Error::new(
            Errno::Inval,
            format!("{argument} has a zero byte: remove it"),
        )
    })
}
