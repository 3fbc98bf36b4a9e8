//! The command lines in the test sets of upstream (libfabric's fabtests), as entries of the suite.

use crate::suite::{Entry, Process, Selection, Set};

/// Programs that run as one process.
const ONE_PROCESS: &[&str] = &[
    "fi_getinfo_test -s 127.0.0.1 127.0.0.1",
    "fi_av_test -g 192.168.10.1 -n 1 -s 127.0.0.1 -e rdm",
    "fi_av_test -g 192.168.10.1 -n 1 -s 127.0.0.1 -e dgram",
    "fi_dom_test -n 2",
    "fi_eq_test",
    "fi_cq_test",
    "fi_mr_test",
    "fi_cntr_test",
    "fi_setopt_test",
    "fi_loopback",
    "sighandler_test",
];

/// Programs that run as one process: a client that is given an unknown host name.
const UNKNOWN_HOST: &[&str] = &["fi_rdm", "fi_dgram", "fi_msg"];

/// Functional tests with a server and a client. Alternatives are in braces. Programs with `-b` or
/// `-E` synchronise outside the fabric.
const FUNCTIONAL: &[&str] = &[
    "fi_av_xfer -e {rdm|dgram} -b",
    "fi_cm_data -q",
    "fi_cq_data -e {msg|rdm|dgram} -o {senddata|writedata}",
    "fi_dgram -b",
    "fi_msg",
    "fi_msg_epoll",
    "fi_msg_sockets",
    "fi_rdm {|-U}",
    "fi_poll -e {rdm|msg|dgram}",
    "fi_rdm_rma_event",
    "fi_rdm_rma_trigger -b",
    "fi_shared_ctx {|-e msg|-e dgram} {|--no-tx-shared-ctx|--no-rx-shared-ctx} -b",
    "fi_rdm_tagged_peek -b",
    "fi_scalable_ep -b",
    "fi_scalable_ep --ctx-count=7 -b",
    "fi_rdm_shared_av -b",
    "fi_multi_mr -e {msg|rdm} -V",
    "fi_multi_ep -e {msg|rdm} -v {|-A|-Q|-A -Q} -E",
    "fi_multi_ep -e {msg|rdm} -v --threading completion {|-A|-Q|-A -Q} -E",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e {msg|rdm} -I 10 -v -b",
    "fi_inject_test {|-N} -A {inject|inj_complete} -v",
    "fi_flood -e rdm -v -T 1 {|-U}",
    "fi_flood -e msg -v -T 1",
    "fi_rdm_multi_client -C 10 -I 5 {|-U}",
    // Not in upstream's sets.
    "fi_rdm_multi_client -C 10 -I 5 -R",
    "fi_rdm_multi_domain -b",
    "fi_resmgmt_test {|-o tagged}",
    "fi_unmap_mem -I 2",
    "fi_rdm_deferred_wq {|-T msg|-T tagged|-T rma|-T atomic|-T f_atomic|-T c_atomic} -b",
    "fi_mr_cache_evict",
    "fi_check_hmem",
];

/// Two processes in a multicast group, the second of which sends.
const MULTICAST: &str = "fi_mcast";

/// The benchmarks: with `-I 5` in the quick set, and with their default iterations in the standard
/// set.
const BENCHMARKS: &[&str] = &[
    "fi_msg_pingpong {|-v}",
    "fi_msg_bw {|-v}",
    "fi_rma_bw -e msg -o {write|read|writedata}",
    "fi_rma_bw -e rdm -o {write|read|writedata} {|-U}",
    "fi_rma_bw -e rdm -o {write|read|writedata} -v",
    "fi_rma_pingpong -e rdm -o {write|read|writedata} -v",
    "fi_rma_tx_completion -e rdm -o {write|writedata} -v",
    "fi_rdm_atomic -o all {|-U|-v|-U -v}",
    "fi_rdm_cntr_pingpong",
    "fi_multi_recv -e {rdm|msg} -v -b",
    "fi_rdm_pingpong {|-U|-v|-v -U}",
    "fi_rdm_tagged_pingpong {|-U|-v|-v -U}",
    "fi_rdm_bw {|-v}",
    "fi_rdm_tagged_bw {|-U|-v|-v -U}",
    "fi_rdm_bw_mt -n {8|16|32} {|-g} -b",
    "fi_rdm_bw_mt -n 4 -g -v --threading completion -b",
    "fi_dgram_pingpong -b {|-v}",
];

