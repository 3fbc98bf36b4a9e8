//! The output of the measuring commands: the objects, lines and tables that
//! docs/FABTESTS-REFERENCE.md describes.

use crate::command::{exclusive, run, run_failing, run_json};
use crate::object::{array, check_limits, check_machine, check_row, check_sizes, number, text};

#[test]
fn pingpong_prints_the_documented_object() {
    let _guard = exclusive();
    let report = run_json(&[
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
    let _guard = exclusive();
    let report = run_json(&[
        "pingpong", "--msg", "-S", "8", "-I", "20", "--reps", "1", "--json",
    ]);
    check_row(&report["rows"][0], "msg_pingpong", 8);
}

#[test]
fn bench_prints_the_documented_object() {
    let _guard = exclusive();
    let report = run_json(&[
        "bench", "-S", "8,3000", "-I", "20", "--reps", "1", "-c", "--json",
    ]);
    assert_eq!(report["partial"], false);
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
fn csv_output_has_one_line_per_row() {
    let _guard = exclusive();
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
fn limits_print_the_documented_object() {
    let _guard = exclusive();
    let report = run_json(&["limits", "-S", "8,5000", "--reps", "1", "--json"]);
    check_machine(&report["machine"]);
    check_limits(&report["limits"], &[8, 5000]);
    for field in [
        "put_rtt_ns",
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
fn the_default_output_is_a_table() {
    let _guard = exclusive();
    let output = run(&["pingpong", "-S", "8", "-I", "20", "--reps", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["one-line ring", "tagged_pingpong", "p99", "MB/s", "x limit"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

#[test]
fn remote_memory_is_measured_on_request() {
    let _guard = exclusive();
    let one_sided = [
        "rma_put",
        "rma_get",
        "rma_write_pingpong",
        "rma_bw",
        "rma_read_bw",
    ];
    let benches = [&one_sided[..], &["atomic_add", "atomic_fetch_add"]].concat();
    let list = benches.join(",");
    let report = run_json(&[
        "bench", "--bench", &list, "-S", "1,8,5000", "-I", "20", "--reps", "1", "--json",
    ]);
    let sizes = |bench: &str| {
        if bench.starts_with("atomic") {
            &[8][..]
        } else {
            &[1, 8, 5000]
        }
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
        // Figures are null only if every run of the row was dropped.
        if number(row, "reps") == 0.0 {
            assert!(number(row, "dropped") > 0.0, "{row}");
            continue;
        }
        assert!(number(row, "msgs_per_s") > 0.0, "{row}");
        // A limit that was measured at another core distance is null too.
        let limit = &row["limit_ns"];
        assert!(limit.is_null() || number(row, "limit_ns") > 0.0, "{row}");
    }
    let error = run_failing(&["bench", "--against", "nonsense"]);
    assert!(
        error.contains("choose libfabric, ucx, iceoryx2, mpi, bmi, tarpc, tonic, shm"),
        "{error}"
    );
    let error = run_failing(&["bench", "--bench", "atomic_add", "-S", "16"]);
    assert!(error.contains("atomic_add"), "{error}");
}

#[test]
fn without_inject_the_data_of_every_size_is_correct() {
    let _guard = exclusive();
    let sizes = "1,7,64,1000,4096,40000,300000";
    let report = run_json(&[
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
