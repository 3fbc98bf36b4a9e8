//! `MappingQuota`: the number of memory mappings that a process uses for its peers, and each peer's
//! share.
//!
//! The kernel limits the mappings of a process (`vm.max_map_count`). The quota for blocks of peers
//! is half of this limit. This process maps another block of a peer as long as the peer has fewer
//! mappings than are left in the quota. One peer alone gets half of the quota, two get a third
//! each, and any number of greedy peers leave some for the next (dynamic thresholds, Choudhury and
//! Hahne 1998). The quota for all memory of peers together, including regions, keys and bounce
//! segments, is three quarters of the limit; the rest remains for the application. Mappings of
//! blocks are not merged: each block is a file of its own, so that its owner can free it, and the
//! kernel merges only mappings of the same file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the number of mappings, and the number in use.
#[derive(Debug)]
pub(crate) struct MappingQuota {
    limit: usize,
    used: AtomicUsize,
}

/// A permit for one mapping. Dropping it returns the mapping to the quota.
#[derive(Debug)]
pub(crate) struct MappingPermit(&'static MappingQuota);

impl MappingQuota {
    /// Returns this process's quota for blocks of peers.
    pub(crate) fn of_blocks() -> &'static Self {
        static OF_BLOCKS: OnceLock<MappingQuota> = OnceLock::new();
        OF_BLOCKS.get_or_init(|| Self::new(max_map_count() / 2))
    }

    /// Returns this process's quota for all memory of peers.
    pub(crate) fn of_peers() -> &'static Self {
        static OF_PEERS: OnceLock<MappingQuota> = OnceLock::new();
        OF_PEERS.get_or_init(|| Self::new(max_map_count() / 4 * 3))
    }

    /// Returns this process's quota for arenas of peers' heaps. Each takes up to 4 GiB of the
    /// address space, of which all together take an eighth.
    pub(crate) fn of_arenas() -> &'static Self {
        static OF_ARENAS: OnceLock<MappingQuota> = OnceLock::new();
        OF_ARENAS.get_or_init(|| Self::new(4096))
    }

    const fn new(limit: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self { limit, used }
    }

    /// Takes one mapping for a peer that holds `held` of them. Returns `None` if the peer has used
    /// up its share.
    pub(crate) fn take(&'static self, held: usize) -> Option<MappingPermit> {
        let increment = |used: usize| (held < self.limit.saturating_sub(used)).then_some(used + 1);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment);
        taken.is_ok().then(|| MappingPermit(self))
    }
}

impl Drop for MappingPermit {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads the kernel's limit. Returns the kernel's default where the file cannot be read.
fn max_map_count() -> usize {
    const DEFAULT: usize = 65_530;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let value = text.ok().and_then(|text| text.trim().parse().ok());
    value.unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_returns_its_mapping_to_the_quota() {
        let quota: &'static MappingQuota = Box::leak(Box::new(MappingQuota::new(4)));
        let mut permits: Vec<_> = (0..4).map(|_| quota.take(0).unwrap()).collect();
        assert!(quota.take(0).is_none());
        permits.pop();
        assert!(quota.take(0).is_some());
    }

    /// Takes as many mappings as one peer can hold.
    fn take_all(quota: &'static MappingQuota) -> Vec<MappingPermit> {
        let mut held = Vec::new();
        while let Some(permit) = quota.take(held.len()) {
            held.push(permit);
        }
        held
    }

    #[test]
    fn each_peer_leaves_mappings_for_the_next() {
        let quota: &'static MappingQuota = Box::leak(Box::new(MappingQuota::new(1 << 10)));
        let mut peers: Vec<_> = (0..8).map(|_| take_all(quota)).collect();
        let counts: Vec<_> = peers.iter().map(Vec::len).collect();
        assert_eq!(counts, [512, 256, 128, 64, 32, 16, 8, 4]);
        peers.clear();
        assert_eq!(take_all(quota).len(), 512);
    }
}
