//! The commands that process reports: plots and comparisons.

use std::path::Path;
use std::process::Command;

use selvedge_testkit::skip::{Need, skip};
use serde_json::Value;

use crate::command::{exclusive, run};
use crate::object::{array, number};

#[test]
fn a_report_becomes_self_contained_plots() {
    let _guard = exclusive();
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
    let report = write_scratch_file("report.json", &run(&args).stdout);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots");
    let folder = folder.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fabtests"))
        .args(["plot", &report, "-o", folder])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read_plot = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let names = ["latency.svg", "bandwidth.svg", "rate.svg", "spread.svg"];
    for name in names {
        let svg = read_plot(name);
        assert!(svg.contains("</svg>"), "{name}: {svg}");
        assert!(
            svg.contains("<polyline") || svg.contains("left out"),
            "{name}: {svg}"
        );
        assert!(
            !svg.contains("NaN") && !svg.contains("inf"),
            "{name}: {svg}"
        );
    }
    assert!(read_plot("spread.svg").contains(">99.9 %<"));
    let page = read_plot("index.html");
    assert_eq!(page.matches("<svg").count(), names.len());
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
}

#[test]
fn reports_are_compared_with_confidence_intervals() {
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
        write_scratch_file(name, report.to_string().as_bytes())
    };
    let (before, after) = (report("before.json", 1.0), report("after.json", 1.5));
    let compare = |extra_args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
        let output = command
            .args(["compare", &before, &after])
            .args(extra_args)
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, printed) = compare(&[]);
    assert_eq!(
        (code, printed.matches("SLOWER").count()),
        (Some(0), 1),
        "{printed}"
    );
    let sides = ["A", "B"].map(|side| {
        let name = if side == "A" { &before } else { &after };
        format!("{side}: {name}, shm of selvedge 0\n")
    });
    assert!(printed.starts_with(&sides.concat()), "{printed}");
    assert_eq!(compare(&["--fail-above", "60"]).0, Some(0));
    let (code, printed) = compare(&["--fail-above", "40"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("too slow: tagged_bw of 64"), "{printed}");
    let (_, printed) = compare(&["--json"]);
    let object: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(object["points"][1]["judgement"], "slower");
    assert_eq!(object["points"][0]["judgement"], "same");
}

#[test]
fn programs_are_run_alternately_and_their_tables_compared() {
    let _guard = exclusive();
    let compare = |extra_args: &[&str]| {
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
        command
            .args(base)
            .args(args)
            .args(extra_args)
            .output()
            .unwrap()
    };
    let output = compare(&["-p", "shm", "--against", "tcp", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["a"], "fi_rdm_pingpong of this suite over shm");
    assert_eq!(object["b"], "fi_rdm_pingpong of this suite over tcp");
    let points = array(&object["points"]);
    assert_eq!(points.len(), 2);
    assert!(
        points.iter().all(|point| number(point, "ratio") > 0.0),
        "{object}"
    );

    let output = compare(&["--bin", "/nowhere"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no program /nowhere"));
    if !Path::new("/usr/bin/fi_pingpong").exists() {
        return skip(Need::Libfabric, "there is no fi_pingpong (libfabric-bin)");
    }
    let output = compare(&["-p", "tcp", "--bin", "fi_pingpong"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("fi_rdm_pingpong against fi_pingpong"),
        "{output:?}"
    );
}

/// Writes a scratch file, and returns its path.
fn write_scratch_file(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}
