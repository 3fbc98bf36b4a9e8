//! A/B runs: measurements in turns with a baseline, which differs in its configuration, provider,
//! library or API.

use std::process::Command;

use selvedge_testkit::long::part;
use serde_json::Value;

use crate::command::{exclusive, run_failing, run_json};
use crate::object::{array, number, text};

#[test]
fn bidirectional_streams_are_measured_alone_and_against_another_provider() {
    let _guard = exclusive();
    let report = run_json(&[
        "bench",
        "--bench",
        "msg_bibw,tagged_bibw",
        "-S",
        "8,9000",
        "-I",
        "20",
        "--reps",
        "1",
        "-c",
        "--json",
    ]);
    assert_eq!(array(&report["rows"]).len(), 4);
    let args = [
        "bench",
        "--bench",
        "tagged_bibw",
        "-S",
        "64",
        "-I",
        "20",
        "--reps",
        "1",
    ];
    let report = run_json(&[&args[..], &["--against", "tcp", "--json"]].concat());
    let providers = array(&report["rows"])
        .iter()
        .map(|row| text(row, "provider"));
    assert_eq!(providers.collect::<Vec<_>>(), ["shm", "tcp"]);
    assert_eq!(array(&report["opening"]).len(), 2);
}

#[test]
fn single_messages_alternate_with_windows() {
    let _guard = exclusive();
    for window in ["1", "2", "7"] {
        let args = "bench --bench tagged_mixed -S 8,9000 -I 20 --reps 1 -c --json --window";
        let args: Vec<_> = args.split(' ').chain([window]).collect();
        let report = run_json(&args);
        for row in array(&report["rows"]) {
            assert_eq!(text(row, "bench"), "tagged_mixed");
            assert_eq!(number(row, "window").to_string(), window);
            // Figures are null only if every run of the row was dropped.
            let figure = if row["mbps"].is_null() {
                "dropped"
            } else {
                "mbps"
            };
            assert!(number(row, figure) > 0.0, "{row}");
        }
    }
    let args = "bench --bench tagged_mixed -S 64 -I 20 --reps 1 --against tcp --json";
    let report = run_json(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(array(&report["rows"]).len(), 2);
}

#[test]
fn datagrams_are_measured() {
    let _guard = exclusive();
    let args = "bench -p udp -e dgram -S 8,1k,1m -I 20 --reps 1 -c --json";
    let report = run_json(&args.split(' ').collect::<Vec<_>>());
    let rows = array(&report["rows"]).iter();
    let rows: Vec<_> = rows
        .map(|row| {
            (
                text(row, "provider"),
                text(row, "bench"),
                number(row, "size"),
            )
        })
        .collect();
    let row = |bench, size| ("udp", bench, size);
    let expected = [
        row("msg_pingpong", 8.0),
        row("msg_pingpong", 1024.0),
        row("msg_bw", 8.0),
        row("msg_bw", 1024.0),
    ];
    assert_eq!(rows, expected, "1 MiB does not fit into a datagram");
    let error = run_failing(&["bench", "-p", "udp", "-e", "dgram", "--bench", "tagged_bw"]);
    assert!(error.contains("datagrams do not carry"), "{error}");
}

#[test]
fn each_configuration_is_measured_against_its_baseline() {
    let _guard = exclusive();
    let configurations = [
        (&["--threading", "safe"][..], "thread-safe", "plain"),
        (&["--posted", "300"], "300 receives posted", "plain"),
        (&["--unexpected", "300"], "300 messages unexpected", "plain"),
        (&["--idle-peers", "30"], "30 idle peers", "plain"),
        (&["--senders", "3"], "3 senders", "one sender"),
        (
            &["--pairs", "2", "--wait", "sleep"],
            "2 pairs, sleeping",
            "one pair",
        ),
        (
            &["--wait", "fd"],
            "1 pair, waiting on a descriptor",
            "one pair",
        ),
        (
            &["--wait", "fd", "-p", "tcp"],
            "1 pair, waiting on a descriptor",
            "one pair",
        ),
        (
            &["--pairs", "2", "--wait", "yield"],
            "2 pairs, yielding",
            "one pair",
        ),
    ];
    for &(options, configuration, baseline) in part(
        configurations.iter().step_by(2),
        configurations.iter().step_by(1),
    ) {
        let base = ["bench", "--bench", "tagged_bw", "-S", "8", "-I", "20"];
        let args = [&base[..], &["--reps", "1", "--json"], options].concat();
        let report = run_json(&args);
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 2, "{options:?}");
        assert_eq!(text(&rows[0], "manner"), configuration);
        assert_eq!(text(&rows[1], "manner"), baseline);
        for row in rows.iter().filter(|row| number(row, "reps") > 0.0) {
            assert!(number(row, "msgs_per_s") > 0.0, "{row}");
            let has_many_pairs = configuration.contains("pair");
            assert_eq!(row["cores"].is_f64(), has_many_pairs, "{row}");
            assert_eq!(row["waiting_cpu"].is_f64(), has_many_pairs, "{row}");
        }
    }
    for (args, word) in [
        (
            &["bench", "--senders", "2", "--bench", "msg_bw"][..],
            "msg_bw",
        ),
        (&["bench", "--posted", "2", "--bench", "msg_bw"], "msg_bw"),
        (
            &["bench", "--wait", "fd", "--against", "libfabric"],
            "--wait",
        ),
        (&["bench", "--senders", "2", "--pairs", "2"], "--pairs"),
    ] {
        let error = run_failing(args);
        assert!(error.contains(word), "{args:?}: {error}");
    }
}

