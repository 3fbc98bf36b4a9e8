//! The members of a set: the endpoint of each index, and the rank of the local endpoint.

use std::fmt;
use std::net::UdpSocket;

use rustc_hash::FxHashMap;
use selvedge::{Address, Endpoint, Errno, FiAddr, Result, av};

use super::MAX_MEMBERS;

/// A provider's address vector, as the layer looks up members.
pub trait Members: fmt::Debug + Send + Sync {
    /// The identity of the vector.
    fn vector(&self) -> &av::Identity;

    /// The address that the endpoint at an index returns for itself. If the index names a context
    /// of a scalable endpoint, this is the context's own address.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index that is not in the table.
    fn member(&self, addr: FiAddr) -> Result<Address>;
}

/// The rank of an endpoint in a set.
///
/// # Errors
/// [`Errno::Inval`], with the reason in the log, for a set of another address vector, for a set
/// that is empty or too large or lacks the endpoint, for an index that is not in the table, or for
/// two indices of one endpoint.
pub(super) fn rank_in(
    set: &av::Set,
    members_table: &dyn Members,
    endpoint: &dyn Endpoint,
) -> Result<usize> {
    let local = endpoint.address()?;
    let rank = check_vector(set.vector(), members_table.vector())
        .and_then(|()| rank_of(&local, set.members(), members_table));
    rank.map_err(|reason| {
        log::warn!(target: "selvedge::core::collective", "{endpoint:?} cannot join a group: {reason}");
        Errno::Inval
    })
}

/// Checks that a set has members of the address vector that the endpoint is bound to.
fn check_vector(of_set: Option<&av::Identity>, local: &av::Identity) -> Result<(), String> {
    match of_set {
        Some(vector) if vector == local => Ok(()),
        Some(vector) => Err(format!(
            "the set has members of {vector:?}, and the endpoint is bound to {local:?}; create the set from the endpoint's address vector"
        )),
        None => Err(format!(
            "the set has members of a vector without an identity, and the endpoint is bound to {local:?}; \
             create the set from the endpoint's address vector"
        )),
    }
}

fn rank_of(
    local: &Address,
    members: &[FiAddr],
    members_table: &dyn Members,
) -> Result<usize, String> {
    let count = members.len();
    if !(1..=MAX_MEMBERS).contains(&count) {
        return Err(format!(
            "the set has {count} members, and 1 to {MAX_MEMBERS} may join"
        ));
    }
    let addresses = members.iter().map(|&member| {
        let address = members_table.member(member);
        address.map_err(|_| format!("{member:?} in the set is not in the address vector"))
    });
    let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
    let mut ranks = FxHashMap::default();
    for (rank, address) in addresses.iter().enumerate() {
        if let Some(other) = ranks.insert(address, rank) {
            let (one, other) = (members[other], members[rank]);
            return Err(format!(
                "{one:?} and {other:?} in the set are both {address}"
            ));
        }
    }
    let by_address = ranks.get(local).copied();
    let mut others = addresses.iter();
    by_address
        .or_else(|| others.position(|address| is_other_name(address, local)))
        .ok_or_else(|| "the endpoint is not in the set".to_owned())
}

/// Whether `address` is another name of `local`, which listens on all addresses of this host.
fn is_other_name(address: &Address, local: &Address) -> bool {
    let (Address::Ip(address), Address::Ip(local)) = (address, local) else {
        return false;
    };
    local.ip().is_unspecified()
        && local.port() == address.port()
        && UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address vector whose members have their index as port. Indices beyond all ports are
    /// invalid.
    #[derive(Debug)]
    struct Ports;

    impl Members for Ports {
        fn vector(&self) -> &av::Identity {
            unreachable!("ranks do not depend on it")
        }

        fn member(&self, addr: FiAddr) -> Result<Address> {
            // Every hundredth index has the port of the one before.
            let port = u16::try_from(addr.0 - addr.0 / 100).map_err(|_| Errno::Inval)?;
            Ok(address(&format!("127.0.0.1:{port}")))
        }
    }

    fn address(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn rank(local: &str, members: &[u64]) -> Result<usize, String> {
        let members: Vec<_> = members.iter().copied().map(FiAddr).collect();
        rank_of(&address(local), &members, &Ports)
    }

    #[test]
    fn the_error_for_a_set_of_another_vector_names_both_vectors() {
        let [local, other] = ["one domain", "another one"].map(|domain| av::Identity::new(&domain));
        check_vector(Some(&local.clone()), &local).unwrap();
        let reason = check_vector(Some(&other), &local).unwrap_err();
        assert!(
            reason.contains("one domain") && reason.contains("another one"),
            "{reason}"
        );
        let reason = check_vector(None, &local).unwrap_err();
        assert!(reason.contains("one domain"), "{reason}");
    }

    #[test]
    fn the_rank_is_that_of_the_member_with_the_endpoints_address() {
        assert_eq!(rank("127.0.0.1:7", &[5, 6, 7]), Ok(2));
        assert_eq!(rank("0.0.0.0:6", &[5, 6, 7]), Ok(1));
        let reason = rank("127.0.0.1:8", &[5, 6, 7]).unwrap_err();
        assert!(reason.contains("not in the set"), "{reason}");
    }

    #[test]
    fn the_error_for_an_invalid_set_names_the_reason() {
        let reason = rank("127.0.0.1:7", &[]).unwrap_err();
        assert!(reason.contains("0 members"), "{reason}");
        let reason = rank("127.0.0.1:7", &[7, 70_000]).unwrap_err();
        assert!(reason.contains("FiAddr(70000)"), "{reason}");
        let reason = rank("127.0.0.1:7", &[7, 99, 100]).unwrap_err();
        assert!(reason.contains("both 127.0.0.1:99"), "{reason}");
    }
}
