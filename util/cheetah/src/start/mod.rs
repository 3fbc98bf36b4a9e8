//! Start of contexts, and their address exchange.
//!
//! Each context opens its fabrics and describes its addresses in one line. All lines are exchanged
//! over sockets to context 0, which has forked the others or listens; over sockets to a launcher;
//! or through a process manager. The remaining steps are the same.
//!
//! Contexts of a launcher may be on different hosts. Without a configured provider they open a
//! fabric for all hosts and a local one, and close the first if all contexts are on one host.

pub(crate) mod family;
pub mod gather;
mod introduction;
mod pmi;

use std::time::{Duration, Instant};

use crate::config::{Config, Meeting, Place};
use crate::engine::{Engine, Obituary};
use crate::net::Net;
use crate::{Error, Result};
use family::Family;
use gather::Stranger;
use introduction::Introduction;

/// Default time limit of the start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A started context, and the children that it must wait for.
pub(crate) struct Started {
    pub(crate) engine: Engine,
    pub(crate) family: Option<Family>,
}

/// Starts the context of this process, or forks the contexts.
///
/// # Errors
/// The reason why the contexts could not be started.
pub(crate) fn start(config: &Config) -> Result<Started> {
    let deadline = Instant::now() + config.start_timeout.unwrap_or(START_TIMEOUT);
    if let Some(place) = &config.place {
        let engine = meet(config, place, deadline)?;
        return Ok(Started {
            engine,
            family: None,
        });
    }
    match config.fork {
        Some(size) if size > 1 => fork(config, size, deadline),
        _ => {
            let alone = Place {
                size: 1,
                ..Place::default()
            };
            let engine = meet(config, &alone, deadline)?;
            Ok(Started {
                engine,
                family: None,
            })
        }
    }
}

fn fork(config: &Config, size: usize, deadline: Instant) -> Result<Started> {
    let born = family::fork(size)?;
    let (rank, secret) = (born.rank, born.secret);
    let (nets, line) = Choice::of(config).open(config, rank, secret)?;
    let job = format!("{secret:016x}");
    let me = Stranger {
        job: &job,
        rank,
        size,
        line: &line,
    };
    let (lines, family, obituary) = match born.role {
        family::Role::Parent(mut family) => {
            let lines = gather::serve(&me, family.lines(), deadline);
            let lines = lines.map_err(|error| family.explain(error))?;
            let obituary = family.obituary();
            (lines, Some(family), Some(obituary))
        }
        family::Role::Child(socket) => (gather::join(&me, socket, deadline)?, None, None),
    };
    let engine = engage(nets, rank, &introductions(&lines)?, obituary)?;
    Ok(Started { engine, family })
}

fn meet(config: &Config, place: &Place, deadline: Instant) -> Result<Engine> {
    let choice = Choice::of(config);
    let (mut nets, line) = choice.open(config, place.rank, random())?;
    let me = Stranger {
        job: &place.job,
        rank: place.rank,
        size: place.size,
        line: &line,
    };
    let lines = match &place.meeting {
        Meeting::Alone => vec![line.clone()],
        Meeting::Host(at) => gather::at_host(&me, at, deadline)?,
        Meeting::Server(at) => gather::at_server(&me, at, deadline)?,
        Meeting::File(path) => gather::at_file(&me, path.as_ref(), deadline)?,
        Meeting::Pmi(fd) => pmi::exchange(*fd, &me)?,
    };
    let mut all = introductions(&lines)?;
    if choice.is_open() && Introduction::are_neighbours(&all) {
        nets.drain(..nets.len() - 1);
        all.iter_mut().for_each(Introduction::keep_near);
    }
    engage(nets, place.rank, &all, None)
}

/// The providers to open.
enum Choice {
    /// Configured providers; the last one is used for contexts of the same host.
    Named(Vec<Option<String>>),
    /// The available ones of these, with the same order.
    Open([&'static str; 2]),
}

impl Choice {
    fn of(config: &Config) -> Self {
        let is_placed = config.place.as_ref().is_some_and(|place| place.size > 1);
        if is_placed && config.fabric.is_empty() && config.near.is_empty() {
            return Self::Open(["tcp", "shm"]);
        }
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let mut providers = vec![named(&config.fabric)];
        providers.extend(named(&config.near).map(Some));
        Self::Named(providers)
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Opens the fabrics. Returns them with the address line of the context.
    fn open(&self, config: &Config, rank: usize, secret: u64) -> Result<(Vec<Net>, String)> {
        let secret = secret.wrapping_add((rank as u64) << 32) & (u64::MAX >> 1) | 1;
        let open = |provider: Option<&str>| {
            let net = Net::open(provider, secret, config.has_thread);
            net.map_err(|error| Error::Fabric {
                context: rank,
                what: error.to_string(),
            })
        };
        let nets: Vec<_> = match self {
            Self::Named(all) => all
                .iter()
                .map(|name| open(name.as_deref()))
                .collect::<Result<_>>()?,
            Self::Open(some) => some
                .iter()
                .filter_map(|name| open(Some(name)).ok())
                .collect(),
        };
        let nets = match nets.is_empty() {
            true => vec![open(None)?],
            false => nets,
        };
        let line = Introduction::of(&nets)?.to_line();
        Ok((nets, line))
    }
}

fn introductions(lines: &[String]) -> Result<Vec<Introduction>> {
    lines.iter().map(|line| Introduction::parse(line)).collect()
}

fn engage(
    nets: Vec<Net>,
    rank: usize,
    all: &[Introduction],
    obituary: Option<Obituary>,
) -> Result<Engine> {
    let here = &all[rank];
    let known = all.iter().enumerate().map(|(other, theirs)| {
        theirs.acquaintance(here).ok_or_else(|| {
            Error::start(format!(
                "contexts {rank} and {other} have no fabric in common: {} and {}",
                here.fabrics(),
                theirs.fabrics()
            ))
        })
    });
    let known: Vec<_> = known.collect::<Result<_>>()?;
    Engine::start(nets, rank, &known, obituary)
}

/// A number that is not predictable.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
