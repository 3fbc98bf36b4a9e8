//! Settings, limits, references and memory (`BMI_set_info`, `BMI_get_info`, `BMI_memalloc`).

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use super::Bmi;
use super::desk::Desk;
use crate::method::Setting;
use crate::url::Url;
use crate::{Addr, Code, Memory, Result};

/// A limit that is asked for (`BMI_get_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of the largest message of every active method (`BMI_CHECK_MAXSIZE`).
    Size,
    /// Bytes of the largest unexpected message to a peer (`BMI_GET_UNEXP_SIZE`).
    Unexpected(Addr),
}

impl Bmi {
    /// Whether a method is active (`BMI_CHECK_INIT`).
    pub fn is_active(&self) -> bool {
        self.stations().next().is_some()
    }

    /// A limit, in bytes.
    ///
    /// # Errors
    /// [`Code::ENETDOWN`] without an active method; [`Code::EINVAL`] for no peer.
    pub fn limit(&self, limit: Limit) -> Result<u64> {
        match limit {
            Limit::Size => {
                let sizes = self.stations().map(|station| station.limits.size);
                sizes.min().ok_or(Code::ENETDOWN)
            }
            Limit::Unexpected(addr) => {
                self.with_reference(addr, |_| ())?;
                let station = self.station(addr.method()).ok_or(Code::EINVAL)?;
                Ok(station.limits.unexpected)
            }
        }
    }

    /// The port that a method listens at, the first that has one (`BMI_TCP_GET_PORT`);
    /// [`Self::urls`] has all of them. 0 where a name without a port is listened at.
    ///
    /// # Errors
    /// [`Code::ENOSYS`] when none has.
    pub fn listen_port(&self) -> Result<u16> {
        let mut ports = self
            .stations()
            .filter_map(|station| station.hold(&self.sleepers).parts().0.listen_port());
        ports.next().ok_or(Code::ENOSYS)
    }

    /// Where peers find this process: a URL for each method that listens.
    pub fn urls(&self) -> Vec<String> {
        let own = Url::parse_all(&self.config.listen).unwrap_or_default();
        let bound = own.into_iter().filter_map(|url| {
            let station = self.station_for(&url.scheme)?;
            let port = station.hold(&self.sleepers).parts().0.listen_port();
            let port = port.filter(|port| *port != 0);
            Some(Url { port, ..url }.to_string())
        });
        bound.collect()
    }

    /// Sets something for the method of a peer, or with [`Addr::NONE`] for all.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer, when no method is active, and for a value that cannot be.
    pub fn set_info(&self, addr: Addr, setting: Setting) -> Result {
        if addr != Addr::NONE {
            self.with_reference(addr, |_| ())?;
        }
        let mut is_set = Err(Code::EINVAL);
        for station in self.stations() {
            if addr == Addr::NONE || station.index == addr.method() {
                is_set = station.hold(&self.sleepers).parts().0.set_info(setting);
                is_set?;
            }
        }
        is_set
    }

    /// Whether an unexpected message ends the idling of a test for a context
    /// (`BMI_TCP_CHECK_UNEXPECTED`). It does at first.
    pub fn heed_unexpected(&self, heed: bool) {
        self.heeds_unexpected.store(heed, Ordering::Relaxed);
    }

    /// Holds a peer once more (`BMI_INC_ADDR_REF`).
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer.
    pub fn hold(&self, addr: Addr) -> Result {
        self.with_reference(addr, |desk| {
            if let Some(reference) = desk.references.get_mut(addr) {
                reference.refs += 1;
            }
        })
    }

    /// Holds a peer once less (`BMI_DEC_ADDR_REF`). One that is gone is forgotten with the last
    /// hold.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer, and for one that is not held.
    pub fn let_go(&self, addr: Addr) -> Result {
        self.with_reference(addr, |desk| {
            let reference = desk.references.get_mut(addr).ok_or(Code::EINVAL)?;
            reference.refs = reference.refs.checked_sub(1).ok_or(Code::EINVAL)?;
            Ok::<_, Code>(())
        })??;
        self.forget_gone();
        Ok(())
    }

