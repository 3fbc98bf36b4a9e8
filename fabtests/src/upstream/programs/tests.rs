//! Tests of the programs' command lines against upstream's: the options of each program, its own
//! and the common ones, as getopt(3) texts, and their defaults.
//!
//! The options are those of libfabric's main branch after 2.6. Help (`-h`) is left out.

use std::ffi::OsString;

use super::PROGRAMS;
use crate::upstream::options::parse;

/// The generic programs of upstream's suite, by its folders. Not included are `sock_test`, which
/// measures the system's sockets only, the programs for device memory (`dmabuf-rdma`,
/// `fi_cuda_check_dmabuf`), and those of single providers.
pub(in crate::upstream) const GENERIC: &[&str] = &[
    // functional
    "fi_av_xfer",
    "fi_cm_data",
    "fi_cq_data",
    "fi_dgram",
    "fi_flood",
    "fi_inject_test",
    "fi_loopback",
    "fi_mcast",
    "fi_msg",
    "fi_msg_epoll",
    "fi_msg_sockets",
    "fi_multi_ep",
    "fi_multi_mr",
    "fi_multi_recv",
    "fi_rdm",
    "fi_rdm_atomic",
    "fi_rdm_deferred_wq",
    "fi_rdm_multi_client",
    "fi_rdm_multi_domain",
    "fi_rdm_rma_event",
    "fi_rdm_rma_trigger",
    "fi_rdm_shared_av",
    "fi_rdm_stress",
    "fi_rdm_tagged_peek",
    "fi_recv_cancel",
    "fi_resmgmt_test",
    "fi_scalable_ep",
    "fi_shared_ctx",
    "fi_unexpected_msg",
    "fi_unmap_mem",
    // benchmarks
    "fi_dgram_pingpong",
    "fi_msg_bw",
    "fi_msg_pingpong",
    "fi_rdm_bw",
    "fi_rdm_bw_mt",
    "fi_rdm_cntr_pingpong",
    "fi_rdm_pingpong",
    "fi_rdm_tagged_bw",
    "fi_rdm_tagged_pingpong",
    "fi_rma_bw",
    "fi_rma_pingpong",
    "fi_rma_tx_completion",
    // unit
    "fi_av_test",
    "fi_check_hmem",
    "fi_cntr_test",
    "fi_cq_test",
    "fi_dom_test",
    "fi_eq_test",
    "fi_getinfo_test",
    "fi_mr_cache_evict",
    "fi_mr_test",
    "fi_setopt_test",
    // multinode, ubertest and others
    "fi_multinode",
    "fi_multinode_coll",
    "fi_ubertest",
    "sighandler_test",
];

const ADDRESS: &str = "B:P:s:a:b::E::C:F:O:";
const FABRIC: &str = "f:d:p:K";
const DEVICE: &str = "D:i:HR";
const INFO: &str = "f:d:p:KD:i:HRe:M:";
const PAIR: &str = "B:P:s:a:b::E::C:F:O:I:QS:mc:t:w:l";
const OPERATION: &str = "o:";
const BENCHMARK: &str = "rvkj:W:";

/// Long options of the programs that take upstream's common ones.
const LONG: &[&str] = &[
    "pin-core=",
    "timeout=",
    "debug-assert",
    "data-progress=",
    "control-progress=",
    "max-msg-size=",
    "use-fi-more",
    "threading=",
    "no-rx-cq-data",
    "expect-error=",
    "sync-comp=",
];

/// The facts about one program.
struct Facts {
    program: &'static str,
    /// The program's own options, which take precedence over the common ones.
    specific: &'static str,
    common: &'static [&'static str],
    long: &'static [&'static str],
    /// Options that are refused, and the reason.
    refused: &'static [(char, &'static str)],
    /// Options with another default: the option, upstream's default, and this suite's default.
    differs: &'static [(&'static str, &'static str, &'static str)],
}

const fn facts(
    program: &'static str,
    specific: &'static str,
    common: &'static [&'static str],
) -> Facts {
    Facts {
        program,
        specific,
        common,
        long: &[],
        refused: &[],
        differs: &[],
    }
}

const BENCH: &[&str] = &[PAIR, INFO, BENCHMARK];
const BENCH_WITH_OPERATION: &[&str] = &[PAIR, INFO, OPERATION, BENCHMARK];

const fn with_long(
    program: &'static str,
    specific: &'static str,
    common: &'static [&'static str],
) -> Facts {
    Facts {
        long: LONG,
        ..facts(program, specific, common)
    }
}

