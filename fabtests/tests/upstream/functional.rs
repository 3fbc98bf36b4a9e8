//! Tests of the functional programs, with upstream's command lines and further ones.

use selvedge_testkit::long::part;

use crate::pair::{
    ProcessGuard, command, free_port, pair, pair_out_of_band, run_process, start, succeed,
};

fn all_succeed(lines: &[&str]) {
    for line in lines {
        succeed(&pair(&format!("{line} -p shm")));
    }
}

fn all_succeed_out_of_band(lines: &[&str]) {
    for line in lines {
        succeed(&pair_out_of_band(&format!("{line} -p shm"), "b"));
    }
}

#[test]
fn greetings_arrive() {
    all_succeed(&["fi_rdm", "fi_rdm -U", "fi_dgram"]);
    succeed(&[run_process("fi_loopback -p shm")]);
}

/// Each side drops the first message that it sends. The providers do not retransmit datagrams, so
/// the program itself must repeat the message.
#[test]
fn a_lost_greeting_is_repeated() {
    let port = free_port();
    for (line, name) in [
        ("fi_dgram -p shm", format!("lost.{port}")),
        ("fi_dgram -p udp", port.to_string()),
    ] {
        let lossy = |line: String| {
            let mut command = command(&line);
            command.env("FABTESTS_DEFECT", "drops_first");
            (ProcessGuard::spawn(&mut command), line)
        };
        let (server, server_line) = lossy(format!("{line} -B {name}"));
        let (client, client_line) = lossy(format!("{line} -P {name} 127.0.0.1"));
        let client = client.wait(&client_line);
        succeed(&[server.wait(&server_line), client]);
    }
}

#[test]
fn poll_sets_report_ready_queues() {
    all_succeed(&["fi_poll", "fi_poll -e dgram"]);
}

#[test]
fn contexts_and_processes_share_addresses() {
    let lines = [
        "fi_scalable_ep",
        "fi_scalable_ep --ctx-count=7",
        "fi_rdm_shared_av",
    ];
    all_succeed_out_of_band(&lines);
}

#[test]
fn a_server_serves_successive_clients() {
    let line = "fi_rdm_multi_client -I 5 -C 10 -p shm";
    for options in ["", "-U", "-R"] {
        succeed(&pair(&format!("{line} {options}")));
    }
}

#[test]
fn completion_data_arrives() {
    all_succeed(&[
        "fi_cq_data",
        "fi_cq_data -o writedata",
        "fi_cq_data -e dgram",
    ]);
}

#[test]
fn injected_buffers_may_be_overwritten() {
    for kind in ["inject", "inj_complete"] {
        for own in ["", "-N"] {
            succeed(&pair(&format!(
                "fi_inject_test {own} -A {kind} -v -I 20 -p shm"
            )));
        }
    }
}

#[test]
fn unexpected_messages_wait_for_receives() {
    all_succeed(&[
        "fi_flood -v -T 1",
        "fi_flood -v -U",
        "fi_flood -v -W 7 -S 70000",
    ]);
}

#[test]
fn receives_are_cancelled_and_messages_peeked() {
    all_succeed(&["fi_recv_cancel -V"]);
    all_succeed_out_of_band(&["fi_rdm_tagged_peek", "fi_rdm_tagged_peek -S 100000"]);
}

#[test]
fn messages_of_unknown_senders_wait() {
    all_succeed_out_of_band(&[
        "fi_unexpected_msg -I 10 -v",
        "fi_unexpected_msg -I 3 -M 100 -C -S 9000",
        "fi_av_xfer",
        "fi_av_xfer -e dgram",
    ]);
}

#[test]
fn one_buffer_receives_many_messages() {
    all_succeed_out_of_band(&["fi_multi_recv -I 300 -v", "fi_multi_recv -I 5 -v -S 9000"]);
}

#[test]
fn endpoints_share_vectors_and_queues() {
    for sharing in ["", "-A", "-Q", "-A -Q", "-c 9 --threading completion"] {
        all_succeed_out_of_band(&[&format!("fi_multi_ep -v {sharing}")]);
    }
    all_succeed_out_of_band(&["fi_rdm_multi_domain", "fi_rdm_multi_domain -c 5 -S 100 -V"]);
}

#[test]
fn targets_count_writes_and_queues_fill() {
    all_succeed(&[
        "fi_rdm_rma_event",
        "fi_rdm_rma_event -S 100000",
        "fi_resmgmt_test",
        "fi_resmgmt_test -o tagged -I 3000",
        "fi_resmgmt_test -m 3000 -l 5000",
        "fi_resmgmt_test -t -d -A -S 50 -R 50",
        "fi_resmgmt_test -T 16 -X 16",
    ]);
}

#[test]
fn each_region_has_its_own_counter() {
    all_succeed(&[
        "fi_multi_mr -e rdm -V",
        "fi_multi_mr -c 5 -I 30 -S 5000",
        "fi_multi_mr -c 3 -S 200000 --special",
    ]);
}

#[test]
fn addresses_are_bound_before_listen_and_connect() {
    let (line, port) = ("fi_msg_sockets -p tcp", free_port());
    let server = start(&format!("{line} -B {port}"));
    let client = run_process(&format!("{line} -P {port} 127.0.0.1"));
    succeed(&[server.wait(line), client]);
}

#[test]
fn endpoints_share_contexts() {
    for options in [
        "",
        "--no-tx-shared-ctx --ep-count 9",
        "--no-rx-shared-ctx",
        "-e dgram",
    ] {
        all_succeed_out_of_band(&[&format!("fi_shared_ctx {options}")]);
    }
}

#[test]
fn deferred_operations_wait_for_counters() {
    all_succeed_out_of_band(&["fi_rdm_rma_trigger", "fi_rdm_rma_trigger -S 100000"]);
    for kind in ["", "-T msg", "-T tagged", "-T rma", "-T c_atomic"] {
        all_succeed_out_of_band(&[&format!("fi_rdm_deferred_wq {kind}")]);
    }
}

/// The sender waits until the receiver has joined.
#[test]
fn a_multicast_group_receives_a_greeting() {
    let (port, oob_port) = (free_port(), free_port());
    let line = |role: &str| {
        format!("fi_mcast -p udp -s 127.0.0.1 -P {port} -b={oob_port} {role} 239.255.77.8")
    };
    let first = line("-M");
    let listener = start(&first);
    let sender = start(&line(""));
    succeed(&[sender.wait("the sender"), listener.wait(&first)]);
    let unsupported = run_process("fi_mcast -p shm 239.255.77.8");
    assert_eq!(unsupported.code, Some(61), "{unsupported:#?}");
    let no_group = run_process("fi_mcast -p udp 127.0.0.1");
    assert!(no_group.errors.contains("cannot join"), "{no_group:#?}");
}

#[test]
fn the_pages_of_a_buffer_are_replaced() {
    all_succeed(&["fi_unmap_mem -I 3"]);
}

#[test]
fn atomic_operations_have_their_results() {
    let all = [
        "-o min -U -v",
        "-o cswap -z uint64",
        "-o all -v --special",
        "-o all -v",
    ];
    for options in part(&all[..3], &all) {
        let outcomes = pair(&format!("fi_rdm_atomic -I 5 {options} -p shm"));
        succeed(&outcomes);
        for outcome in outcomes {
            let begin = "name                                              bytes   iters ";
            assert!(outcome.text.starts_with(begin), "{}", outcome.text);
            assert!(outcome.rows().iter().all(|row| row.len() == 8));
        }
    }
}