    /// Forgets a peer (`BMI_DROP_ADDR`, `BMI_TCP_CLOSE_SOCKET`): nothing more will be asked of it,
    /// and if it is looked up again it is another.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer, [`Code::EBUSY`] while operations or messages name it.
    pub fn drop_addr(&self, addr: Addr) -> Result {
        let station = self.station(addr.method()).ok_or(Code::EINVAL)?;
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let reference = desk.references.get(addr).ok_or(Code::EINVAL)?;
        if reference.pending > 0 {
            return Err(Code::EBUSY);
        }
        if let Some(method_addr) = desk.references.forget(addr) {
            method.addr_forget(method_addr);
        }
        Ok(())
    }

    /// The URL that a peer was looked up by (`BMI_addr_rev_lookup`); `None` for one that came by
    /// itself and for no peer.
    pub fn rev_lookup(&self, addr: Addr) -> Option<CString> {
        self.with_reference(addr, |desk| desk.references.get(addr)?.url.clone())
            .ok()?
    }

    /// The machine of a peer, however it was met, or what it is known by instead
    /// (`BMI_addr_rev_lookup_unexpected`); `None` for no peer.
    pub fn rev_lookup_unexpected(&self, addr: Addr) -> Option<CString> {
        let station = self.known_station(addr)?;
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let reference = desk.references.get_mut(addr)?;
        if reference.host.is_none() {
            reference.host = CString::new(method.host(reference.method_addr)).ok();
        }
        reference.host.clone()
    }

    /// As [`Self::rev_lookup`] and [`Self::rev_lookup_unexpected`], without a copy: the texts stay
    /// where they are until the peer is forgotten.
    pub fn texts_of(&self, addr: Addr, use_texts: &mut dyn FnMut(Option<&CStr>, Option<&CStr>)) {
        // So that the second text is there.
        let _ = self.rev_lookup_unexpected(addr);
        let _ = self.with_reference(addr, |desk| {
            if let Some(reference) = desk.references.get(addr) {
                use_texts(reference.url.as_deref(), reference.host.as_deref());
            }
        });
    }

    /// Whether a peer is among those that a URL with wildcards, or with a netmask, names
    /// (`BMI_query_addr_range`).
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer and for a pattern that is none.
    pub fn query_addr_range(&self, addr: Addr, pattern: &str, netmask: Option<u8>) -> Result<bool> {
        let station = self.known_station(addr).ok_or(Code::EINVAL)?;
        let (scheme, hosts) = pattern.split_once("://").ok_or(Code::EINVAL)?;
        if scheme != station.scheme {
            return Ok(false);
        }
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let reference = desk.references.get(addr).ok_or(Code::EINVAL)?;
        method.is_in_range(reference.method_addr, hosts, netmask)
    }

    /// Zeroed memory at a page's begin that the method of a peer sends and receives best, or any
    /// method with [`Addr::NONE`] (`BMI_memalloc`). `None` for no peer, or when there is none.
    pub fn memalloc(&self, addr: Addr, len: usize) -> Option<Memory> {
        let station = match addr {
            Addr::NONE => self.stations().next(),
            _ => Some(self.known_station(addr)?),
        };
        station
            .and_then(|station| station.hold(&self.sleepers).memalloc(len))
            .or_else(|| Memory::ordinary(len))
    }

    /// Whether a peer that came by itself is gone (`BMI_DROP_ADDR_QUERY`).
    ///
    /// # Errors
    /// [`Code::EINVAL`] for no peer.
    pub fn is_gone(&self, addr: Addr) -> Result<bool> {
        self.with_reference(addr, |desk| {
            desk.references.get(addr).is_some_and(|known| known.is_gone)
        })
    }

    /// Whether there is such a peer.
    pub fn knows(&self, addr: Addr) -> bool {
        self.with_reference(addr, |_| ()).is_ok()
    }

