//! `ContextListeners`: the listeners of a scalable endpoint, the first context at its address and
//! the others at the following ports.
//!
//! The scalable endpoint listens at all ports from the start, so that no other process can take
//! one. A peer that connects to an unopened context waits.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno as System;
use selvedge::Error;
use selvedge_kit::ip::canonical_addr;

use crate::accept::listen::{ANYWHERE, Listener, listen, listen_error};
use crate::config::Config;

/// The number of attempts to find successive free ports.
const TRIES: usize = 256;

/// The listeners of unopened contexts, by context number.
#[derive(Debug)]
pub(crate) struct ContextListeners {
    first: SocketAddr,
    unopened: Mutex<Vec<Option<Listener>>>,
    config: Config,
}

impl ContextListeners {
    /// Listens at `count` successive ports. The first is the port of `addr`; if that is 0, one of
    /// the configured range or of the system's choice.
    ///
    /// # Errors
    /// System errors, with the address.
    pub(crate) fn open(addr: SocketAddr, count: usize, config: &Config) -> Result<Self, Error> {
        let tries = if addr.port() == 0 { TRIES } else { 1 };
        let mut listeners = listen_at_successive_ports(addr, count, config);
        for _ in 1..tries {
            if listeners.is_ok() {
                break;
            }
            listeners = listen_at_successive_ports(addr, count, config);
        }
        let (first, unopened) = listeners?;
        Ok(Self {
            first,
            unopened: Mutex::new(unopened.into_iter().map(Some).collect()),
            config: config.clone(),
        })
    }

    /// Returns the address of the first context.
    pub(crate) const fn first_addr(&self) -> SocketAddr {
        self.first
    }

    /// Returns the listener of a context: the prepared one, or a new one at the same port if the
    /// context was opened before.
    ///
    /// # Errors
    /// System errors, with the address, when another process has taken the port.
    pub(crate) fn listener(&self, context: u16) -> Result<Listener, Error> {
        let mut unopened = self.unopened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = unopened
            .get_mut(usize::from(context))
            .and_then(Option::take)
        {
            return Ok(listener);
        }
        let mut addr = self.first;
        addr.set_port(self.first.port() + context);
        listen(addr, &self.config).map_err(|cause| listen_error(addr, cause))
    }
}

fn listen_at_successive_ports(
    addr: SocketAddr,
    count: usize,
    config: &Config,
) -> Result<(SocketAddr, Vec<Listener>), Error> {
    let first = listen(addr, config).map_err(|cause| listen_error(addr, cause))?;
    let local = first.fd().local_addr();
    let local = canonical_addr(local.map_err(|cause| listen_error(ANYWHERE, cause))?);
    let highest = config.ports.map_or(u16::MAX, |(_, high)| high);
    let (mut listeners, mut last) = (vec![first], local);
    while listeners.len() < count {
        let Some(port) = last.port().checked_add(1).filter(|&port| port <= highest) else {
            return Err(listen_error(last, System::EADDRNOTAVAIL.into()));
        };
        last.set_port(port);
        listeners.push(listen(last, config).map_err(|cause| listen_error(last, cause))?);
    }
    Ok((local, listeners))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(ports: Option<(u16, u16)>) -> Config {
        let mut config = Config::read(&selvedge::param::Params::default()).unwrap();
        config.ports = ports;
        config
    }

    #[test]
    fn reopened_contexts_listen_at_the_same_successive_ports() {
        let listeners =
            ContextListeners::open("127.0.0.1:0".parse().unwrap(), 8, &config(None)).unwrap();
        for context in 0..8 {
            let listener = listeners.listener(context).unwrap();
            let port = listener.fd().local_addr().unwrap().port();
            assert_eq!(port, listeners.first_addr().port() + context);
            listeners.listener(context).unwrap_err();
            drop(listener);
            listeners.listener(context).unwrap();
        }
    }

    #[test]
    fn too_few_successive_ports_fail_with_the_port() {
        let ports = Some((40_000, 40_002));
        let error =
            ContextListeners::open("127.0.0.1:0".parse().unwrap(), 8, &config(ports)).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:4000"), "{error}");
        let error = ContextListeners::open("127.0.0.1:65535".parse().unwrap(), 2, &config(None))
            .unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:65535"), "{error}");
    }
}