#[test]
fn the_safe_layer_is_measured_against_the_raw_endpoint() {
    let _guard = exclusive();
    let option_sets: [&[&str]; 2] = [&["-c"], &["--threading", "safe", "--no-inject"]];
    for options in option_sets {
        let base = ["bench", "--owned", "-S", "8,100000", "-I", "20"];
        let args = [&base[..], &["--reps", "1", "--json"], options].concat();
        let report = run_json(&args);
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 8);
        for pair in rows.chunks(2) {
            assert!(text(&pair[0], "manner").starts_with("owned"));
            assert_eq!(text(&pair[1], "manner"), "raw");
            assert_eq!(pair[0]["bench"], pair[1]["bench"]);
        }
    }
    let error = run_failing(&["bench", "--owned", "--bench", "tagged_bw", "-S", "8"]);
    assert!(error.contains("tagged_bw"), "{error}");
}

#[test]
fn the_service_layer_is_measured_against_the_raw_endpoint_and_eventfds() {
    let _guard = exclusive();
    let option_sets: [(&[&str], _); 3] = [
        (&["-c"], "raw"),
        (&["--wait", "fd"], "eventfd"),
        (&["-p", "tcp", "--wait", "sleep"], "eventfd"),
    ];
    for (options, other) in option_sets {
        let base = ["bench", "--service", "--bench", "msg_pingpong"];
        let base = [&base[..], &["-S", "64,100000", "-I", "20"]].concat();
        let report = run_json(&[&base[..], &["--reps", "1", "--json"], options].concat());
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 4);
        for pair in rows.chunks(2) {
            assert!(text(&pair[0], "manner").starts_with("service"));
            let names = [text(&pair[1], "manner"), text(&pair[1], "provider")];
            assert!(names.contains(&other), "{names:?}");
        }
    }
}

#[test]
fn buffers_in_the_shared_heap_are_measured_against_ordinary_memory() {
    let _guard = exclusive();
    let bench = part(
        &["--bench", "tagged_pingpong", "-S", "100000"][..],
        &["-S", "8,100000"],
    );
    let args = [
        "bench", "-p", "shm", "--heap", "-c", "-I", "20", "--reps", "1", "--json",
    ];
    let report = run_json(&[&args, bench].concat());
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), part(2, 16));
    for pair in rows.chunks(2) {
        assert_eq!(text(&pair[0], "manner"), "shared heap");
        assert_eq!(text(&pair[1], "manner"), "plain");
    }
}

#[test]
fn a_ring_of_more_processes_than_cores_is_measured_against_sockets() {
    let _guard = exclusive();
    for (provider, neighbours) in part(&[("shm", "0")][..], &[("shm", "2"), ("tcp", "0")]) {
        let ring = ["bench", "-p", provider, "--oversubscribed", "4"];
        let options = ["-S", "8", "-I", "50", "--reps", "1", "--json"];
        let report = run_json(&[&ring[..], &["--neighbours", neighbours], &options].concat());
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 2);
        assert_eq!(text(&rows[0], "provider"), *provider);
        assert_eq!(text(&rows[1], "implementation"), "sockets");
        for row in rows.iter().filter(|row| number(row, "reps") > 0.0) {
            assert_eq!(text(row, "bench"), "tagged_ring");
            assert!(text(row, "manner").starts_with("ring of 4"), "{row}");
            let times = &row["rtt_ns"];
            let exchange = 1e9 / number(row, "msgs_per_s");
            assert!((number(times, "mean") - exchange).abs() < 1.0, "{row}");
            assert!(number(times, "p50") <= number(times, "p99"), "{row}");
        }
    }
    for (args, word) in [
        (&["bench", "--bench", "tagged_ring"][..], "--oversubscribed"),
        (&["bench", "--oversubscribed", "3"], "even"),
        (&["bench", "--neighbours", "2"], "--oversubscribed"),
    ] {
        let error = run_failing(args);
        assert!(error.contains(word), "{args:?}: {error}");
    }
}