    /// How many peers are known.
    pub fn peers(&self) -> usize {
        let lens = self.stations().map(|station| {
            let mut held = station.hold(&self.sleepers);
            held.desk().references.len()
        });
        lens.sum()
    }

    /// An unexpected message counts as a hold on its sender, if that was asked for.
    pub(super) fn count_reference(&self, desk: &mut Desk, addr: Addr) {
        if self.config.auto_ref_count
            && let Some(reference) = desk.references.get_mut(addr)
        {
            reference.refs += 1;
        }
    }

    /// Forgets the peers that are gone and that nobody holds.
    pub(super) fn forget_gone(&self) {
        for station in self.stations() {
            let mut held = station.hold(&self.sleepers);
            let (method, desk) = held.parts();
            while let Some(addr) = desk.references.next_to_forget() {
                if let Some(method_addr) = desk.references.forget(addr) {
                    method.addr_forget(method_addr);
                }
            }
        }
    }

    fn known_station(&self, addr: Addr) -> Option<&super::station::Station> {
        let station = self.station(addr.method())?;
        let mut held = station.hold(&self.sleepers);
        held.desk().references.get(addr)?;
        drop(held);
        Some(station)
    }

    fn with_reference<T>(&self, addr: Addr, f: impl FnOnce(&mut Desk) -> T) -> Result<T> {
        let station = self.station(addr.method()).ok_or(Code::EINVAL)?;
        let mut held = station.hold(&self.sleepers);
        let desk = held.desk();
        desk.references.get(addr).ok_or(Code::EINVAL)?;
        Ok(f(desk))
    }
}

/// Whether an IPv4 address is among those that a pattern names: `10.1.*`, or with a netmask
/// `10.1.0.0` and the number of bits that matter.
///
/// # Errors
/// [`Code::EINVAL`] for what is no pattern.
pub(crate) fn ipv4_in_range(
    host: std::net::Ipv4Addr,
    pattern: &str,
    netmask: Option<u8>,
) -> Result<bool> {
    let pattern = pattern.split([':', '/']).next().unwrap_or_default();
    let Some(bits) = netmask else {
        let octets = host.octets();
        let mut wanted = pattern.split('.');
        let mut is_in = true;
        for octet in octets {
            match wanted.next() {
                None | Some("*") => {}
                Some(text) => is_in &= octet == text.parse().map_err(|_| Code::EINVAL)?,
            }
        }
        return Ok(is_in);
    };
    let network: std::net::Ipv4Addr = pattern.parse().map_err(|_| Code::EINVAL)?;
    let shift = 32_u32.checked_sub(u32::from(bits)).ok_or(Code::EINVAL)?;
    let differs = u64::from(host.to_bits() ^ network.to_bits()) >> shift;
    Ok(differs == 0)
}

/// A URL's machine as people write it.
pub(crate) fn host_of(url: &Url) -> &str {
    url.host.as_deref().unwrap_or("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_wildcards_or_networks() {
        let host = "10.1.2.3".parse().unwrap();
        let table = [
            ("10.1.*", None, true),
            ("10.1.2.3", None, true),
            ("10.2.*", None, false),
            ("*", None, true),
            ("10.1.0.0", Some(16), true),
            ("10.1.0.0", Some(24), false),
            ("10.1.2.3:3334", Some(32), true),
            ("0.0.0.0", Some(0), true),
        ];
        for (pattern, netmask, expected) in table {
            assert_eq!(
                ipv4_in_range(host, pattern, netmask),
                Ok(expected),
                "{pattern}"
            );
        }
        assert_eq!(ipv4_in_range(host, "10.x", None), Err(Code::EINVAL));
        assert_eq!(ipv4_in_range(host, "10.1.0.0", Some(33)), Err(Code::EINVAL));
        assert_eq!(ipv4_in_range(host, "node7", Some(8)), Err(Code::EINVAL));
    }
}
