//! Checks of the fields that docs/FABTESTS-REFERENCE.md lists.

use serde_json::Value;

pub(crate) fn check_machine(machine: &Value) {
    for field in ["cpu", "kernel", "arch", "selvedge"] {
        assert!(!text(machine, field).is_empty(), "{field}");
    }
    assert!(number(machine, "cores") >= 1.0);
    assert!(number(machine, "clock_ns") > 0.0);
    assert!(machine["one_core"].is_boolean());
    assert_eq!(array(&machine["pinned"]).len(), 2);
}

pub(crate) fn check_limits(limits: &Value, sizes: &[u64]) {
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

pub(crate) fn check_sizes(limits: &Value, sizes: &[u64]) {
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

/// Checks a row of a report. Its figures are null only if every run of the row was dropped.
pub(crate) fn check_row(row: &Value, bench: &str, size: u64) {
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

pub(crate) fn number(object: &Value, field: &str) -> f64 {
    object[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} is not a number in {object}"))
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} is not a text in {object}"))
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("{value} is not an array"))
}