#[test]
fn a_broadcast_by_lending_is_measured_against_sends() {
    let _guard = exclusive();
    let broadcast = ["bench", "-p", "shm", "--receivers", "3"];
    let sizes = part("100000", "8,100000");
    let options = ["-S", sizes, "-I", "20", "-w", "10", "--reps", "1", "--json"];
    let report = run_json(&[&broadcast[..], &options].concat());
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), part(2, 4));
    for pair in rows.chunks(2) {
        assert_eq!(text(&pair[0], "manner"), "3 receivers, lent");
        assert_eq!(text(&pair[1], "manner"), "3 receivers, owned");
        for row in pair.iter().filter(|row| number(row, "reps") > 0.0) {
            assert_eq!(text(row, "bench"), "tagged_broadcast");
            let broadcast = 1e9 / number(row, "msgs_per_s");
            let mean = number(&row["rtt_ns"], "mean");
            assert!((mean - broadcast).abs() < 1.0, "{row}");
        }
    }
    for (args, word) in [
        (&["bench", "--bench", "tagged_broadcast"][..], "--receivers"),
        (&["bench", "--receivers", "2", "-c"], "leave out -c"),
        (
            &["bench", "-p", "tcp", "--receivers", "1", "-S", "8"],
            "is copied",
        ),
    ] {
        let error = run_failing(args);
        assert!(error.contains(word), "{args:?}: {error}");
    }
}

#[test]
fn bmi_is_measured_against_the_raw_endpoint() {
    let _guard = exclusive();
    for &provider in part(&["shm"][..], &["shm", "tcp"]) {
        let args = [
            "bench",
            "-p",
            provider,
            "--against",
            "bmi",
            "-S",
            "8,100000",
            "-I",
            "20",
            "--reps",
            "1",
            "--json",
        ];
        let report = run_json(&args);
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 8);
        for pair in rows.chunks(2) {
            assert!(text(&pair[0], "implementation").starts_with("selvedge "));
            assert!(text(&pair[1], "implementation").starts_with("selvedge-bmi "));
            assert_eq!(pair[0]["bench"], pair[1]["bench"]);
            assert_eq!(pair[1]["provider"], provider);
        }
    }
    let error = run_failing(&[
        "bench",
        "--against",
        "bmi",
        "--bench",
        "msg_pingpong",
        "-S",
        "8",
    ]);
    assert!(error.contains("msg_pingpong"), "{error}");
}

#[test]
fn a_bmi_server_is_measured_against_a_raw_server() {
    let _guard = exclusive();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    let time = ["--seconds", "1", "--reps", "1"];
    command.args(["bmi", "--clients", "5", "--json"]).args(time);
    let output = command.output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["clients"], 5);
    for (api, median) in [("bmi", "bmi_per_s"), ("raw", "raw_per_s")] {
        let [run] = &report[api].as_array().unwrap()[..] else {
            panic!("one run of each: {report}");
        };
        assert!(number(run, "least") > 0.0);
        assert!(number(run, "least") <= number(run, "most"));
        assert_eq!(number(run, "requests_per_s"), number(&report, median));
    }
}

#[test]
fn posts_of_bmi_are_timed_while_other_threads_test_operations() {
    let _guard = exclusive();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(["bmi", "--seconds", "1", "--reps", "2", "--json"]);
    command.args(["--posters", "2", "--testers", "2", "--background", "1"]);
    let output = command.output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["posters"], 2);
    assert_eq!(array(&report["runs"]).len(), 2);
    for run in array(&report["runs"]) {
        assert!(number(run, "posts") > 0.0 && number(run, "tests_per_s") > 0.0);
        assert!(number(run, "mean_us") > 0.0);
        assert!(number(run, "p99_us") <= number(run, "worst_us"));
        assert!(number(run, "worst_own_us") <= number(run, "worst_us"));
        assert!(number(run, "worst_at_ms") > 0.0 && number(run, "worst_delay_us") >= 0.0);
    }
}
