//! Address vectors that processes share by a name.

use std::sync::Arc;

use selvedge::av::{Attr, SharedName};
use selvedge::info::EpType;
use selvedge::{AddressVector, Errno, Error, FiAddr};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, info};
use crate::process::PeerProcess;

/// Opens or creates a named vector.
fn open_vector(side: &NumberedEndpoint, name: SharedName) -> Result<Arc<dyn AddressVector>, Error> {
    let mut attr = Attr::default();
    attr.name = Some(name);
    side.domain().av(&attr)
}

#[test]
fn processes_find_peers_at_the_same_indices_of_a_named_vector() {
    let (name, vector) = (unique("index"), unique("vector"));
    let mut peer_process = PeerProcess::named(&name);
    assert_eq!(
        peer_process.request(&format!("share {vector} absent {name}")),
        "0 1"
    );
    let mut attr = Attr::default();
    attr.name = Some(SharedName::Open(vector.clone()));
    let mut side =
        NumberedEndpoint::open_with_av_attr(None, &info(EpType::Rdm, &[]), &attr).unwrap();
    peer_process.request("recv Msg 8 1");
    side.send(Kind::Msg, FiAddr(1), 8, 1).unwrap();
    side.next().ok();
    peer_process.request("next");
    // Addresses inserted later are found as well, and removed ones are not.
    assert_eq!(
        peer_process.request(&format!("share-more {}", side.name())),
        "2"
    );
    let side_address = side.av.lookup(FiAddr(2)).unwrap();
    assert_eq!(side_address, side.ep.address().unwrap());
    assert_eq!(peer_process.request("unshare 0"), "ok");
    assert_eq!(side.av.lookup(FiAddr(0)), Err(Errno::Inval));
    assert_eq!(side.av.members().unwrap(), [FiAddr(1), FiAddr(2)]);
    assert_eq!(
        side.av.insert_one(&side_address).unwrap_err().errno(),
        Errno::Acces
    );
    assert_eq!(side.av.remove(&[FiAddr(2)]), Err(Errno::Acces));
}

#[test]
fn the_name_of_a_killed_process_s_vector_can_be_created_again() {
    let (name, shared) = (unique("maker"), unique("left"));
    let mut peer_process = PeerProcess::named(&name);
    peer_process.request(&format!("share {shared} {name}"));
    let side = NumberedEndpoint::new();
    let open = open_vector(&side, SharedName::Open(shared.clone())).unwrap();
    let busy = open_vector(&side, SharedName::Create(shared.clone())).unwrap_err();
    assert_eq!(busy.errno(), Errno::AddrInUse);
    peer_process.kill();
    let gone = open_vector(&side, SharedName::Open(shared.clone())).unwrap_err();
    assert_eq!(gone.errno(), Errno::NoEnt);
    assert_eq!(open.members().unwrap(), [FiAddr(0)]);
    let created = open_vector(&side, SharedName::Create(shared.clone())).unwrap();
    assert_eq!(created.members().unwrap(), []);
    assert_eq!(
        created.insert_one(&side.ep.address().unwrap()).unwrap(),
        FiAddr(0)
    );
    let reopened = open_vector(&side, SharedName::Open(shared)).unwrap();
    assert_eq!(reopened.lookup(FiAddr(0)), side.ep.address());
}

#[test]
fn a_forked_child_neither_holds_nor_removes_its_parent_s_vector() {
    let (name, shared) = (unique("parent"), unique("forked"));
    let mut peer_process = PeerProcess::named(&name);
    peer_process.request(&format!("share {shared} {name}"));
    let side = NumberedEndpoint::new();
    peer_process.request("fork Libc");
    open_vector(&side, SharedName::Open(shared.clone())).unwrap();
    peer_process.kill();
    open_vector(&side, SharedName::Create(shared)).unwrap();
}
