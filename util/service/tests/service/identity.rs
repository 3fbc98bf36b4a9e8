//! The identity of a peer: the kernel vouches for it over shared memory, a certificate authority
//! with TLS.

use nix::unistd::{getegid, geteuid};
use selvedge_service::{Event, Listener, PeerCredentials};

use crate::processes::Process;
use crate::{bounded, connected, name};

#[test]
fn the_kernel_names_the_process_of_a_peer_over_shared_memory() {
    bounded(|| {
        let listener = Listener::bind(&name()).unwrap();
        let address = listener.addresses().unwrap().remove(0);
        for _ in 0..2 {
            let client = Process::start("idle client", &address);
            let peer = loop {
                match listener.event().wait().unwrap() {
                    Event::Connected(peer) => break peer,
                    event => assert!(matches!(event, Event::Lost(..)), "{event:?}"),
                }
            };
            let expected = PeerCredentials::Process {
                pid: client.id(),
                uid: geteuid().as_raw(),
                gid: getegid().as_raw(),
            };
            assert_eq!(peer.identity(), Some(&expected));
        }
    });
}

#[test]
fn the_kernel_names_the_process_of_a_server_over_shared_memory() {
    bounded(|| {
        let mut server = Process::start("silent server", &name());
        let connection = selvedge_service::connect(&server.line()).wait().unwrap();
        let identity = connection.identity();
        let is_server = |pid| pid == server.id();
        assert!(
            matches!(identity, Some(&PeerCredentials::Process { pid, .. }) if is_server(pid)),
            "{identity:?}"
        );
    });
}

#[test]
fn nothing_vouches_for_a_peer_over_plain_tcp() {
    bounded(|| {
        let (listener, connection) = connected("tcp://127.0.0.1:0");
        assert_eq!(connection.identity(), None);
        drop(listener);
    });
}
