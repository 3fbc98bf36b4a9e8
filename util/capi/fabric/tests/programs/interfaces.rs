//! Programs of `tests/c`, one for each interface.

use selvedge_testkit::long::part;

use crate::harness::{Built, SYSTEM_HEADERS, compile, has, output_of, with_selvedge};

fn run(name: &str, arguments: &[&str]) {
    if has(&["cc"]) {
        let program = compile(name, Built::ForSelvedge, None);
        output_of(with_selvedge(program).args(arguments));
    }
}

#[test]
fn messages_of_every_form_pass_between_processes_in_c() {
    run("messages", &["shm"]);
    run("messages", &["tcp"]);
}

#[test]
fn options_in_c_can_be_read_from_the_beginning() {
    run("options", &["shm", "4096"]);
    run("options", &["tcp", "16384"]);
    run("options", &["lnx", "4096"]);
}

#[test]
fn remote_memory_atomics_and_counters_work_between_processes_in_c() {
    run("remote", &["shm"]);
    run("remote", &["tcp"]);
}

#[test]
fn injects_to_a_peer_that_has_exited_are_counted_and_leave_no_entry() {
    run("gone", &["shm"]);
    run("gone", &["tcp"]);
    run("gone", &["lnx"]);
}

#[test]
fn triggered_and_deferred_work_in_c_waits_for_its_counter() {
    run("trigger", &["shm"]);
    run("trigger", &["tcp"]);
}

#[test]
fn endpoints_in_c_share_their_receives() {
    run("shared", &["shm"]);
    run("shared", &["tcp"]);
}

#[test]
fn contexts_in_c_have_addresses_behind_that_of_their_scalable_endpoint() {
    run("scalable", &["shm"]);
    run("scalable", &["tcp"]);
}

#[test]
fn endpoints_and_contexts_in_c_are_opened_bound_and_enabled_in_any_order() {
    run("orders", &["shm"]);
    run("orders", &["tcp"]);
    if has(&["cc"]) {
        let mut command = with_selvedge(compile("orders", Built::ForSelvedge, None));
        let hooked = command.env("FI_HOOK", "perf").arg("shm");
        output_of(hooked.env("FI_HOOK_FILE", "/dev/null"));
    }
}

#[test]
fn processes_in_c_share_a_named_address_vector() {
    run("shared_av", &["shm"]);
    run("shared_av", &["tcp"]);
}

#[test]
fn poll_and_wait_sets_in_c_report_ready_members() {
    run("sets", &["shm"]);
    run("sets", &["tcp"]);
}

#[test]
fn sets_groups_and_collectives_work_between_processes_in_c() {
    run("collectives", &["shm"]);
    run("collectives", &["tcp"]);
}

#[test]
fn contexts_in_c_join_groups_and_take_part_in_collectives() {
    run("context_groups", &["shm"]);
    run("context_groups", &["tcp"]);
}

#[test]
fn threads_in_c_park_on_queues_and_descriptors() {
    run("waits", &["shm"]);
    run("waits", &["tcp"]);
}

#[test]
fn addresses_in_c_are_bound_before_listen_and_connect() {
    run("sockets", &[]);
}

#[test]
fn endpoints_in_c_connect_reject_and_shut_down() {
    run("connect", &[]);
}

#[test]
fn wrong_calls_in_c_return_their_errno_and_damage_nothing() {
    run("misuse", &["shm"]);
    run("misuse", &["tcp"]);
}

#[test]
fn programs_that_were_built_for_an_older_library_run() {
    let system = "/usr/lib/x86_64-linux-gnu/libfabric.so";
    if has(&["cc", SYSTEM_HEADERS, system]) {
        for name in ["misuse", "messages", "remote"] {
            let program = compile(name, Built::ForSystem, None);
            output_of(with_selvedge(program).arg("shm"));
        }
    }
}

#[test]
fn libfabric_providers_log_and_read_parameters_through_selvedge() {
    if !has(&["cc"]) {
        return;
    }
    let mut command = with_selvedge(compile("provider", Built::ForSelvedge, None));
    command
        .env("FI_DEMO_SIZE", "4k")
        .env("FI_DEMO_NAME", "somebody");
    let text = output_of(command.env("FI_DEMO_WRONG", "maybe"));
    let line = "demo:ep_ctrl:warn: main():";
    assert!(
        text.contains(line) && text.contains("six 1 2 c 0.25 words"),
        "{text}"
    );
}

#[test]
fn hooks_trace_programs_in_c() {
    if !has(&["cc"]) {
        return;
    }
    let name = format!("selvedge-hooks-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let mut command = with_selvedge(compile("messages", Built::ForSelvedge, None));
    command.env("FI_HOOK", "trace").env("FI_HOOK_FILE", &file);
    output_of(command.arg("shm"));
    let text = std::fs::read_to_string(&file).expect("there is a trace");
    // A file that cannot be removed stays in the folder for temporary files.
    let _ = std::fs::remove_file(&file);
    for call in ["fabric", "tsendmsg", "trecvmsg", "cq_read", "ep_close"] {
        let call = format!("\"call\":\"{call}\"");
        assert!(text.contains(&call), "{call}");
    }
}

/// Members of a domain that Selvedge prints and libfabric 1.17 does not.
const NEWER: [&str; 4] = [
    "max_ep_auth_key",
    "max_group_id",
    "max_cntr_value",
    "max_err_cntr_value",
];

#[test]
fn fi_tostr_prints_the_texts_of_the_system_s_libfabric() {
    let system = "/usr/lib/x86_64-linux-gnu/libfabric.so.1";
    if !has(&["cc", SYSTEM_HEADERS, system]) {
        return;
    }
    let program = compile("print", Built::ForSystem, None);
    let system_text = output_of(std::process::Command::new(&program).env_remove("LD_LIBRARY_PATH"));
    let selvedge = output_of(&mut with_selvedge(&program));
    let is_in_system = |line: &&str| !NEWER.iter().any(|newer| line.contains(newer));
    let selvedge: Vec<_> = selvedge.lines().filter(is_in_system).collect();
    let system_text: Vec<_> = system_text.lines().filter(is_in_system).collect();
    assert_eq!(selvedge, system_text);
}

#[test]
fn random_posts_touch_only_the_named_memory() {
    let calls =
        std::env::var("FABRIC_MISUSE_CALLS").unwrap_or_else(|_| part("4000", "20000").to_owned());
    let seed = std::env::var("FABRIC_MISUSE_SEED").unwrap_or_else(|_| "1".to_owned());
    for provider in ["shm", "tcp", "lnx"] {
        run("wild", &[provider, &seed, &calls]);
    }
}