/// Benchmarks with message prefixes (`-k`), which are in the standard set only.
const PREFIXED: &[&str] = &[
    "fi_msg_pingpong -k {|-v}",
    "fi_rdm_pingpong -k {|-U|-v|-v -U}",
    "fi_dgram_pingpong -k -b",
];

/// Three processes with the same command line.
const THREE: &[&str] = &[
    "fi_multinode -n 3 -x {msg|rma} -I 10",
    "fi_multinode_coll -n 3 -I 3",
];

/// The command lines that start clients (`-n` of them), for a server with several threads.
const STRESS: &[(Set, &str)] = &[
    (Set::Quick, "fi_rdm_stress -n 4"),
    (Set::Standard, "fi_rdm_stress -n 16"),
];

/// The configurations that are bundled with `fi_ubertest`.
const UBER: &[(Set, &str)] = &[
    (Set::Quick, "fi_ubertest -u quick"),
    (Set::Quick, "fi_ubertest -u connected"),
    (Set::Quick, "fi_ubertest -f -u quick -z 40"),
    (Set::Standard, "fi_ubertest -u verify"),
    (Set::Standard, "fi_ubertest -u all"),
];

/// The entries of all command lines for a provider. A program whose capabilities the provider lacks
/// reports that by its exit code.
pub fn entries(_: &Selection, provider: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut add = |set: Set, line: String, processes: Vec<Process>| {
        let mut entry = Entry::new(provider, line, processes);
        entry.set = set;
        if set > Set::Quick {
            entry.timeout *= 5;
        }
        entries.push(entry);
    };
    for line in ONE_PROCESS {
        let process = process_of(line, provider, &[]);
        add(Set::Quick, (*line).to_owned(), vec![process]);
    }
    for line in UNKNOWN_HOST {
        let process = process_of(line, provider, &["host.invalid"]);
        let name = format!("{line} host.invalid");
        add(Set::Quick, name, vec![process.success_code(libc::ENODATA)]);
    }
    for line in FUNCTIONAL.iter().flat_map(|line| expand(line)) {
        add(Set::Quick, line.clone(), pair(&line, provider));
    }
    for line in BENCHMARKS.iter().flat_map(|line| expand(line)) {
        let short = format!("{line} -I 5");
        add(Set::Quick, short.clone(), pair(&short, provider));
        // Benchmarks that check every byte, and those whose threads share cores, are slow: they run
        // a tenth of the default iterations.
        let is_slow = ["-v", "atomic", "bw_mt"].map(|word| line.contains(word));
        let long = if is_slow.contains(&true) {
            format!("{line} -I 100")
        } else {
            line
        };
        add(Set::Standard, long.clone(), pair(&long, provider));
    }
    for line in PREFIXED.iter().flat_map(|line| expand(line)) {
        add(Set::Standard, line.clone(), pair(&line, provider));
    }
    let multicast_process = |role: &[&str]| {
        let port = ["-s={here}", "-P", "{port}", "-b={port:oob}", "239.255.77.9"];
        process_of(MULTICAST, provider, &[role, &port].concat())
    };
    add(
        Set::Quick,
        MULTICAST.to_owned(),
        vec![
            multicast_process(&["-M"]),
            multicast_process(&["-O={host}"]),
        ],
    );
    for (set, line) in STRESS {
        let server = process_of(
            "fi_rdm_stress -x",
            provider,
            &[source_option(provider), "-B", "{port}"],
        );
        let client = process_of(line, provider, &["-P", "{port}", "{host}"]);
        add(*set, (*line).to_owned(), vec![server, client]);
    }
    for (set, line) in UBER {
        let fork_option = line.split_whitespace().find(|word| *word == "-f");
        let server = format!("fi_ubertest -x {}", fork_option.unwrap_or_default());
        let server_args = [
            source_option(provider),
            "-q",
            "{port:control}",
            "-B",
            "{port}",
        ];
        let server = process_of(&server, provider, &server_args);
        let client_args = ["-q", "{port:control}", "-P", "{port}", "{host}"];
        let client = process_of(line, provider, &client_args);
        add(*set, (*line).to_owned(), vec![server, client]);
    }
    for line in THREE.iter().flat_map(|line| expand(line)) {
        let process = process_of(&line, provider, &["-s", "{host}", "-E={port:control}"]);
        add(Set::Quick, line, vec![process; 3]);
    }
    entries
}

