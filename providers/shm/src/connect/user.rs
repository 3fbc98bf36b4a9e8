//! The check that a peer belongs to the user of this process.

use std::fs;
use std::sync::OnceLock;

use nix::unistd::geteuid;
use selvedge::{Errno, Error};

/// Returns the effective user of this process.
///
/// # Errors
/// [`Errno::Acces`] for the overflow user of a namespace that does not map every user: all unmapped
/// users have this number, so this process could not distinguish them.
pub(crate) fn effective_uid() -> Result<u32, Error> {
    let uid = geteuid().as_raw();
    if uid == overflow_uid() && !maps_all_users() {
        let reason = format!(
            "this process belongs to the overflow user {uid} of its user namespace, as does every \
             user that the namespace does not map: run it as a user that is mapped"
        );
        return Err(Error::new(Errno::Acces, reason));
    }
    Ok(uid)
}

/// Checks that a peer belongs to the user of this process.
///
/// # Errors
/// [`Errno::Acces`] with both users if the peer belongs to another user; as [`effective_uid`].
pub(crate) fn check(peer_uid: u32) -> Result<(), Error> {
    let uid = effective_uid()?;
    if peer_uid == uid {
        return Ok(());
    }
    let reason = format!("the peer belongs to user {peer_uid}, this process to {uid}");
    Err(Error::new(Errno::Acces, reason))
}

/// The number of unmapped users in a user namespace.
fn overflow_uid() -> u32 {
    const DEFAULT: u32 = 65534;
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid");
        text.map_or(DEFAULT, |text| text.trim().parse().unwrap_or(DEFAULT))
    })
}

/// Whether the user namespace of this process maps every user, as the initial one does.
fn maps_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| is_identity_map(&map))
}

/// Whether a uid map is the map of the initial namespace: the identity for all numbers.
fn is_identity_map(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_initial_namespace_maps_all_users() {
        assert!(is_identity_map("         0          0 4294967295\n"));
        assert!(!is_identity_map(""));
        assert!(!is_identity_map("0 0 65536\n"));
        assert!(!is_identity_map("0 100000 4294967295\n"));
        assert!(!is_identity_map("0 0 1000\n1000 100000 4294966295\n"));
    }
}
