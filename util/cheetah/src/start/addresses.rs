//! The address line of a context: its host, and the address and key on each fabric.

use std::fs;

use crate::engine::PeerAddress;
use crate::net::Net;
use crate::{Error, Result};

/// The addresses of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostAddresses {
    host: String,
    fabrics: Vec<FabricAddress>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FabricAddress {
    provider: String,
    address: String,
    key: u64,
}

impl HostAddresses {
    pub(super) fn from_nets(nets: &[Net]) -> Result<Self> {
        let mut fabrics = Vec::new();
        for net in nets {
            let local = net.local_address();
            let (address, key) = local.map_err(|error| Error::start(error.to_string()))?;
            fabrics.push(FabricAddress {
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
        for fabric in &self.fabrics {
            line.push_str(&format!(
                "|{}|{}|{:x}",
                fabric.provider, fabric.address, fabric.key
            ));
        }
        line
    }

    pub(super) fn parse(line: &str) -> Result<Self> {
        let invalid = || Error::start(format!("invalid address line of a context: {line:?}"));
        let mut words = line.split('|');
        let host = words.next().unwrap_or_default().to_owned();
        let words: Vec<_> = words.collect();
        let fabrics = words.chunks(3).map(|fabric| match *fabric {
            [provider, address, key] => Some(FabricAddress {
                provider: provider.to_owned(),
                address: address.to_owned(),
                key: u64::from_str_radix(key, 16).ok()?,
            }),
            _ => None,
        });
        let fabrics: Option<Vec<_>> = fabrics.collect();
        Ok(Self {
            host,
            fabrics: fabrics
                .filter(|list| !list.is_empty())
                .ok_or_else(invalid)?,
        })
    }

    /// The address by which `from` reaches this context: on one host the address on the last common
    /// fabric, which is the local one, otherwise the address on the first fabric.
    pub(super) fn address_for(&self, from: &Self) -> Option<PeerAddress> {
        let is_common = |net: usize| {
            let (local, remote) = (self.fabrics.get(net), from.fabrics.get(net));
            local.map(|fabric| &fabric.provider) == remote.map(|fabric| &fabric.provider)
        };
        let nets = if self.host == from.host {
            0..self.fabrics.len()
        } else {
            0..1
        };
        let net = nets.rev().find(|&net| is_common(net))?;
        let fabric = &self.fabrics[net];
        Some(PeerAddress {
            net,
            address: fabric.address.clone(),
            key: fabric.key,
        })
    }

    /// Returns whether all contexts are on one host and have the same fabrics.
    pub(super) fn are_local(all: &[Self]) -> bool {
        let names = |peer: &Self| {
            peer.fabrics
                .iter()
                .map(|fabric| fabric.provider.clone())
                .collect::<Vec<_>>()
        };
        all.windows(2).all(|neighbours| {
            neighbours[0].host == neighbours[1].host
                && names(&neighbours[0]) == names(&neighbours[1])
        })
    }

    /// Drops all fabrics but the last one.
    pub(super) fn keep_local_fabric(&mut self) {
        self.fabrics.drain(..self.fabrics.len() - 1);
    }

    pub(super) fn fabrics(&self) -> String {
        let names: Vec<_> = self
            .fabrics
            .iter()
            .map(|fabric| &*fabric.provider)
            .collect();
        names.join(" and ")
    }
}

/// Identifies the host: the boot id and the network namespace. Contexts of one host can share
/// memory. Containers with separate networks are different hosts.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{}{}", boot.trim(), network.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_lines_round_trip_and_invalid_ones_are_refused() -> Result {
        let line = "boot|tcp|127.0.0.1:80|ff|shm|fi_shm://7:0:0|a";
        assert_eq!(HostAddresses::parse(line)?.to_line(), line);
        for bad in ["", "boot", "boot|tcp|x", "boot|tcp|x|zz"] {
            assert!(HostAddresses::parse(bad).is_err(), "{bad}");
        }
        Ok(())
    }

    #[test]
    fn contexts_of_one_host_use_the_local_fabric() -> Result {
        let local = HostAddresses::parse("one|tcp|a|1|shm|b|2")?;
        let same_host = HostAddresses::parse("one|tcp|c|3|shm|d|4")?;
        let other_host = HostAddresses::parse("two|tcp|e|5|shm|f|6")?;
        let other_fabric = HostAddresses::parse("one|udp|e|5")?;
        let tcp_only = HostAddresses::parse("one|tcp|g|7")?;
        let reached_from_local = |peer: &HostAddresses| {
            peer.address_for(&local)
                .map(|address| (address.net, address.key))
        };
        assert_eq!(reached_from_local(&same_host), Some((1, 4)));
        assert_eq!(reached_from_local(&other_host), Some((0, 5)));
        assert_eq!(reached_from_local(&other_fabric), None);
        assert_eq!(reached_from_local(&tcp_only), Some((0, 7)));
        assert_eq!(
            local.address_for(&tcp_only).map(|address| address.net),
            Some(0)
        );
        Ok(())
    }

    #[test]
    fn contexts_are_local_with_one_host_and_the_same_fabrics() -> Result {
        let are_local = |lines: &[&str]| -> Result<_> {
            let all = lines.iter().map(|line| HostAddresses::parse(line));
            Ok(HostAddresses::are_local(&all.collect::<Result<Vec<_>>>()?))
        };
        assert!(are_local(&["one|tcp|a|1|shm|b|2", "one|tcp|c|3|shm|d|4"])?);
        assert!(!are_local(&["one|tcp|a|1|shm|b|2", "two|tcp|c|3|shm|d|4"])?);
        assert!(!are_local(&["one|tcp|a|1|shm|b|2", "one|tcp|c|3"])?);
        Ok(())
    }
}
