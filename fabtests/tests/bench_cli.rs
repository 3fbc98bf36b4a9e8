//! The measuring commands as their users see them: as processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn pingpong_prints_the_documented_object() {
    let _turn = turn();
    let report = json(&[
        "pingpong", "-S", "8,5000", "-I", "50", "--reps", "2", "-c", "--json",
    ]);
    check_machine(&report["machine"]);
    check_limits(&report["limits"], &[8, 5000]);
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 2);
    for (row, size) in rows.iter().zip([8, 5000]) {
        check_row(row, "tagged_pingpong", size);
    }
    assert!(array(&report["memory"]).is_empty());
}

#[test]
fn untagged_messages_have_their_own_bench() {
    let _turn = turn();
    let report = json(&[
        "pingpong", "--msg", "-S", "8", "-I", "20", "--reps", "1", "--json",
    ]);
    check_row(&report["rows"][0], "msg_pingpong", 8);
}

#[test]
fn bench_prints_the_documented_object() {
    let _turn = turn();
    let report = json(&[
        "bench", "-S", "8,3000", "-I", "20", "--reps", "1", "-c", "--json",
    ]);
    check_machine(&report["machine"]);
    check_limits(&report["limits"], &[8, 3000]);
    let benches = ["msg_pingpong", "tagged_pingpong", "msg_bw", "tagged_bw"];
    let points = benches
        .iter()
        .flat_map(|&bench| [(bench, 8), (bench, 3000)]);
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 8);
    for (row, (bench, size)) in rows.iter().zip(points) {
        check_row(row, bench, size);
    }
    let opening = array(&report["opening"]);
    assert_eq!(opening.len(), 1);
    assert!(number(&opening[0], "open_ns") > 0.0, "{}", opening[0]);
    assert!(
        number(&opening[0], "first_round_trip_ns") > 0.0,
        "{}",
        opening[0]
    );
    let memory = array(&report["memory"]);
    assert_eq!(memory.len(), 1);
    for field in ["pss_kib", "file_kib", "rss_kib", "shm_kib", "mapped_kib"] {
        assert!(memory[0][field].is_i64(), "{field} of {}", memory[0]);
    }
}

#[test]
fn rows_are_lines_of_values_too() {
    let _turn = turn();
    let args = [
        "bench",
        "--bench",
        "msg_pingpong,msg_bw",
        "-S",
        "8",
        "-I",
        "20",
        "--reps",
        "1",
        "--csv",
    ];
    let output = run(&args);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines.iter().all(|line| line.len() == 23), "{text}");
    assert_eq!(
        (lines[0][3], lines[1][3], lines[2][3]),
        ("bench", "msg_pingpong", "msg_bw")
    );
    assert_eq!(lines[1][4], "8");
}

