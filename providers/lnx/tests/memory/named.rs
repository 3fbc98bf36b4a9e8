//! Endpoints that are found by node and service.

use selvedge::{Address, Errno, FiAddr, InfoFlags};
use selvedge_testkit::local::until;

use crate::endpoint::{CopyingEndpoint, exchange};
use crate::provider::{hints, info_for, name_in_errors, open_side_on, registry};

/// A port that no socket has at present.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[test]
fn a_node_and_a_service_name_both_links_of_an_endpoint() {
    let port = free_port();
    let server = CopyingEndpoint::open(&info_for(None, &port, InfoFlags::SOURCE));
    let name = name_in_errors(&server);
    assert!(name.ends_with(&format!(":{port}")), "{name}");
    assert!(name.contains(&format!("|fi_shm://{port}|")), "{name}");
    let client = info_for(Some("127.0.0.1"), &port, InfoFlags::empty());
    let dest_addr = client.dest_addr.clone().unwrap();
    let client = CopyingEndpoint::open(&client);
    let dest = client.av.insert_one(&dest_addr).unwrap();
    assert_eq!(client.av.insert_service("127.0.0.1", &port).unwrap(), dest);
    let mut out = [FiAddr::UNSPEC];
    let inserted = client
        .av
        .insert_symmetric("127.0.0.1", 1, &port, 1, &mut out);
    assert_eq!((inserted.unwrap(), out[0]), (1, dest));
    exchange_in_both_directions(&client, dest, &server);
    exchange(&server, &client);
}

/// On the far link a host has many addresses; the peer is the one that was requested.
#[test]
fn a_peer_inserted_by_another_of_its_addresses_is_the_same_peer() {
    let server = open_side_on("there");
    let client = open_side_on("here");
    let name = name_in_errors(&server);
    let (first, far) = name.rsplit_once('|').unwrap();
    let port = far.rsplit_once(':').unwrap().1;
    // The name that the insertion of a service makes: without a host, and with another near name.
    let (scheme, _) = first.split_at("lnx://".len());
    let other = format!("{scheme}0000000000000000|fi_shm://{port}|{far}");
    let dest = client.av.insert_one(&Address::Str(other)).unwrap();
    let client_addr = server.insert_endpoint(&client);
    exchange_in_both_directions(&client, dest, &server);
    let landing = client.trecv(dest, 6, 5, 7);
    server.tsend(client_addr, 6, b"reply", 8).unwrap();
    client.wait_for(7, &[&server]);
    assert_eq!(landing.bytes(), b"reply");
}

fn exchange_in_both_directions(client: &CopyingEndpoint, dest: FiAddr, server: &CopyingEndpoint) {
    let landing = server.trecv(FiAddr::UNSPEC, 5, 5, 2);
    until(|| match client.tsend(dest, 5, b"hello", 1) {
        Ok(()) => Some(()),
        Err(Errno::Again) => {
            client.progress();
            server.progress();
            None
        }
        Err(errno) => panic!("{errno}"),
    });
    server.wait_for(2, &[client]);
    client.wait_for(1, &[server]);
    assert_eq!(landing.bytes(), b"hello");
}

#[test]
fn the_error_for_an_address_of_one_link_quotes_it() {
    let hints = hints().src_addr("127.0.0.1:5".parse().unwrap());
    let error = registry(&[]).infos(&hints).unwrap_err();
    assert_eq!(error.errno(), Errno::NoData);
    let text = error.to_string();
    assert!(
        text.contains("src_addr") && text.contains("127.0.0.1:5"),
        "{text}"
    );
}