/// A server and its client, with their own ports.
fn pair(line: &str, provider: &str) -> Vec<Process> {
    let with_port = |word: &str| match word {
        "-b" | "-E" => format!("{word}={{port:oob}}"),
        "-q" => "-q {port:oob}".to_owned(),
        other => other.to_owned(),
    };
    let line: Vec<_> = line.split_whitespace().map(with_port).collect();
    let line = line.join(" ");
    vec![
        process_of(&line, provider, &[source_option(provider), "-B", "{port}"]),
        process_of(&line, provider, &["-P", "{port}", "{host}"]),
    ]
}

/// The option for the address at which a server listens. `{source}` is no option if both processes
/// run on one host, so that the server listens at any address. Providers of other libraries
/// (`;ofi`) always get the option, because some of them listen at one address only.
fn source_option(provider: &str) -> &'static str {
    if provider.ends_with(";ofi") {
        "-s={here}"
    } else {
        "{source}"
    }
}

fn process_of(line: &str, provider: &str, extra_args: &[&str]) -> Process {
    let mut words = line.split_whitespace();
    let program = words.next().into_iter();
    let args = program.chain(["-p", provider]).chain(words);
    Process::new(args.chain(extra_args.iter().copied()))
}

/// Every combination of the alternatives in braces.
fn expand(line: &str) -> Vec<String> {
    let Some((head, rest)) = line.split_once('{') else {
        let words: Vec<_> = line.split_whitespace().collect();
        return vec![words.join(" ")];
    };
    let (alternatives, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let lines = alternatives
        .split('|')
        .map(|alternative| format!("{head}{alternative}{tail}"));
    lines.flat_map(|line| expand(&line)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> Vec<Entry> {
        let selection = Selection {
            set: Set::All,
            providers: Vec::new(),
            seed: 0,
            filters: Vec::new(),
            excludes: Vec::new(),
        };
        entries(&selection, "shm")
    }

    #[test]
    fn alternatives_in_braces_are_expanded() {
        assert_eq!(
            expand("a {|-b} {x|y z}"),
            ["a x", "a y z", "a -b x", "a -b y z"]
        );
    }

    #[test]
    fn every_generic_program_of_upstream_exists() {
        for name in crate::upstream::programs::tests::GENERIC {
            assert!(
                crate::upstream::find_program(name).is_some(),
                "{name} is missing"
            );
        }
    }

    #[test]
    fn every_program_is_in_the_catalogue_once_for_each_command_line() {
        let entries = all();
        let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names.len(), entries.len());
        // The client of `fi_pingpong` does not wait for its server, as libfabric's does not. The
        // program has its own test.
        let has_own_test = |name: &str| name == "fi_pingpong";
        for program in crate::upstream::programs::PROGRAMS {
            let is_listed = names.iter().any(|name| {
                let mut words = name.split_whitespace();
                words.next() == Some(program.name)
            });
            assert!(
                is_listed || has_own_test(program.name),
                "{} is in no command line",
                program.name
            );
        }
        for entry in &entries {
            let program = &entry.processes[0].args[0];
            assert!(
                crate::upstream::find_program(program).is_some(),
                "{program}"
            );
        }
    }
}
