//! Discovers usable providers and opens an endpoint of one of them.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use selvedge::cq::Entry;
use selvedge::info::{EpType, Threading, Version};
use selvedge::param::Params;
use selvedge::{
    Bindings, Caps, EpOption, Errno, FiAddr, Hints, Info, InfoFlags, MsgOrder, Registry, av, cq,
    wait,
};

use super::endpoint::{BATCH, Fabric};
use super::names;
use super::peers::Peers;
use super::unexpected::{self, Slabs};
use crate::method::{Method, Module, Setup};
use crate::support::gossip;
use crate::url::Url;
use crate::{Code, Error};

/// The methods over Selvedge: one for each provider with the capabilities that BMI needs, in the
/// order of discovery.
pub fn modules() -> &'static [&'static dyn Module] {
    static MODULES: OnceLock<Vec<&'static dyn Module>> = OnceLock::new();
    MODULES.get_or_init(|| discover().into_iter().map(leak).collect())
}

fn leak(provider: Provider) -> &'static dyn Module {
    Box::leak(Box::new(provider))
}

/// One provider.
#[derive(Debug)]
struct Provider {
    name: String,
}

fn discover() -> Vec<Provider> {
    let infos = registry().infos(&hints(None));
    let infos = infos.unwrap_or_else(|error| {
        gossip::err(format_args!("{error}"));
        Vec::new()
    });
    let mut providers: Vec<Provider> = Vec::new();
    for info in infos {
        let name = info.fabric_attr.prov_name;
        if !providers.iter().any(|provider| provider.name == name) {
            providers.push(Provider { name });
        }
    }
    providers
}

/// The built-in providers, with the parameters of the environment and [`NO_WAIT`].
fn registry() -> Registry {
    selvedge_providers::builtin().with_params(params(Params::from_env()))
}

fn params(env: Params) -> Params {
    NO_WAIT
        .iter()
        .fold(env, |params, name| match params.raw(name) {
            Some(_) => params,
            None => params.set(*name, "0"),
        })
}

/// Parameters that are 0 unless the environment sets them: how long a send waits for a server that
/// has not started. A BMI program expects `BMI_ECONNREFUSED` as soon as the kernel refuses the
/// connection, and decides itself whether it retries.
const NO_WAIT: [&str; 2] = ["FI_SHM_PEER_TIMEOUT", "FI_TCP_PEER_TIMEOUT"];

/// The capabilities that BMI needs from a provider.
#[expect(unsafe_code, reason = "the promise that removes locks")]
fn hints(provider: Option<&str>) -> Hints {
    let caps = Caps::MSG
        | Caps::TAGGED
        | Caps::TAGGED_DIRECTED_RECV
        | Caps::EXACT_DIRECTED_RECV
        | Caps::MULTI_RECV
        | Caps::SOURCE
        | Caps::SOURCE_ERR;
    let mut hints = Hints::new()
        .ep_type(EpType::Rdm)
        .caps(caps)
        .msg_order(MsgOrder::SAS)
        // Completion data carries tag and class.
        .cq_data_size(8);
    if let Some(provider) = provider {
        hints = hints.provider(provider);
    }
    // SAFETY: a `Fabric` keeps every object of its domain to itself and is used under the lock of
    // its method instance only. Memory of the domain is dropped under that lock, or after the last
    // user of the domain (`memory::DeferredFrees`). A thread that parks without the lock uses a
    // duplicate of the descriptor.
    unsafe { hints.promise_threading(Threading::Domain) }
}

impl Module for Provider {
    fn scheme(&self) -> &str {
        &self.name
    }

    fn initialize(&self, setup: &Setup) -> Result<Box<dyn Method>, Error> {
        match &setup.listen {
            Some(url) => self.listen(url, setup.bind_specific),
            None => {
                let info = self.find_for(setup.first_peer.as_ref())?;
                Ok(Box::new(Fabric::open(info, None)?))
            }
        }
    }
}

