//! `fi_ubertest` with its configuration matrix, and programs with several threads or clients.

use std::path::Path;

use selvedge_testkit::long::part;

use crate::pair::{exclusive, free_port, pair_out_of_band, run_process, start, succeed};

/// Runs a server and a client of `fi_ubertest`.
fn run_uber(client: &str) -> [crate::pair::Outcome; 2] {
    run_uber_with("", client)
}

fn run_uber_with(server: &str, client: &str) -> [crate::pair::Outcome; 2] {
    let _guard = exclusive();
    let port = free_port();
    let server = start(&format!("fi_ubertest -p shm -x -q {port} {server}"));
    let line = format!("fi_ubertest -p shm -q {port} {client} 127.0.0.1");
    let client = start(&line).wait(&line);
    [server.wait("fi_ubertest -x"), client]
}

/// Writes a scratch file, and returns its path.
fn write_file(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_configuration_of_the_matrix_passes() {
    let (options, passed) = part(
        ("-u quick -z 40", "Success: 40"),
        ("-u quick", "Success: 107"),
    );
    let outcomes = run_uber(options);
    succeed(&outcomes);
    for outcome in &outcomes {
        for count in [passed, "Skipped: 0", "ENODATA: 0", "ERROR: 0"] {
            assert!(outcome.text.contains(count), "{outcome:#?}");
        }
    }
}

/// The file has upstream's format: words without quotes, optional commas, comments.
#[test]
fn a_file_in_the_format_of_upstream_is_expanded() {
    let path = write_file(
        "matrix.test",
        "#: \"two sizes of nothing\"\n{\n\tprov_name: tcp,\n\ttest_type: [\n\t\tFT_TEST_LATENCY,\n\t\t\
         FT_TEST_BANDWIDTH\n\t],\n\ttest_class: [FT_CAP_TAGGED],\n\tclass_function: [\n\t\t\
         FT_FUNC_SENDV,\n\t\tFT_FUNC_WRITE,\n\t],\n\tmr_mode: [],\n\ttest_flags: \
         FT_FLAG_QUICKTEST\n},\n{ test_class: FT_CAP_RMA ep_type: FI_EP_MSG }\n",
    );
    let [server, client] = run_uber(&format!("-u {path}"));
    // Two cases of tsendv succeed. Two are skipped, because writes belong to another class. One has
    // no data, because shm has no connected endpoints.
    for outcome in [&server, &client] {
        for count in ["Success: 2", "Skipped: 2", "ENODATA: 1"] {
            assert!(outcome.text.contains(count), "{outcome:#?}");
        }
        assert_eq!(outcome.code, Some(61));
    }
    assert!(client.text.contains("latency tsendv"), "{client:#?}");
    let [_, chosen] = run_uber(&format!("-u {path} -y 2 -z 3"));
    assert!(chosen.text.contains("Success: 1"), "{chosen:#?}");
}

/// The server, the client or both may run configurations in child processes.
#[test]
fn configurations_run_in_child_processes() {
    let path = write_file(
        "child.test",
        "{ test_class: [FT_CAP_TAGGED, FT_CAP_RMA, FT_CAP_ATOMIC] test_flags: FT_FLAG_QUICKTEST }\n\
         { test_class: FT_CAP_RMA ep_type: FI_EP_MSG }\n\
         { test_type: FT_TEST_LATENCY test_class: [FT_CAP_MSG, FT_CAP_TAGGED] test_flags: \
         FT_FLAG_QUICKTEST }",
    );
    for [server, client] in [["-f", "-f"], ["", "-f"], ["-f", ""]] {
        let outcomes = run_uber_with(server, &format!("{client} -u {path}"));
        for outcome in &outcomes {
            for count in ["Success: 5", "Skipped: 0", "ENODATA: 1", "ERROR: 0"] {
                assert!(outcome.text.contains(count), "{outcome:#?}");
            }
        }
        let headings = outcomes[1].text.matches("usec/xfer").count();
        assert_eq!(headings, 1, "{outcomes:#?}");
    }
}

/// `-p` with `-t` selects an installed file of upstream or an included file. A file may contain the
/// server's address.
#[test]
fn files_are_found_by_provider_and_test() {
    let outcomes = run_uber("-t quick -z 3");
    succeed(&outcomes);
    assert!(outcomes[1].text.contains("Success: 3"), "{outcomes:#?}");
    let path = write_file(
        "address.test",
        "{ node: 127.0.0.1 service: \"uber.address\" cq_wait_obj: FI_WAIT_MUTEX_COND \
         threading: FI_THREAD_ENDPOINT test_flags: FT_FLAG_QUICKTEST }",
    );
    succeed(&run_uber(&format!("-u {path}")));
    let outcome = run_process("fi_ubertest -p shm 127.0.0.1");
    assert!(outcome.errors.contains("-t TEST"), "{outcome:#?}");
}

#[test]
fn invalid_configurations_are_named_before_the_first_run() {
    for (text, word) in [
        ("{ test_tpye: FT_TEST_UNIT }", "test_tpye"),
        ("{ test_type: FT_TEST_SPEED }", "FT_TEST_SPEED"),
        ("{ op: [FI_SUM }", "in a list"),
    ] {
        let path = write_file("broken.test", text);
        let outcome = run_process(&format!("fi_ubertest -u {path} 127.0.0.1"));
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.errors.contains(word), "{outcome:#?}");
    }
    let outcome = run_process("fi_ubertest -u /nowhere 127.0.0.1");
    assert!(
        outcome.errors.contains("configurations are quick"),
        "{outcome:#?}"
    );
}

#[test]
fn every_thread_has_its_own_stream() {
    for options in [
        "-n 3",
        "-n 2 -U",
        "-n 5 -g",
        "-n 3 -g --threading completion",
    ] {
        let line = format!("fi_rdm_bw_mt -p shm {options} -v -I 4 -S l:64,70000");
        let outcomes = pair_out_of_band(&line, "b");
        succeed(&outcomes);
        assert_eq!(outcomes[0].rows().len(), 2, "{outcomes:#?}");
    }
}

#[test]
fn clients_that_exit_early_do_not_affect_others() {
    let script = write_file(
        "stress.json",
        "\"\nA comment.\n\"\n[{ \"op\": \"tag_req\", \"size\": 5000 }, { \"op\": \"tag_resp\" },\n\
         { \"op\": \"write_req\", \"size\": 900000, \"offset\": 5 }, { \"op\": \"exit\" }]\n",
    );
    // With a single thread, the server may send the awaited response while the client still has to
    // receive earlier responses.
    for (provider, threads, options) in [
        ("shm", 4, "-n 5".to_owned()),
        ("shm", 4, format!("-n 3 -u {script}")),
        ("shm", 1, "-n 5".to_owned()),
        ("tcp", 1, "-n 5".to_owned()),
    ] {
        let _guard = exclusive();
        let service = free_port();
        let server = start(&format!(
            "fi_rdm_stress -p {provider} -x --threads {threads} -B {service}"
        ));
        let line = format!("fi_rdm_stress -p {provider} {options} -P {service} 127.0.0.1");
        let client = start(&line).wait(&line);
        let server = server.wait("fi_rdm_stress -x");
        assert!(server.text.contains(" requests"), "{server:#?}");
        succeed(&[server, client]);
    }
}

#[test]
fn signals_terminate_processes_with_open_endpoints() {
    succeed(&[run_process("sighandler_test -p shm")]);
}