#[test]
fn both_directions_are_measured_at_once_and_against_another_provider() {
    let _turn = turn();
    let report = json(&[
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
    let report = json(&[&args[..], &["--against", "tcp", "--json"]].concat());
    let providers = array(&report["rows"])
        .iter()
        .map(|row| text(row, "provider"));
    assert_eq!(providers.collect::<Vec<_>>(), ["shm", "tcp"]);
    assert_eq!(array(&report["opening"]).len(), 2);
}

#[test]
fn a_report_becomes_pictures_that_need_nothing_else() {
    let _turn = turn();
    let args = [
        "bench",
        "-S",
        "8,4096,65536",
        "-I",
        "20",
        "--reps",
        "2",
        "--json",
    ];
    let report = scratch("report.json", &run(&args).stdout);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots");
    let folder = folder.to_str().unwrap();
    let drawn = Command::new(env!("CARGO_BIN_EXE_fabtests"))
        .args(["plot", &report, "-o", folder])
        .output()
        .unwrap();
    assert!(drawn.status.success(), "{drawn:?}");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let names = ["latency.svg", "bandwidth.svg", "rate.svg", "spread.svg"];
    for name in names {
        let svg = read(name);
        // A line is missing where the cores changed their distance in every run.
        assert!(
            svg.contains("<polyline") && svg.contains("</svg>"),
            "{name}: {svg}"
        );
        assert!(
            !svg.contains("NaN") && !svg.contains("inf"),
            "{name}: {svg}"
        );
    }
    assert!(read("spread.svg").contains(">99.9 %<"));
    let page = read("index.html");
    assert_eq!(page.matches("<svg").count(), names.len());
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
}

#[test]
fn reports_are_compared_with_the_confidence_that_their_runs_allow() {
    let report = |name: &str, factor: f64| {
        let row = |size: usize, ns: f64| {
            serde_json::json!({
                "provider": "shm", "implementation": "selvedge 0", "bench": "tagged_bw",
                "size": size, "window": 64, "rtt_ns": null, "msgs_per_s": 1e9 / ns,
                "limit_ns": null, "memcpy_mbps": null, "cma_ns": null, "manner": "",
                "runs_ns": [ns * 0.99, ns, ns * 1.01, ns],
            })
        };
        let report = serde_json::json!({
            "machine": {"cpu": "", "cores": 2, "kernel": ""},
            "rows": [row(8, 100.0), row(64, 120.0 * factor)],
        });
        scratch(name, report.to_string().as_bytes())
    };
    let (before, after) = (report("before.json", 1.0), report("after.json", 1.5));
    let compare = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
        let output = command
            .args(["compare", &before, &after])
            .args(more)
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, shown) = compare(&[]);
    assert_eq!(
        (code, shown.matches("SLOWER").count()),
        (Some(0), 1),
        "{shown}"
    );
    assert_eq!(compare(&["--fail-above", "60"]).0, Some(0));
    let (code, shown) = compare(&["--fail-above", "40"]);
    assert_eq!(code, Some(1));
    assert!(shown.contains("too slow: tagged_bw of 64"), "{shown}");
    let (_, shown) = compare(&["--json"]);
    let object: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(object["points"][1]["judgement"], "slower");
    assert_eq!(object["points"][0]["judgement"], "same");
}

#[test]
fn programs_take_turns_and_their_tables_are_compared() {
    let _turn = turn();
    let compare = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
        let base = [
            "compare",
            "--program",
            "fi_rdm_pingpong",
            "-I",
            "50",
            "--reps",
            "2",
        ];
        let args = ["-S", "64,4k", "--timeout", "120"];
        command.args(base).args(args).args(more).output().unwrap()
    };
    let output = compare(&["-p", "shm", "--against", "tcp", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = array(&object["points"]);
    assert_eq!(points.len(), 2);
    assert!(
        points.iter().all(|point| number(point, "ratio") > 0.0),
        "{object}"
    );

    let refused = compare(&["--bin", "/nowhere"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no program /nowhere"));
    if !Path::new("/usr/bin/fi_pingpong").exists() {
        println!("skipped: there is no fi_pingpong (libfabric-bin)");
        return;
    }
    let output = compare(&["-p", "tcp", "--bin", "fi_pingpong"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("fi_rdm_pingpong against fi_pingpong"),
        "{output:?}"
    );
}

/// A file that tests write.
fn scratch(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn remote_memory_is_measured_on_request() {
    let _turn = turn();
    let everywhere = [
        "rma_put",
        "rma_get",
        "rma_write_pingpong",
        "rma_bw",
        "rma_read_bw",
    ];
    let benches = [&everywhere[..], &["atomic_add", "atomic_fetch_add"]].concat();
    let named = benches.join(",");
    let report = json(&[
        "bench", "--bench", &named, "-S", "1,8,5000", "-I", "20", "--reps", "1", "--json",
    ]);
    let sizes = |bench: &str| match bench.starts_with("atomic") {
        true => &[8][..],
        false => &[1, 8, 5000],
    };
    let points: Vec<_> = benches
        .iter()
        .flat_map(|bench| sizes(bench).iter().map(move |&size| (*bench, size)))
        .collect();
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), points.len());
    for (row, (bench, size)) in rows.iter().zip(points) {
        assert_eq!(
            (text(row, "bench"), number(row, "size")),
            (bench, f64::from(size))
        );
        // Figures are null only where every run of the row was dropped.
        if number(row, "reps") == 0.0 {
            assert!(number(row, "dropped") > 0.0, "{row}");
            continue;
        }
        assert!(number(row, "msgs_per_s") > 0.0, "{row}");
        // Nor is a limit that was found while the cores were at another distance.
        let limit = &row["limit_ns"];
        assert!(limit.is_null() || number(row, "limit_ns") > 0.0, "{row}");
    }
    let refused = failure(&["bench", "--against", "nonsense"]);
    assert!(
        refused.contains("there are libfabric, bmi, shm"),
        "{refused}"
    );
    let refused = failure(&["bench", "--bench", "atomic_add", "-S", "16"]);
    assert!(refused.contains("atomic_add"), "{refused}");
}

#[test]
fn what_is_changed_is_measured_in_turns_with_the_plain_pair() {
    let _turn = turn();
    for (options, manner, plain) in [
        (&["--threading", "safe"][..], "thread-safe", "plain"),
        (&["--posted", "300"], "300 receives posted", "plain"),
        (&["--unexpected", "300"], "300 messages unexpected", "plain"),
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
            &["--pairs", "2", "--wait", "yield"],
            "2 pairs, yielding",
            "one pair",
        ),
    ] {
        let base = ["bench", "--bench", "tagged_bw", "-S", "8", "-I", "20"];
        let args = [&base[..], &["--reps", "1", "--json"], options].concat();
        let report = json(&args);
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 2, "{options:?}");
        assert_eq!(text(&rows[0], "manner"), manner);
        assert_eq!(text(&rows[1], "manner"), plain);
        for row in rows.iter().filter(|row| number(row, "reps") > 0.0) {
            assert!(number(row, "msgs_per_s") > 0.0, "{row}");
            let is_throng = manner.contains("pair");
            assert_eq!(row["cores"].is_f64(), is_throng, "{row}");
            assert_eq!(row["waiting_cpu"].is_f64(), is_throng, "{row}");
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
        let refused = failure(args);
        assert!(refused.contains(word), "{args:?}: {refused}");
    }
}

#[test]
fn data_that_is_sent_without_inject_arrives_whole_at_every_kind_of_size() {
    let _turn = turn();
    let sizes = "1,7,64,1000,4096,40000,300000";
    let report = json(&[
        "bench",
        "-S",
        sizes,
        "-I",
        "4",
        "--reps",
        "1",
        "-c",
        "--no-inject",
        "--json",
    ]);
    for row in array(&report["rows"]) {
        assert_eq!(row["inject"], false, "{row}");
    }
}

#[test]
fn limits_print_the_documented_object() {
    let _turn = turn();
    let report = json(&["limits", "-S", "8,5000", "--reps", "1", "--json"]);
    check_machine(&report["machine"]);
    check_limits(&report["limits"], &[8, 5000]);
    for field in [
        "tcp_rtt_ns",
        "unix_rtt_ns",
        "futex_wake_ns",
        "eventfd_wake_ns",
    ] {
        number(&report["limits"], field);
    }
    check_sizes(&report["limits"]["memcpy_cold"], &[8, 5000]);
    if report["limits"]["cma_refused"].is_null() {
        check_sizes(&report["limits"]["cma"], &[8, 5000]);
    }
}

#[test]
fn both_processes_may_share_a_core() {
    let _turn = turn();
    let core = first_core();
    let pin = format!("{core},{core}");
    let report = json(&[
        "pingpong", "--pin", &pin, "-S", "8", "-I", "20", "--reps", "1", "--json",
    ]);
    assert_eq!(report["machine"]["one_core"], true);
    assert_eq!(report["machine"]["pinned"], serde_json::json!([core, core]));
    check_row(&report["rows"][0], "tagged_pingpong", 8);
}

#[test]
fn tables_are_printed_where_no_json_is_asked_for() {
    let _turn = turn();
    let output = run(&["pingpong", "-S", "8", "-I", "20", "--reps", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["one-line ring", "tagged_pingpong", "p99", "MB/s", "x limit"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

#[test]
fn a_client_measures_a_server_in_another_terminal() {
    let _turn = turn();
    let mut server = Running::start(&["pingpong", "--server"]);
    let address = server.first_line();
    let client = [
        "pingpong", "--client", &address, "-S", "8,70000", "-I", "20", "--reps", "2", "-c",
        "--json",
    ];
    let report = json(&client);
    assert_eq!(array(&report["rows"]).len(), 2);
    check_row(&report["rows"][1], "tagged_pingpong", 70000);
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn a_client_without_a_server_says_so() {
    let _turn = turn();
    let message = failure(&["pingpong", "--client", "fi_shm://nobody", "-S", "8"]);
    assert!(message.contains("nobody"), "{message}");
}

#[test]
fn a_killed_child_is_reported_and_nobody_is_left() {
    let _turn = turn();
    let mut pingpong = Running::start(&["pingpong", "-S", "8", "-I", "10000000", "--reps", "100"]);
    let children = pingpong.wait_for_children(4);
    let victim = children[0];
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    let message = pingpong.end_with_failure();
    assert!(message.contains(&format!("pid {victim}")), "{message}");
    assert!(
        message.contains("SIGKILL") && message.contains("printed"),
        "{message}"
    );
    for child in children {
        assert!(!is_alive(child), "process {child} is left");
    }
}

#[test]
fn children_end_with_a_killed_parent() {
    let _turn = turn();
    let mut pingpong = Running::start(&["pingpong", "-S", "8", "-I", "10000000", "--reps", "100"]);
    let children = pingpong.wait_for_children(4);
    // A stopped process does not notice that its orders have ended: only the kernel can end it.
    // The first two have tied themselves to their parent before the others are started.
    for &child in &children[..2] {
        kill(Pid::from_raw(child), Signal::SIGSTOP).unwrap();
    }
    pingpong.0.kill().unwrap();
    pingpong.0.wait().unwrap();
    wait_until(|| children.iter().all(|&child| !is_alive(child)));
}

#[test]
fn time_that_is_over_ends_a_run() {
    let _turn = turn();
    let message = failure(&["pingpong", "-S", "8", "-I", "10000000", "--timeout", "1"]);
    assert!(message.contains("--timeout"), "{message}");
}

#[test]
fn bad_arguments_are_refused_by_name() {
    let _turn = turn();
    for (args, word) in [
        (&["pingpong", "-S", "9x"][..], "9x"),
        (&["pingpong", "--pin", "0,9999"], "9999"),
        (&["pingpong", "-p", "nosuch"], "nosuch"),
        (&["bench", "--bench", "tagged_bandwidth"], "tagged_bw"),
        (&["pingpong", "--server", "--client", "x"], "--client"),
    ] {
        let message = failure(args);
        assert!(message.contains(word), "{args:?}: {message}");
    }
}

#[test]
fn a_machine_without_compiler_or_libfabric_is_told_what_to_install() {
    let _turn = turn();
    let output = fabtests(&["bench", "-S", "8", "--against", "libfabric"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("libfabric-dev"), "{message}");
}

#[test]
fn libfabric_is_measured_in_the_same_object_where_it_is_installed() {
    let _turn = turn();
    if !Path::new("/usr/include/rdma/fi_tagged.h").exists() {
        eprintln!("skipped: libfabric's headers are not installed");
        return;
    }
    let messages = "msg_pingpong,tagged_pingpong,msg_bw,tagged_bw";
    let one_sided =
        "rma_put,rma_get,rma_write_pingpong,rma_bw,rma_read_bw,atomic_add,atomic_fetch_add";
    let benches = [messages, one_sided].join(",");
    let args = [
        "bench", "-S", "8", "-I", "20", "--reps", "2", "--bench", &benches,
    ];
    let report = json(&[&args[..], &["--against", "libfabric", "--json"]].concat());
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 22);
    for pair in rows.chunks(2) {
        assert!(text(&pair[0], "implementation").starts_with("selvedge "));
        assert!(text(&pair[1], "implementation").starts_with("libfabric "));
        assert_eq!(pair[0]["bench"], pair[1]["bench"]);
    }
    assert_eq!(array(&report["memory"]).len(), 2);
}

#[test]
fn bmi_is_measured_beside_the_raw_endpoint() {
    let _turn = turn();
    for provider in ["shm", "tcp"] {
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
        let report = json(&args);
        let rows = array(&report["rows"]);
        assert_eq!(rows.len(), 8);
        for pair in rows.chunks(2) {
            assert!(text(&pair[0], "implementation").starts_with("selvedge "));
            assert!(text(&pair[1], "implementation").starts_with("selvedge-bmi "));
            assert_eq!(pair[0]["bench"], pair[1]["bench"]);
            assert_eq!(pair[1]["provider"], provider);
        }
    }
    let refused = failure(&[
        "bench",
        "--against",
        "bmi",
        "--bench",
        "msg_pingpong",
        "-S",
        "8",
    ]);
    assert!(refused.contains("msg_pingpong"), "{refused}");
}

#[test]
fn clients_of_bmi_are_counted() {
    let _turn = turn();
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
    for (face, median) in [("bmi", "bmi_per_s"), ("raw", "raw_per_s")] {
        let [served] = &report[face].as_array().unwrap()[..] else {
            panic!("one run of each: {report}");
        };
        assert!(number(served, "least") > 0.0);
        assert!(number(served, "least") <= number(served, "most"));
        assert_eq!(number(served, "requests_per_s"), number(&report, median));
    }
}

/// Lets one test at a time measure: two that spin on the same cores take a time slice for each
/// message.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_machine(machine: &Value) {
    for field in ["cpu", "kernel", "arch", "selvedge"] {
        assert!(!text(machine, field).is_empty(), "{field}");
    }
    assert!(number(machine, "cores") >= 1.0);
    assert!(number(machine, "clock_ns") > 0.0);
    assert!(machine["one_core"].is_boolean());
    assert_eq!(array(&machine["pinned"]).len(), 2);
}

fn check_limits(limits: &Value, sizes: &[u64]) {
    for field in [
        "cacheline_rtt_ns",
        "ring_rtt_ns",
        "ring_rtt_mean_ns",
        "ring_rtt_8b_ns",
        "ring_msgs_per_s",
        "ring_8b_msgs_per_s",
    ] {
        assert!(number(limits, field) > 0.0, "{field}");
    }
    check_sizes(&limits["memcpy"], sizes);
    check_sizes(&limits["two_copy"], sizes);
}

fn check_sizes(limits: &Value, sizes: &[u64]) {
    let limits = array(limits);
    let measured: Vec<_> = limits
        .iter()
        .map(|limit| limit["size"].as_u64().unwrap())
        .collect();
    assert_eq!(measured, sizes);
    for limit in limits {
        assert!(
            number(limit, "ns") > 0.0 && number(limit, "mbps") > 0.0,
            "{limit}"
        );
    }
}

/// Figures are null only where every run of the row was dropped.
fn check_row(row: &Value, bench: &str, size: u64) {
    assert_eq!(row["provider"], "shm");
    assert!(text(row, "implementation").starts_with("selvedge "));
    assert_eq!(row["bench"], bench);
    assert_eq!(row["size"], size);
    assert!(number(row, "window") >= 1.0);
    assert!(row["inject"].is_boolean());
    let runs = number(row, "reps") + number(row, "dropped");
    assert!(runs >= 1.0);
    for field in ["limit_ns", "ratio", "memcpy_mbps"] {
        assert!(row.get(field).is_some(), "{field} is missing in {row}");
    }
    if number(row, "reps") == 0.0 {
        return;
    }
    for field in ["mbps", "msgs_per_s", "cacheline_rtt_ns", "ring_rtt_ns"] {
        assert!(number(row, field) > 0.0, "{field} of {row}");
    }
    assert!(number(row, "spread") >= 0.0);
    if bench.ends_with("_pingpong") {
        let rtt = &row["rtt_ns"];
        let [min, p50, p99, mean] = ["min", "p50", "p99", "mean"].map(|field| number(rtt, field));
        assert!(0.0 < min && min <= p50 && p50 <= p99 && mean > 0.0, "{rtt}");
    } else {
        assert!(row["rtt_ns"].is_null());
    }
}

fn number(object: &Value, field: &str) -> f64 {
    object[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} is no number in {object}"))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} is no text in {object}"))
}

fn array(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("{value} is no array"))
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&run(args).stdout).unwrap()
}

fn run(args: &[&str]) -> Output {
    let output = fabtests(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    output
}

fn failure(args: &[&str]) -> String {
    let output = fabtests(args).output().unwrap();
    assert!(!output.status.success(), "{args:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The command, which ends by itself: no test hangs.
fn fabtests(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(args);
    if !args.contains(&"--timeout") {
        command.args(["--timeout", "120"]);
    }
    command
}

/// A command that runs beside the test; killed when the test ends.
struct Running(Child);

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = fabtests(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().to_owned()
    }

    fn wait_for_children(&mut self, count: usize) -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = || -> Vec<i32> {
            let list = std::fs::read_to_string(&path).unwrap();
            list.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect()
        };
        wait_until(|| children().len() >= count);
        children()
    }

    fn end_with_failure(mut self) -> String {
        let stderr = BufReader::new(self.0.stderr.take().unwrap());
        let message: Vec<_> = stderr.lines().map(Result::unwrap).collect();
        assert!(!self.0.wait().unwrap().success());
        message.join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks until a condition holds; gives up after a time far beyond what it takes.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < patience, "it never happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_alive(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie is dead; it waits for whoever inherited it.
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn first_core() -> usize {
    fabtests::cpu::allowed().unwrap()[0]
}