impl Provider {
    /// Opens an endpoint that peers find at `url`. Takes the next free port if the URL has none.
    fn listen(&self, url: &Url, bind_specific: bool) -> Result<Box<dyn Method>, Error> {
        let mut last_error = None;
        let info_for_any_port = self.find(None, None)?;
        for port in names::ports(url, &info_for_any_port) {
            let listen_url = Url {
                port,
                ..url.clone()
            };
            let (node, service) = names::local_name(&listen_url, &info_for_any_port, bind_specific);
            let info = self.find(node.as_deref(), service.as_deref())?;
            match Fabric::open(info, Some(listen_url)) {
                Ok(fabric) => return Ok(Box::new(fabric)),
                Err(error) if error.code() == Code::EADDRINUSE => last_error = Some(error),
                Err(error) => return Err(error),
            }
        }
        let no_free_port = || Error::new(Code::EADDRINUSE, format!("{url}: no port is free"));
        Err(last_error.unwrap_or_else(no_free_port))
    }

    /// Selects the provider's info for peers in the address family of `peer`.
    fn find_for(&self, peer: Option<&Url>) -> Result<Info, Error> {
        let default_info = self.find(None, None)?;
        match peer.and_then(names::wildcard_for) {
            Some(node) if !names::is_local(&default_info) => self.find(Some(node), None),
            _ => Ok(default_info),
        }
    }

    /// Queries the provider's info for a local address.
    fn find(&self, node: Option<&str>, service: Option<&str>) -> Result<Info, Error> {
        let flags = match node.or(service) {
            Some(_) => InfoFlags::SOURCE,
            None => InfoFlags::empty(),
        };
        let hints = hints(Some(&self.name));
        let infos = registry().getinfo(Version::API, node, service, flags, &hints)?;
        infos.into_iter().next().ok_or_else(|| {
            Error::new(
                Code::ENOPROTOOPT,
                format!("provider {} is not available", self.name),
            )
        })
    }
}

impl Fabric {
    fn open(info: Info, listen: Option<Url>) -> Result<Self, Error> {
        let domain = info.open()?;
        let mut attr = cq::Attr::with_size(QUEUE);
        attr.wait_obj = wait::Object::Fd;
        // Waiting threads spin beforehand, without the lock (`control::wait`).
        attr.spin_time = Some(Duration::ZERO);
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let ep = domain.endpoint(&info, Bindings::new(Arc::clone(&cq), Arc::clone(&av)))?;
        ep.set(EpOption::MinMultiRecv(unexpected::SIZE))
            .map_err(|errno| {
                Error::new(errno.into(), "cannot set the endpoint option MinMultiRecv")
            })?;
        match ep.set(EpOption::EagerSize(unexpected::SIZE)) {
            // A provider without this option sends large messages by rendezvous.
            Ok(()) | Err(Errno::NoProtoOpt) => {}
            Err(errno) => {
                return Err(Error::new(
                    errno.into(),
                    "cannot set the endpoint option EagerSize",
                ));
            }
        }
        let wait_fd = cq
            .wait_fd()
            .map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned());
        let wait_fd = wait_fd.transpose().map_err(|error| {
            let code = Code::of_system(error.raw_os_error().unwrap_or_default());
            Error::new(
                code,
                "cannot duplicate the descriptor of the completion queue",
            )
        })?;
        let listen = listen.map(|url| names::with_bound_port(url, &*ep));
        let mut fabric = Self {
            defers_sends: !names::is_local(&info),
            ep,
            cq,
            av,
            domain,
            inject_size: info.tx_attr.inject_size,
            info,
            wait_fd,
            entries: Box::new([Entry::default(); BATCH]),
            sources: Box::new([FiAddr::UNSPEC; BATCH]),
            peers: Peers::default(),
            slabs: Slabs::default(),
            listen,
        };
        fabric.slabs.open(&*fabric.ep)?;
        Ok(fabric)
    }
}

/// Size of the completion queue; further completions are stored as well.
const QUEUE: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_wait_for_a_late_server_only_if_the_environment_sets_a_timeout() {
        let env: Params = [("FI_TCP_PEER_TIMEOUT", "3s")].into_iter().collect();
        let params = params(env);
        assert_eq!(params.raw("FI_TCP_PEER_TIMEOUT"), Some("3s"));
        assert_eq!(params.raw("FI_SHM_PEER_TIMEOUT"), Some("0"));
    }

    #[test]
    fn the_parameters_set_to_0_exist_in_providers() {
        let params = params(Params::default());
        let params = selvedge_providers::builtin().with_params(params).params();
        for name in NO_WAIT {
            assert_eq!(params.time(name).unwrap(), Duration::ZERO, "{name}");
        }
    }
}
