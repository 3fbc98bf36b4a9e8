//! The infos that discovery has returned, in a form that the application cannot change.
//!
//! The fields of an [`Info`] are public, and the library trusts the info that it opens an object
//! with: a larger inject size would overrun its buffers, and a registration mode that was removed
//! would make it use unregistered memory. So the provider refuses an `Info` that exceeds every
//! discovered info, and names the field.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use selvedge::info::{EpType, Threading};
use selvedge::{AddrFormat, Errno, Error, Info, Mode, MrMode};

use super::names;

/// The limits of the discovered infos of a library, each once.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredInfos(Mutex<Vec<InfoLimits>>);

/// The fields of one info on which the library's memory safety depends.
#[derive(Clone, Debug, PartialEq)]
struct InfoLimits {
    endpoint: EndpointIdentity,
    mode: Mode,
    mr_mode: MrMode,
    /// The largest values, by field.
    maxima: [(&'static str, usize); 5],
}

/// The endpoints that an info describes.
#[derive(Clone, Debug, PartialEq)]
struct EndpointIdentity {
    provider: String,
    fabric: String,
    domain: String,
    ep_type: EpType,
    addr_format: AddrFormat,
}

/// Modes that a program fulfils when it posts.
const POST_MODES: Mode = Mode::MSG_PREFIX;

impl InfoLimits {
    fn new(info: &Info) -> Self {
        let (tx, rx) = (&info.tx_attr, &info.rx_attr);
        Self {
            endpoint: EndpointIdentity {
                provider: names::without_layer(&info.fabric_attr.prov_name),
                fabric: info.fabric_attr.name.clone(),
                domain: info.domain_attr.name.clone(),
                ep_type: info.ep_attr.ep_type,
                addr_format: info.addr_format,
            },
            mode: info.mode & POST_MODES,
            mr_mode: info.domain_attr.mr_mode,
            maxima: [
                ("tx_attr.inject_size", tx.inject_size),
                ("tx_attr.iov_limit", tx.iov_limit),
                ("tx_attr.rma_iov_limit", tx.rma_iov_limit),
                ("rx_attr.iov_limit", rx.iov_limit),
                ("ep_attr.max_msg_size", info.ep_attr.max_msg_size),
            ],
        }
    }

    /// Checks that an `Info` for the same endpoints does not exceed these limits.
    ///
    /// # Errors
    /// [`Errno::Inval`] with the first field that exceeds a limit.
    fn allows(&self, requested: &Self) -> Result<(), Error> {
        for (&(field, offered), (_, requested)) in self.maxima.iter().zip(requested.maxima) {
            if requested > offered {
                return Err(exceeds(field, offered, requested));
            }
        }
        if !requested.mr_mode.contains(self.mr_mode) {
            return Err(exceeds(
                "domain_attr.mr_mode",
                self.mr_mode,
                requested.mr_mode,
            ));
        }
        if requested.mode.contains(self.mode) {
            Ok(())
        } else {
            Err(exceeds("mode", self.mode, requested.mode))
        }
    }
}

fn exceeds(field: &str, offered: impl fmt::Debug, requested: impl fmt::Debug) -> Error {
    let message = format!(
        "{field} of the Info is {requested:?}, but discovery returned {offered:?}: leave the field \
         unchanged, or request the value in the hints"
    );
    Error::new(Errno::Inval, message)
}

impl DiscoveredInfos {
    /// Adds a discovered info.
    pub(crate) fn add(&self, info: &Info) {
        let limits = InfoLimits::new(info);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&limits) {
            all.push(limits);
        }
    }

    /// Checks that an `Info` does not exceed a discovered info for the same endpoints.
    ///
    /// # Errors
    /// [`Errno::Inval`] with the field, or with the names if discovery returned no such endpoints.
    pub(crate) fn check(&self, info: &Info) -> Result<(), Error> {
        let requested = InfoLimits::new(info);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let candidates = all
            .iter()
            .filter(|limits| limits.endpoint == requested.endpoint);
        let mut mismatch = None;
        for limits in candidates {
            match limits.allows(&requested) {
                Ok(()) => return Ok(()),
                Err(error) => mismatch = Some(error),
            }
        }
        Err(mismatch.unwrap_or_else(|| {
            let endpoint = &requested.endpoint;
            let message = format!("discovery in this process has not returned {endpoint:?}: open only infos that discovery returned");
            Error::new(Errno::Inval, message)
        }))
    }
}

/// The threading level for the library: that of the `Info` if it needs more locks than the promise,
/// otherwise that of the promise.
pub(crate) fn threading(info: &Info) -> Threading {
    let promised = info.threading_promise();
    let field = info.domain_attr.threading;
    if lock_rank(field) < lock_rank(promised) {
        field
    } else {
        promised
    }
}

/// The rank of a level: levels with fewer locks have higher ranks, in libfabric's order.
fn lock_rank(threading: Threading) -> u32 {
    match threading {
        Threading::Safe => 1,
        Threading::Fid => 2,
        Threading::Endpoint => 3,
        Threading::Completion => 4,
        Threading::Domain => 5,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use selvedge::Hints;

    use super::*;

    /// A change of an `Info`.
    type Edit = fn(&mut Info);

    fn discovered_info() -> Info {
        let hints = Hints::new().edit(|info| {
            info.fabric_attr.prov_name = "tcp;ofi".into();
            info.tx_attr.inject_size = 64;
            (info.tx_attr.iov_limit, info.tx_attr.rma_iov_limit) = (4, 4);
            info.rx_attr.iov_limit = 4;
            info.ep_attr.max_msg_size = 1000;
            info.domain_attr.mr_mode = MrMode::LOCAL;
            info.mode = Mode::MSG_PREFIX;
        });
        hints.info().clone()
    }

    #[test]
    fn the_error_for_an_info_beyond_discovery_names_the_field() {
        let discovered = DiscoveredInfos::default();
        discovered.add(&discovered_info());
        discovered.check(&discovered_info()).unwrap();
        let edits: &[(&str, Edit)] = &[
            ("tx_attr.inject_size", |info| info.tx_attr.inject_size = 65),
            ("tx_attr.iov_limit", |info| info.tx_attr.iov_limit = 5),
            ("tx_attr.rma_iov_limit", |info| {
                info.tx_attr.rma_iov_limit = 5
            }),
            ("rx_attr.iov_limit", |info| info.rx_attr.iov_limit = 5),
            ("ep_attr.max_msg_size", |info| {
                info.ep_attr.max_msg_size = 1001
            }),
            ("domain_attr.mr_mode", |info| {
                info.domain_attr.mr_mode = MrMode::empty()
            }),
            ("mode", |info| info.mode = Mode::empty()),
            ("addr_format", |info| info.addr_format = AddrFormat::Str),
        ];
        for &(field, edit) in edits {
            let mut info = discovered_info();
            edit(&mut info);
            let error = discovered.check(&info).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            assert!(error.message().contains(field), "{field}: {error}");
        }
        let mut reduced = discovered_info();
        (reduced.tx_attr.inject_size, reduced.tx_attr.iov_limit) = (8, 1);
        reduced.domain_attr.mr_mode |= MrMode::VIRT_ADDR;
        discovered.check(&reduced).unwrap();
    }

    #[test]
    fn an_info_within_any_discovered_info_is_accepted() {
        let discovered = DiscoveredInfos::default();
        discovered.add(&discovered_info());
        let mut larger = discovered_info();
        larger.tx_attr.inject_size = 4096;
        discovered.check(&larger).unwrap_err();
        discovered.add(&larger);
        discovered.add(&larger);
        discovered.check(&larger).unwrap();
        assert_eq!(discovered.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn the_threading_field_cannot_remove_a_lock_of_the_library() {
        let mut info = discovered_info();
        for (field, effective) in [
            (Threading::Domain, Threading::Safe),
            (Threading::Unspec, Threading::Safe),
            (Threading::Safe, Threading::Safe),
        ] {
            info.domain_attr.threading = field;
            assert_eq!(threading(&info), effective, "{field}");
        }
        #[expect(unsafe_code, reason = "the promise about threads")]
        // SAFETY: no object is opened from these hints.
        let hints = unsafe { Hints::new().promise_threading(Threading::Domain) };
        let mut info = hints.info().clone();
        assert_eq!(threading(&info), Threading::Domain);
        info.domain_attr.threading = Threading::Safe;
        assert_eq!(threading(&info), Threading::Safe);
    }
}
