//! libfabric's own programs, as installed in the system: fi_info, fi_strerror, fi_pingpong.

use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::harness::{finish, has, output_of, run_to_end, with_selvedge};

#[test]
fn fi_info_lists_the_providers_without_a_loader_warning() {
    if !has(&["fi_info"]) {
        return;
    }
    let text = output_of(&mut with_selvedge("fi_info"));
    assert!(
        text.contains("provider: shm") && text.contains("provider: tcp"),
        "{text}"
    );
    assert!(!text.contains("no version information"), "{text}");
    let text = output_of(with_selvedge("fi_info").args(["-v", "-p", "shm"]));
    assert!(text.contains("protocol: FI_PROTO_SHM"), "{text}");
    assert!(text.contains("api_version: 1.17"), "{text}");
    let text = output_of(with_selvedge("fi_info").args(["-e"]));
    assert!(text.contains("FI_SHM_TX_SIZE"), "{text}");
    let text = output_of(with_selvedge("fi_info").args(["-l"]));
    assert!(text.starts_with("shm:\n    version: "), "{text}");
    let (has_succeeded, _) = run_to_end(with_selvedge("fi_info").args(["-p", "unknown"]));
    assert!(!has_succeeded);
}

#[test]
fn an_invalid_parameter_is_reported_and_zero_needs_no_unit() {
    if !has(&["fi_info"]) {
        return;
    }
    let run_fi_info = |name: &str, value: &str| {
        let mut command = with_selvedge("fi_info");
        run_to_end(command.args(["-p", "shm"]).env(name, value))
    };
    let (has_succeeded, text) = run_fi_info("FI_SHM_SPIN_TIME", "0");
    assert!(has_succeeded, "{text}");
    let (has_succeeded, text) = run_fi_info("FI_SHM_SPIN_TIME", "1000000");
    let reason = "FI_SHM_SPIN_TIME=\"1000000\": expected a time with its unit";
    assert!(!has_succeeded && text.contains(reason), "{text}");
    assert_eq!(text.matches(reason).count(), 1, "{text}");
    let (_, text) = run_fi_info("FI_ADDR_FORMAT", "postcard");
    assert!(text.contains("postcard"), "{text}");
}

#[test]
fn discovery_explains_why_shm_is_refused_for_peers_on_other_hosts() {
    if !has(&["fi_info"]) {
        return;
    }
    let run_fi_info = |environment: &[(&str, &str)]| {
        let mut command = with_selvedge("fi_info");
        for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_NODES"] {
            command.env_remove(name);
        }
        command.args(["-p", "shm", "-c", "FI_TAGGED|FI_REMOTE_COMM"]);
        run_to_end(command.envs(environment.iter().copied()))
    };
    let remedy = "set FI_SHM_REMOTE_COMM=1";
    let (has_succeeded, text) = run_fi_info(&[]);
    assert!(!has_succeeded && text.contains(remedy), "{text}");
    let one_host = [("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
    let two_hosts = [("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")];
    let off = [one_host[0], one_host[1], ("FI_SHM_REMOTE_COMM", "0")];
    for (environment, expected) in [(&one_host[..], true), (&two_hosts, false), (&off, false)] {
        let (has_succeeded, text) = run_fi_info(environment);
        assert_eq!(has_succeeded, expected, "{environment:?}: {text}");
        assert_eq!(text.contains(remedy), !expected, "{text}");
    }
}

#[test]
fn fi_strerror_prints_libfabric_s_texts() {
    if has(&["fi_strerror"]) {
        let text = output_of(with_selvedge("fi_strerror").arg("265"));
        assert_eq!(text, "Truncation error\n");
    }
}

/// A port that is free at the time of the call.
fn free_port() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port().to_string()
}

fn pingpong(provider: &str, kind: &str) {
    if !has(&["fi_pingpong"]) {
        return;
    }
    let port = free_port();
    let arguments = ["-e", kind, "-p", provider, "-I", "50", "-c"];
    let server = with_selvedge("fi_pingpong")
        .args(arguments)
        .args(["-B", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The server prints nothing when it is ready, and a client fails at once while no server
    // listens.
    let mut text = String::new();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(100));
        let mut client = with_selvedge("fi_pingpong");
        client.args(arguments).args(["-P", &port, "127.0.0.1"]);
        let (has_succeeded, output) = run_to_end(&mut client);
        text = output;
        if has_succeeded {
            let (has_succeeded, output) = finish(server);
            assert!(has_succeeded, "{output}");
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
