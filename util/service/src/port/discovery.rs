//! Discovery of a port's endpoint.

#![expect(unsafe_code, reason = "a promise that replaces the endpoint's locks")]

use selvedge::info::{EpType, Threading};
use selvedge::{Caps, Hints, Info, MrMode, MsgOrder};

use super::address::{Scheme, ServiceAddress};
use crate::{Error, Options};

/// The parameter that names the libfabric of [`Scheme::Ofi`], and its default here: the program
/// has asked for one.
const LIBRARY: (&str, &str) = ("FI_OFI_LIBRARY", "system");

/// The side of a connection for which an endpoint is opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'a> {
    /// A server at this address.
    Listen(&'a ServiceAddress),
    /// A client of the server at this address.
    Connect(&'a ServiceAddress),
}

impl Side<'_> {
    pub(super) const fn address(&self) -> &ServiceAddress {
        let (Self::Listen(address) | Self::Connect(address)) = self;
        address
    }

    /// Finds the endpoint.
    ///
    /// # Errors
    /// As [`Self::failed`].
    pub(super) fn discover(self, options: &Options) -> Result<Info, Error> {
        let ServiceAddress {
            scheme, address, ..
        } = self.address();
        let hints = match (self, scheme) {
            (Self::Listen(_), Scheme::Ofi) => self.library_hints().src_addr(address.clone()),
            (Self::Connect(_), Scheme::Ofi) => self.library_hints().dest_addr(address.clone()),
            _ => self.hints(options),
        };
        let mut params = options.provider_params();
        let (name, library) = LIBRARY;
        if *scheme == Scheme::Ofi && !options.has_param(name) {
            params = params.set(name, library);
        }
        let registry = selvedge_providers::builtin().with_params(params);
        let infos = registry
            .infos(&hints)
            .map_err(|error| self.failed(&error))?;
        let mut info = infos
            .into_iter()
            .next()
            .ok_or_else(|| Error::Transport(format!("the provider {scheme} has no endpoint")))?;
        if let (Self::Listen(_), Scheme::Shm | Scheme::Tcp) = (self, scheme) {
            info.src_addr = Some(address.clone());
        }
        Ok(info)
    }

    /// The requirements of an endpoint of this project.
    fn hints(self, options: &Options) -> Hints {
        let caps = Caps::MSG | Caps::TAGGED | Caps::TAGGED_DIRECTED_RECV;
        let hints = Hints::new()
            .provider(&self.address().provider)
            .caps(caps | Caps::SOURCE | Caps::SOURCE_ERR);
        if options.lends {
            // A publication that is dropped gives its memory back from any thread.
            return hints;
        }
        // SAFETY: one thread at a time uses the objects of the domain. A port belongs to the thread
        // that opens it until it is inside the lock of a hub, and its methods are called under this
        // lock. Of the domain's objects, only the domain itself is reachable in another way, through
        // `Buffers`, which use it for ordinary memory alone: shm and tcp do not have that
        // registered, so that a pool reads the domain's constant mode and calls nothing else.
        // Without lent messages, no message refers to the endpoint.
        unsafe { hints.promise_threading(Threading::Domain) }
    }

    /// The requirements of an endpoint of a libfabric.
    fn library_hints(self) -> Hints {
        let caps = Caps::MSG | Caps::TAGGED | Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV;
        let mr_modes = MrMode::LOCAL | MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
        let ServiceAddress {
            provider, address, ..
        } = self.address();
        Hints::new()
            .provider(provider)
            // A layer of the library opens its socket in this format.
            .addr_format(address.format())
            .caps(caps | Caps::SOURCE)
            .ep_type(EpType::Rdm)
            .msg_order(MsgOrder::SAS)
            .mr_mode(mr_modes)
    }

    /// The error of opening an endpoint, with the address that the application named.
    pub(super) fn failed(self, error: &selvedge::Error) -> Error {
        match self {
            Self::Listen(local) => Error::Address {
                address: local.text.clone(),
                reason: error.to_string(),
            },
            Self::Connect(remote) => {
                let scheme = remote.scheme;
                Error::Transport(format!("an endpoint of {scheme} cannot be opened: {error}"))
            }
        }
    }
}
