//! libfabric's own programs, as the system has them.

use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::stage::{ended, finish, has, said, with_ours};

#[test]
fn fi_info_lists_our_providers_without_a_complaint_of_the_loader() {
    if !has("fi_info", &["fi_info"]) {
        return;
    }
    let text = said(&mut with_ours("fi_info"));
    assert!(
        text.contains("provider: shm") && text.contains("provider: tcp"),
        "{text}"
    );
    assert!(!text.contains("no version information"), "{text}");
    let text = said(with_ours("fi_info").args(["-v", "-p", "shm"]));
    assert!(text.contains("protocol: FI_PROTO_SHM"), "{text}");
    assert!(text.contains("api_version: 1.17"), "{text}");
    let text = said(with_ours("fi_info").args(["-e"]));
    assert!(text.contains("FI_SHM_TX_SIZE"), "{text}");
    let text = said(with_ours("fi_info").args(["-l"]));
    assert!(text.starts_with("shm:\n    version: "), "{text}");
    let (ended_well, _) = ended(with_ours("fi_info").args(["-p", "nobody"]));
    assert!(!ended_well);
}

#[test]
fn fi_strerror_has_our_texts() {
    if has("fi_strerror", &["fi_strerror"]) {
        let text = said(with_ours("fi_strerror").arg("265"));
        assert_eq!(text, "Truncation error\n");
    }
}

/// A port that nobody has at this moment.
fn port() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port().to_string()
}

fn pingpong(provider: &str, kind: &str) {
    if !has("fi_pingpong", &["fi_pingpong"]) {
        return;
    }
    let port = port();
    let arguments = ["-e", kind, "-p", provider, "-I", "50", "-c"];
    let server = with_ours("fi_pingpong")
        .args(arguments)
        .args(["-B", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says nothing when it is ready, and its client gives up at once where nobody listens.
    let mut text = String::new();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(100));
        let mut client = with_ours("fi_pingpong");
        client.args(arguments).args(["-P", &port, "127.0.0.1"]);
        let (ended_well, said) = ended(&mut client);
        text = said;
        if ended_well {
            let (ended_well, said) = finish(server);
            assert!(ended_well, "{said}");
            assert!(text.contains("1m") && text.contains("usec/xfer"), "{text}");
            return;
        }
        if !text.contains("refused") {
            break;
        }
    }
    panic!("the client fails: {text}\nthe server: {:?}", finish(server));
}

#[test]
fn fi_pingpong_runs_over_shm() {
    pingpong("shm", "rdm");
}

#[test]
fn fi_pingpong_runs_over_tcp() {
    pingpong("tcp", "rdm");
}

#[test]
fn fi_pingpong_runs_over_tcp_with_connections() {
    pingpong("tcp", "msg");
}
