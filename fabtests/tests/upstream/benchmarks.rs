//! The benchmarks: server and client print upstream's tables.

use selvedge_testkit::long::part;

use crate::pair::{Outcome, pair, pair_out_of_band, run_process, succeed};

/// The sizes of a run without `-S`, as tables print them.
const SIZES: [&str; 6] = ["64", "256", "1k", "4k", "64k", "1m"];

fn assert_table(outcomes: &[Outcome]) {
    succeed(outcomes);
    for outcome in outcomes {
        let rows = outcome.rows();
        let sizes: Vec<_> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(sizes, SIZES, "{}", outcome.text);
        assert!(rows.iter().all(|row| row.len() == 7 && row[1] == "5"));
    }
}

#[test]
fn round_trips_of_all_kinds_print_tables() {
    for program in [
        "fi_rdm_pingpong",
        "fi_rdm_tagged_pingpong",
        "fi_rdm_cntr_pingpong",
    ] {
        for options in part(&["-v -U"][..], &["", "-U", "-v", "-v -U"]) {
            assert_table(&pair(&format!("{program} -p shm -I 5 {options}")));
        }
    }
    assert_table(&pair_out_of_band("fi_dgram_pingpong -p shm -I 5 -v", "b"));
}

#[test]
fn round_trips_work_with_every_wait_method() {
    for waiting in ["spin", "sread", "fd", "yield"] {
        let line = format!("fi_rdm_tagged_pingpong -p shm -I 5 -v -c {waiting}");
        assert_table(&pair(&line));
    }
    assert_table(&pair("fi_rdm_pingpong -p shm -I 5 -t counter"));
    assert_table(&pair("fi_rdm_pingpong -p shm -I 5 -v --special"));
    assert_table(&pair("fi_rdm_pingpong -p shm -I 5 -v -j 0"));
}

#[test]
fn streams_print_tables() {
    for options in ["fi_rdm_bw", "fi_rdm_tagged_bw", "fi_rdm_tagged_bw -U"] {
        for verify in part(
            &["--use-fi-more -v -W 3"][..],
            &["", "-v", "-v -W 3", "--use-fi-more -v"],
        ) {
            assert_table(&pair(&format!("{options} -p shm -I 5 {verify}")));
        }
    }
}

#[test]
fn remote_accesses_print_tables() {
    for program in ["fi_rma_bw", "fi_rma_pingpong"] {
        for operation in ["write", "read", "writedata"] {
            for verify in part(&["-v"][..], &["", "-v", "-v --special"]) {
                let line = format!("{program} -p shm -I 5 -o {operation} {verify}");
                let [server, client] = pair(&line);
                match (program, operation) {
                    ("fi_rma_pingpong", "read") => succeed(&[server]),
                    _ => assert_table(&[server]),
                }
                assert_table(&[client]);
            }
        }
    }
    for operation in ["write", "writedata"] {
        let line = format!("fi_rma_tx_completion -p shm -I 5 -v -o {operation}");
        let [server, client] = pair(&line);
        succeed(&[server]);
        assert_table(&[client]);
    }
}

#[test]
fn addresses_are_exchanged_out_of_band() {
    assert_table(&pair_out_of_band("fi_rdm_pingpong -p shm -I 5 -v", "E"));
    assert_table(&pair_out_of_band("fi_rdm_tagged_bw -p shm -I 5 -v", "b"));
}

#[test]
fn sizes_and_iterations_follow_the_options() {
    let outcomes = pair("fi_rdm_tagged_pingpong -p shm -v -m -I 3 -w 0 -S r:0,700,1400");
    succeed(&outcomes);
    for outcome in &outcomes {
        let mut lines = outcome.text.lines();
        assert_eq!(lines.next(), Some("---"));
        let command = lines.next().unwrap();
        assert!(command.starts_with("fi_rdm_tagged_pingpong -p shm -v -m -I 3"));
        assert!(command.ends_with(" :"));
        let rows: Vec<_> = lines.collect();
        for (row, size) in rows.iter().zip([0, 700, 1400]) {
            let total = size * 3 * 2;
            let begin = format!("- {{ xfer_size: {size}, iterations: 3, total: {total}, time: ");
            assert!(row.starts_with(&begin), "{row}");
        }
        assert_eq!(rows.len(), 3);
    }
    let sizes = part("l:8,100,9000", "all");
    succeed(&pair(&format!("fi_rdm_bw -p shm -v -I 3 -S {sizes}")));
    succeed(&pair("fi_rdm_pingpong -p shm -v -I 1 -S l:1,9999,3"));
}

#[test]
fn a_link_selects_the_program_of_its_name() {
    let folder = std::env::temp_dir().join(format!("fabtests-links-{}", std::process::id()));
    let created = run_process(&format!("links {}", folder.display()));
    succeed(&[created]);
    // The second call replaces the links of the first.
    succeed(&[run_process(&format!("links {}", folder.display()))]);
    let list = run_process("programs");
    for line in list.text.lines() {
        let name = line.split_whitespace().next().unwrap();
        let link = folder.join(name);
        let output = std::process::Command::new(link).arg("-h").output().unwrap();
        let usage = String::from_utf8(output.stderr).unwrap();
        assert!(usage.starts_with(&format!("{name}: ")), "{name}: {usage}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert!(list.text.lines().count() > 40);
    std::fs::remove_dir_all(folder).unwrap();
}