const ALL: &[Facts] = &[
    facts("fi_av_xfer", "", &[ADDRESS, INFO]),
    facts("fi_cm_data", "q:", &[ADDRESS, INFO]),
    facts("fi_cq_data", "", &[ADDRESS, INFO, OPERATION]),
    facts("fi_dgram", "", &[ADDRESS, INFO]),
    facts("fi_flood", "UW:vT:", &[PAIR, INFO]),
    Facts {
        differs: &[("-I", "1", "100")],
        ..facts("fi_inject_test", "NvA:", &[PAIR, INFO])
    },
    facts("fi_loopback", "", &[ADDRESS, INFO]),
    facts("fi_mcast", "M", &[ADDRESS, INFO]),
    facts("fi_msg", "", &[ADDRESS, INFO]),
    facts("fi_msg_epoll", "", &[ADDRESS, INFO]),
    facts("fi_msg_sockets", "", &[ADDRESS, INFO]),
    with_long("fi_multi_ep", "c:vAQ", &[PAIR, INFO]),
    facts("fi_multi_mr", "c:Vv", &[ADDRESS, INFO]),
    with_long("fi_multi_recv", "Mv", &[PAIR, INFO]),
    facts("fi_rdm", "U", &[PAIR, INFO]),
    with_long("fi_rdm_atomic", "o:Uz:v", &[PAIR, INFO]),
    facts("fi_rdm_deferred_wq", "aT:", &[ADDRESS, INFO]),
    facts("fi_rdm_multi_client", "UR", &[PAIR, INFO]),
    facts("fi_rdm_multi_domain", "c:V", &[ADDRESS, INFO]),
    facts("fi_rdm_rma_event", "", &[ADDRESS, INFO]),
    facts("fi_rdm_rma_trigger", "", &[ADDRESS, INFO]),
    facts("fi_rdm_shared_av", "", &[ADDRESS, INFO]),
    Facts {
        differs: &[("-C", "16", "4"), ("-c", "fd", "yield")],
        ..with_long("fi_rdm_stress", "u:", &[PAIR, INFO])
    },
    facts("fi_rdm_tagged_peek", "", &[PAIR, INFO]),
    facts("fi_recv_cancel", "V", &[ADDRESS, INFO]),
    Facts {
        refused: &[('j', "control messages need a queue for each direction")],
        differs: &[
            ("-S", "100", "1024"),
            ("-R", "100", "1024"),
            ("-l", "1024", "64"),
        ],
        ..facts("fi_resmgmt_test", "S:R:m:l:T:X:ActdjwvV", &[ADDRESS, INFO])
    },
    facts("fi_scalable_ep", "", &[ADDRESS, INFO]),
    Facts {
        long: &["no-tx-shared-ctx", "no-rx-shared-ctx", "ep-count="],
        ..facts("fi_shared_ctx", "", &[ADDRESS, INFO, OPERATION])
    },
    Facts {
        differs: &[("-I", "600", "10")],
        ..facts("fi_unexpected_msg", "vCM:U", &[PAIR, INFO])
    },
    facts("fi_unmap_mem", "", &[PAIR, INFO]),
    Facts {
        differs: &[("-T", "5", "30")],
        ..with_long("fi_dgram_pingpong", "T:", BENCH)
    },
    with_long("fi_msg_bw", "", BENCH_WITH_OPERATION),
    with_long("fi_msg_pingpong", "", BENCH_WITH_OPERATION),
    with_long("fi_rdm_bw", "U", BENCH),
    with_long("fi_rdm_bw_mt", "gn:U", BENCH_WITH_OPERATION),
    with_long("fi_rdm_cntr_pingpong", "", BENCH),
    with_long("fi_rdm_pingpong", "U", BENCH),
    with_long("fi_rdm_tagged_bw", "U", BENCH),
    with_long("fi_rdm_tagged_pingpong", "U", BENCH),
    with_long("fi_rma_bw", "U", BENCH_WITH_OPERATION),
    with_long("fi_rma_pingpong", "U", BENCH_WITH_OPERATION),
    with_long("fi_rma_tx_completion", "U", BENCH_WITH_OPERATION),
    facts("fi_av_test", "g:G:n:s:e:", &[FABRIC]),
    facts("fi_check_hmem", "p:", &[]),
    facts("fi_cntr_test", "", &[FABRIC, DEVICE]),
    Facts {
        differs: &[("-L", "32768", "1024")],
        ..facts("fi_cq_test", "L:", &[FABRIC, DEVICE])
    },
    facts("fi_dom_test", "n:", &[FABRIC]),
    facts("fi_eq_test", "", &[FABRIC, DEVICE]),
    facts("fi_getinfo_test", "", &[ADDRESS, INFO]),
    facts("fi_mr_cache_evict", "s:", &[FABRIC]),
    facts("fi_mr_test", "", &[FABRIC, DEVICE]),
    facts("fi_setopt_test", "", &[FABRIC, DEVICE]),
    facts("fi_multinode", "n:x:z:u:Ts:I:", &[INFO]),
    facts("fi_multinode_coll", "n:x:z:u:Ts:I:", &[INFO]),
    facts("fi_ubertest", "p:u:t:q:xy:z:f", &[ADDRESS]),
    facts("sighandler_test", "p:", &[]),
];

