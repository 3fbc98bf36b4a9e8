//! The exit codes on which scripts rely.

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::pair::{pair, run_process, start};

#[test]
fn unsupported_features_exit_with_no_data() {
    for line in [
        "fi_mr_cache_evict",
        "fi_multi_mr -e msg -V",
        "fi_check_hmem",
        "fi_msg",
        "fi_msg_sockets",
        "fi_rdm_pingpong -k",
        "fi_rdm_pingpong -D cuda",
        "fi_rdm_pingpong -e msg",
    ] {
        for outcome in pair(&format!("{line} -p shm")) {
            assert_eq!(outcome.code, Some(61), "{line}: {outcome:#?}");
            assert!(!outcome.errors.is_empty());
        }
    }
}

#[test]
fn an_unknown_provider_exits_with_no_data() {
    let outcome = run_process("fi_rdm -p nonsense 127.0.0.1");
    assert_eq!(outcome.code, Some(61));
    assert!(outcome.errors.contains("nonsense"), "{}", outcome.errors);
}

#[test]
fn an_unknown_host_exits_with_no_data() {
    for program in ["fi_rdm", "fi_dgram"] {
        let outcome = run_process(&format!("{program} -p shm host.invalid"));
        assert_eq!(outcome.code, Some(61), "{outcome:#?}");
        assert!(outcome.errors.contains("host.invalid"));
    }
}

#[test]
fn a_client_without_a_server_exits_with_connection_refused() {
    let outcome = run_process("fi_rdm -p shm -P no-endpoint-has-this-name 127.0.0.1");
    assert_eq!(outcome.code, Some(111), "{outcome:#?}");
}

#[test]
fn a_failed_program_stops_for_a_debugger() {
    let line = "fi_rdm -p shm --debug-assert host.invalid";
    let child = start(line);
    let process = Pid::from_raw(child.id().cast_signed());
    let status = waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(status, WaitStatus::Stopped(process, Signal::SIGSTOP));
    kill(process, Signal::SIGCONT).unwrap();
    assert_eq!(child.wait(line).code, Some(61));
}

#[test]
fn an_unknown_option_prints_the_usage() {
    for line in [
        "fi_rdm_pingpong -Z",
        "fi_rdm_pingpong --nonsense",
        "fi_rdm -e x",
        "fi_rdm -h",
    ] {
        let outcome = run_process(line);
        assert_eq!(outcome.code, Some(1), "{line}");
        assert!(outcome.errors.contains("options: -"), "{}", outcome.errors);
    }
}

#[test]
fn an_expected_error_is_a_success() {
    assert_eq!(
        run_process("fi_check_hmem -p shm --expect-error 61").code,
        Some(0)
    );
    assert_eq!(
        run_process("fi_check_hmem -p shm --expect-error 38").code,
        Some(61)
    );
    assert_eq!(
        run_process("fi_loopback -p shm --expect-error 61").code,
        Some(1)
    );
}
