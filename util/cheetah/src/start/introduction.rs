//! The address line of a context: its host, and the address and key on each fabric.

use std::fs;

use crate::engine::Acquaintance;
use crate::net::Net;
use crate::{Error, Result};

/// The addresses of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    host: String,
    fabrics: Vec<Reach>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reach {
    provider: String,
    address: String,
    key: u64,
}

impl Introduction {
    pub(super) fn of(nets: &[Net]) -> Result<Self> {
        let mut fabrics = Vec::new();
        for net in nets {
            let known = net.introduction();
            let (address, key) = known.map_err(|error| Error::start(error.to_string()))?;
            fabrics.push(Reach {
                provider: net.provider().to_owned(),
                address,
                key,
            });
        }
        Ok(Self {
            host: host(),
            fabrics,
        })
    }

    /// One line, without blanks.
    pub(super) fn to_line(&self) -> String {
        let mut line = self.host.clone();
        for reach in &self.fabrics {
            line.push_str(&format!(
                "|{}|{}|{:x}",
                reach.provider, reach.address, reach.key
            ));
        }
        line
    }

    pub(super) fn parse(line: &str) -> Result<Self> {
        let garbled = || Error::start(format!("a context introduces itself as {line:?}"));
        let mut words = line.split('|');
        let host = words.next().unwrap_or_default().to_owned();
        let words: Vec<_> = words.collect();
        let fabrics = words.chunks(3).map(|reach| match *reach {
            [provider, address, key] => Some(Reach {
                provider: provider.to_owned(),
                address: address.to_owned(),
                key: u64::from_str_radix(key, 16).ok()?,
            }),
            _ => None,
        });
        let fabrics: Option<Vec<_>> = fabrics.collect();
        Ok(Self {
            host,
            fabrics: fabrics.filter(|all| !all.is_empty()).ok_or_else(garbled)?,
        })
    }

    /// The address by which `from` reaches this context. On one host it is that of the last common
    /// fabric, the local one; otherwise that of the first fabric.
    pub(super) fn acquaintance(&self, from: &Self) -> Option<Acquaintance> {
        let has_it = |net: usize| {
            let (own, theirs) = (self.fabrics.get(net), from.fabrics.get(net));
            own.map(|it| &it.provider) == theirs.map(|it| &it.provider)
        };
        let nets = match self.host == from.host {
            true => 0..self.fabrics.len(),
            false => 0..1,
        };
        let net = nets.rev().find(|&net| has_it(net))?;
        let reach = &self.fabrics[net];
        Some(Acquaintance {
            net,
            address: reach.address.clone(),
            key: reach.key,
        })
    }

    /// Whether all contexts are on one host and have the same fabrics.
    pub(super) fn are_neighbours(all: &[Self]) -> bool {
        let names = |of: &Self| {
            of.fabrics
                .iter()
                .map(|reach| reach.provider.clone())
                .collect::<Vec<_>>()
        };
        all.windows(2)
            .all(|two| two[0].host == two[1].host && names(&two[0]) == names(&two[1]))
    }

    /// Drops all fabrics but the last one.
    pub(super) fn keep_near(&mut self) {
        self.fabrics.drain(..self.fabrics.len() - 1);
    }

    pub(super) fn fabrics(&self) -> String {
        let names: Vec<_> = self.fabrics.iter().map(|reach| &*reach.provider).collect();
        names.join(" and ")
    }
}

/// Identifies the host for contexts that can share memory: the boot, and the network namespace.
/// Containers with separate networks are different hosts.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{}{}", boot.trim(), network.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_others_are_refused() -> Result {
        let line = "boot|tcp|127.0.0.1:80|ff|shm|fi_shm://7:0:0|a";
        assert_eq!(Introduction::parse(line)?.to_line(), line);
        for bad in ["", "boot", "boot|tcp|x", "boot|tcp|x|zz"] {
            assert!(Introduction::parse(bad).is_err(), "{bad}");
        }
        Ok(())
    }

    #[test]
    fn contexts_of_one_host_meet_over_the_near_fabric() -> Result {
        let here = Introduction::parse("one|tcp|a|1|shm|b|2")?;
        let near = Introduction::parse("one|tcp|c|3|shm|d|4")?;
        let far = Introduction::parse("two|tcp|e|5|shm|f|6")?;
        let other = Introduction::parse("one|udp|e|5")?;
        let poor = Introduction::parse("one|tcp|g|7")?;
        let reached = |whom: &Introduction| whom.acquaintance(&here).map(|way| (way.net, way.key));
        assert_eq!(reached(&near), Some((1, 4)));
        assert_eq!(reached(&far), Some((0, 5)));
        assert_eq!(reached(&other), None);
        assert_eq!(reached(&poor), Some((0, 7)));
        assert_eq!(here.acquaintance(&poor).map(|way| way.net), Some(0));
        Ok(())
    }

    #[test]
    fn neighbours_are_on_one_host_and_have_the_same() -> Result {
        let of = |lines: &[&str]| -> Result<_> {
            let all = lines.iter().map(|line| Introduction::parse(line));
            Ok(Introduction::are_neighbours(
                &all.collect::<Result<Vec<_>>>()?,
            ))
        };
        assert!(of(&["one|tcp|a|1|shm|b|2", "one|tcp|c|3|shm|d|4"])?);
        assert!(!of(&["one|tcp|a|1|shm|b|2", "two|tcp|c|3|shm|d|4"])?);
        assert!(!of(&["one|tcp|a|1|shm|b|2", "one|tcp|c|3"])?);
        Ok(())
    }
}
