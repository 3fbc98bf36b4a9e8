//! Start of contexts, and their address exchange.
//!
//! Each context opens its fabrics and describes its addresses in one line. All lines are exchanged
//! over sockets to context 0, which has forked the others or listens; over sockets to a launcher;
//! or through a process manager. The remaining steps are the same.
//!
//! Contexts of a launcher may be on different hosts. Without a configured provider they open a
//! fabric for all hosts and a local one, and close the first if all contexts are on one host.

mod addresses;
pub(crate) mod fork;
mod pmi;
pub mod rendezvous;

use std::time::{Duration, Instant};

use crate::config::{Config, Launch, Rendezvous};
use crate::engine::{Engine, ExitLookup};
use crate::net::Net;
use crate::{Error, Result};
use addresses::HostAddresses;
use fork::Children;
use rendezvous::Identity;

/// Default time limit of the start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A started context, and the children that it must wait for.
pub(crate) struct Started {
    pub(crate) engine: Engine,
    pub(crate) children: Option<Children>,
}

/// Starts the context of this process, or forks the contexts.
///
/// # Errors
/// The error of a provider, of the fork or of the address exchange.
pub(crate) fn start(config: &Config) -> Result<Started> {
    let deadline = Instant::now() + config.start_timeout.unwrap_or(START_TIMEOUT);
    if let Some(launch) = &config.launch {
        let engine = join_run(config, launch, deadline)?;
        return Ok(Started {
            engine,
            children: None,
        });
    }
    match config.fork {
        Some(size) if size > 1 => fork(config, size, deadline),
        _ => {
            let single = Launch {
                size: 1,
                ..Launch::default()
            };
            let engine = join_run(config, &single, deadline)?;
            Ok(Started {
                engine,
                children: None,
            })
        }
    }
}

fn fork(config: &Config, size: usize, deadline: Instant) -> Result<Started> {
    let forked = fork::fork(size)?;
    let (rank, secret) = (forked.rank, forked.secret);
    let (nets, line) = ProviderChoice::from_config(config).open(config, rank, secret)?;
    let job = format!("{secret:016x}");
    let identity = Identity {
        job: &job,
        rank,
        size,
        line: &line,
    };
    let (lines, children, exit_lookup) = match forked.role {
        fork::Role::Parent(mut children) => {
            let lines = rendezvous::serve(&identity, children.take_sockets(), deadline);
            let lines = lines.map_err(|error| children.add_exit_statuses(error))?;
            let exit_lookup = children.exit_lookup();
            (lines, Some(children), Some(exit_lookup))
        }
        fork::Role::Child(socket) => (rendezvous::join(&identity, socket, deadline)?, None, None),
    };
    let engine = connect(nets, rank, &parse_addresses(&lines)?, exit_lookup)?;
    Ok(Started { engine, children })
}

fn join_run(config: &Config, launch: &Launch, deadline: Instant) -> Result<Engine> {
    let providers = ProviderChoice::from_config(config);
    let (mut nets, line) = providers.open(config, launch.rank, fork::random())?;
    let identity = Identity {
        job: &launch.job,
        rank: launch.rank,
        size: launch.size,
        line: &line,
    };
    let lines = match &launch.rendezvous {
        Rendezvous::Single => vec![line.clone()],
        Rendezvous::Host(address) => rendezvous::at_host(&identity, address, deadline)?,
        Rendezvous::Server(address) => rendezvous::at_server(&identity, address, deadline)?,
        Rendezvous::File(path) => rendezvous::at_file(&identity, path.as_ref(), deadline)?,
        Rendezvous::Pmi(fd) => pmi::exchange(*fd, &identity)?,
    };
    let mut addresses = parse_addresses(&lines)?;
    if providers.tries_defaults() && HostAddresses::are_local(&addresses) {
        nets.drain(..nets.len() - 1);
        addresses
            .iter_mut()
            .for_each(HostAddresses::keep_local_fabric);
    }
    connect(nets, launch.rank, &addresses, None)
}

/// The providers to open.
enum ProviderChoice {
    /// Configured providers; the last one is used for contexts of the same host.
    Named(Vec<Option<String>>),
    /// Default providers, of which the available ones are opened in this order.
    Available([&'static str; 2]),
}

impl ProviderChoice {
    fn from_config(config: &Config) -> Self {
        let is_launched = config.launch.as_ref().is_some_and(|launch| launch.size > 1);
        if is_launched && config.fabric.is_empty() && config.near.is_empty() {
            return Self::Available(["tcp", "shm"]);
        }
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let mut providers = vec![named(&config.fabric)];
        providers.extend(named(&config.near).map(Some));
        Self::Named(providers)
    }

    fn tries_defaults(&self) -> bool {
        matches!(self, Self::Available(_))
    }

    /// Opens the fabrics. Returns them with the address line of the context.
    fn open(&self, config: &Config, rank: usize, secret: u64) -> Result<(Vec<Net>, String)> {
        let secret = secret.wrapping_add((rank as u64) << 32) & (u64::MAX >> 1) | 1;
        let open = |provider: Option<&str>| {
            let net = Net::open(provider, secret, config.has_thread);
            net.map_err(|error| Error::Fabric {
                context: rank,
                detail: error.to_string(),
            })
        };
        let nets: Vec<_> = match self {
            Self::Named(names) => names
                .iter()
                .map(|name| open(name.as_deref()))
                .collect::<Result<_>>()?,
            Self::Available(defaults) => defaults
                .iter()
                .filter_map(|name| open(Some(name)).ok())
                .collect(),
        };
        let nets = if nets.is_empty() {
            vec![open(None)?]
        } else {
            nets
        };
        let line = HostAddresses::from_nets(&nets)?.to_line();
        Ok((nets, line))
    }
}

fn parse_addresses(lines: &[String]) -> Result<Vec<HostAddresses>> {
    lines
        .iter()
        .map(|line| HostAddresses::parse(line))
        .collect()
}

fn connect(
    nets: Vec<Net>,
    rank: usize,
    all: &[HostAddresses],
    exit_lookup: Option<ExitLookup>,
) -> Result<Engine> {
    let local = &all[rank];
    let addresses = all.iter().enumerate().map(|(other, remote)| {
        remote.address_for(local).ok_or_else(|| {
            Error::start(format!(
                "contexts {rank} and {other} have no fabric in common: {} and {}",
                local.fabrics(),
                remote.fabrics()
            ))
        })
    });
    let addresses: Vec<_> = addresses.collect::<Result<_>>()?;
    Engine::start(nets, rank, &addresses, exit_lookup)
}