/// Whether an option takes an argument, according to the colons of getopt(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HasArg {
    No,
    Required,
    Optional,
}

/// Returns the options of a getopt(3) text.
fn parse_getopt(text: &str) -> Vec<(char, HasArg)> {
    let all: Vec<char> = text.chars().collect();
    let colons = |index: usize| all[index + 1..].iter().take_while(|c| **c == ':').count();
    let option = |index: usize| match colons(index) {
        0 => (all[index], HasArg::No),
        1 => (all[index], HasArg::Required),
        _ => (all[index], HasArg::Optional),
    };
    let positions = (0..all.len()).filter(|index| all[*index] != ':');
    positions.map(option).collect()
}

impl Facts {
    /// Returns every option once. As in getopt(3), the first of several options with one name
    /// counts.
    fn options(&self) -> Vec<(char, HasArg)> {
        let mut found: Vec<(char, HasArg)> = Vec::new();
        for text in std::iter::once(&self.specific).chain(self.common) {
            for (option, has_arg) in parse_getopt(text) {
                if !found.iter().any(|(parsed, _)| *parsed == option) {
                    found.push((option, has_arg));
                }
            }
        }
        found
    }

    /// Returns whether the program accepts these words, and takes none of them for a positional
    /// argument.
    fn accepts(&self, words: &[String]) -> bool {
        let program = PROGRAMS.iter().find(|it| it.name == self.program);
        let option_set = &program.expect("the program exists").option_set;
        let options = parse(self.program, option_set, words.iter().map(OsString::from));
        options.is_ok_and(|options| options.arguments.is_empty())
    }
}

/// Returns a valid value of an option.
fn value(option: char) -> &'static str {
    match option {
        'e' => "rdm",
        'F' => "fi_addr_str",
        't' => "queue",
        'c' => "spin",
        'o' => "write",
        'M' => "mr_local",
        _ => "1",
    }
}

/// Returns a valid value of a long option.
fn long_value(name: &str) -> &'static str {
    match name {
        "data-progress=" | "control-progress=" => "manual",
        "threading=" => "domain",
        "sync-comp=" => "delivery",
        _ => "1",
    }
}

#[test]
fn the_facts_cover_every_generic_program() {
    let named: Vec<_> = ALL.iter().map(|facts| facts.program).collect();
    assert_eq!(named, GENERIC);
}

#[test]
fn every_option_of_each_upstream_program_is_accepted() {
    let mut wrong = Vec::new();
    for facts in ALL {
        for (option, has_arg) in facts.options() {
            let is_specific = parse_getopt(facts.specific)
                .iter()
                .any(|(specific, _)| *specific == option);
            // A program's own options take numbers where the common ones take words.
            let value = if is_specific && !matches!(option, 'e' | 'o') {
                "1"
            } else {
                value(option)
            };
            let words = match has_arg {
                HasArg::No => vec![format!("-{option}")],
                HasArg::Required => vec![format!("-{option}"), value.to_owned()],
                HasArg::Optional => vec![format!("-{option}=3001")],
            };
            let is_refused = facts.refused.iter().any(|(refused, _)| *refused == option);
            if facts.accepts(&words) == is_refused {
                wrong.push(format!("{} {}", facts.program, words.join(" ")));
            }
        }
        for long in facts.long {
            let word = match long.strip_suffix('=') {
                Some(name) => format!("--{name}={}", long_value(long)),
                None => format!("--{long}"),
            };
            if !facts.accepts(std::slice::from_ref(&word)) {
                wrong.push(format!("{} {word}", facts.program));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn differences_from_upstream_are_documented() {
    let page = include_str!("../../../../docs/FABTESTS-REFERENCE.md");
    for facts in ALL {
        let program = facts.program;
        for (option, upstream, default) in facts.differs {
            let row = format!("| `{program}` | `{option}` | {upstream} | {default} |");
            assert!(page.contains(&row), "no row {row}");
        }
        for (option, reason) in facts.refused {
            let row = format!("| `{program}` | `-{option}` | refused: {reason} |");
            assert!(page.contains(&row), "no row {row}");
        }
    }
}
