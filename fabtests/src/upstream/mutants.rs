//! The programs over providers with defects: those that check something, with what each of them has
//! to notice.

use clap::ValueEnum as _;
use selvedge::info::EpType;
use selvedge::{AddrFormat, Hints};

use super::catalogue;
use crate::suite::Entry;
use crate::suite::catalogue::Wanted;
use crate::suite::flaw::{Flaw, VARIABLE};

/// Command lines of the catalogue, and the defects.
pub(crate) const NOTICED: &[(&str, &[Flaw])] = &[
    (
        "fi_getinfo_test -s 127.0.0.1 127.0.0.1",
        &[Flaw::IgnoresHints],
    ),
    (
        "fi_av_test -g 192.168.10.1 -n 1 -s 127.0.0.1 -e rdm",
        &[
            Flaw::RemovesNothing,
            Flaw::RemovesAnything,
            Flaw::InsertsAnything,
        ],
    ),
    ("fi_dom_test -n 2", &[Flaw::OneDomain]),
    ("fi_eq_test", &[Flaw::PeekTakes]),
    ("fi_cq_test", &[Flaw::NoSignal]),
    ("fi_mr_test", &[Flaw::KeepsRegions]),
    ("fi_cntr_test", &[Flaw::CountsTwice]),
    ("sighandler_test", &[Flaw::BlocksSignals]),
    ("fi_loopback", &[Flaw::FlipsBit]),
    ("fi_rdm host.invalid", &[Flaw::IgnoresHosts]),
    ("fi_dgram host.invalid", &[Flaw::IgnoresHosts]),
    ("fi_msg host.invalid", &[Flaw::IgnoresHosts]),
    ("fi_rdm", &[Flaw::FlipsBit, Flaw::CutsOff]),
    ("fi_dgram -b", &[Flaw::FlipsBit]),
    ("fi_msg", &[Flaw::FlipsBit]),
    ("fi_msg_epoll", &[Flaw::FlipsBit, Flaw::DeadDescriptor]),
    ("fi_msg_sockets", &[Flaw::FlipsBit, Flaw::TakesNoPlace]),
    ("fi_poll -e rdm", &[Flaw::FlipsBit, Flaw::NeverReady]),
    ("fi_poll -e msg", &[Flaw::FlipsBit, Flaw::NeverReady]),
    ("fi_poll -e dgram", &[Flaw::FlipsBit, Flaw::NeverReady]),
    ("fi_av_xfer -e rdm -b", &[Flaw::FlipsBit]),
    ("fi_av_xfer -e dgram -b", &[Flaw::FlipsBit]),
    (
        "fi_cm_data -q",
        &[Flaw::LosesCmData, Flaw::RejectsNobody, Flaw::NeverShutsDown],
    ),
    (
        "fi_cq_data -e rdm -o senddata",
        &[Flaw::NoKind, Flaw::CountsOneLess],
    ),
    ("fi_cq_data -e rdm -o writedata", &[Flaw::NoRemoteData]),
    (
        "fi_cq_data -e msg -o senddata",
        &[Flaw::NoKind, Flaw::CountsOneLess],
    ),
    ("fi_cq_data -e msg -o writedata", &[Flaw::NoRemoteData]),
    (
        "fi_inject_test -N -A inject -v",
        &[Flaw::ReadsInjectLate, Flaw::FlipsBit],
    ),
    (
        "fi_flood -e rdm -v -T 1",
        &[Flaw::FlipsBit, Flaw::SwapsSends],
    ),
    ("fi_flood -e msg -v -T 1", &[Flaw::FlipsBit]),
    ("fi_recv_cancel -e rdm -V", &[Flaw::CancelsNothing]),
    (
        "fi_rdm_tagged_peek -b",
        &[Flaw::LookTakes, Flaw::DiscardLeaves, Flaw::ClaimsNothing],
    ),
    (
        "fi_unexpected_msg -e rdm -I 10 -v -b",
        &[Flaw::IgnoresTags, Flaw::FlipsBit],
    ),
    (
        "fi_multi_recv -e rdm -v -b -I 5",
        &[Flaw::NeverReleases, Flaw::WrongPlace],
    ),
    ("fi_multi_ep -e rdm -v -E", &[Flaw::WrongAddress]),
    ("fi_multi_ep -e msg -v -E", &[Flaw::WrongAddress]),
    ("fi_rdm_multi_client -C 10 -I 5", &[Flaw::LosesCompletions]),
    ("fi_rdm_multi_domain -b", &[Flaw::WrongAddress]),
    ("fi_rdm_rma_event", &[Flaw::WrongAddress]),
    (
        "fi_multi_mr -e rdm -V",
        &[
            Flaw::WrongAddress,
            Flaw::CountsTwice,
            Flaw::MixesRegions,
            Flaw::WrongCounter,
        ],
    ),
    (
        "fi_multi_mr -e msg -V",
        &[Flaw::CountsTwice, Flaw::MixesRegions],
    ),
    (
        "fi_rdm_rma_trigger -b",
        &[Flaw::ForgetsWork, Flaw::HurriesWork],
    ),
    (
        "fi_rdm_deferred_wq -b",
        &[Flaw::ForgetsWork, Flaw::HurriesWork],
    ),
    (
        "fi_rdm_deferred_wq -T msg -b",
        &[Flaw::ForgetsWork, Flaw::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T tagged -b",
        &[Flaw::ForgetsWork, Flaw::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T rma -b",
        &[Flaw::ForgetsWork, Flaw::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T atomic -b",
        &[Flaw::ForgetsWork, Flaw::OtherAtomics],
    ),
    (
        "fi_rdm_deferred_wq -T f_atomic -b",
        &[Flaw::ForgetsWork, Flaw::OtherAtomics],
    ),
    (
        "fi_rdm_deferred_wq -T c_atomic -b",
        &[Flaw::ForgetsWork, Flaw::OtherAtomics],
    ),
    ("fi_shared_ctx -b", &[Flaw::ForgetsShared, Flaw::FlipsBit]),
    (
        "fi_shared_ctx -e msg -b",
        &[Flaw::ForgetsShared, Flaw::FlipsBit],
    ),
    ("fi_shared_ctx --no-rx-shared-ctx -b", &[Flaw::FlipsBit]),
    ("fi_scalable_ep -b", &[Flaw::FlipsBit]),
    ("fi_scalable_ep --ctx-count=7 -b", &[Flaw::FlipsBit]),
    ("fi_rdm_shared_av -b", &[Flaw::FlipsBit]),
    ("fi_resmgmt_test", &[Flaw::LosesCompletions, Flaw::FlipsBit]),
    (
        "fi_resmgmt_test -o tagged",
        &[Flaw::LosesCompletions, Flaw::FlipsBit],
    ),
    ("fi_unmap_mem -I 2", &[Flaw::FlipsBit]),
    (
        "fi_rdm_atomic -o all -v -I 5",
        &[
            Flaw::NoAtomics,
            Flaw::OtherAtomics,
            Flaw::TwiceAtomics,
            Flaw::FetchesNothing,
        ],
    ),
    (
        "fi_rdm_pingpong -v -I 5",
        &[
            Flaw::FlipsBit,
            Flaw::ForgetsInjects,
            Flaw::NoKind,
            Flaw::CountsOneLess,
        ],
    ),
    (
        "fi_rdm_tagged_pingpong -v -I 5",
        &[Flaw::FlipsBitOfLarge, Flaw::WrongTag],
    ),
    ("fi_rdm_cntr_pingpong -I 5", &[Flaw::WrongCounter]),
    ("fi_dgram_pingpong -b -v -I 5", &[Flaw::FlipsBit]),
    ("fi_msg_pingpong -v -I 5", &[Flaw::FlipsBit]),
    ("fi_msg_bw -v -I 5", &[Flaw::FlipsBit]),
    ("fi_rdm_bw -v -I 5", &[Flaw::SwapsSends, Flaw::FlipsBit]),
    ("fi_rdm_tagged_bw -v -I 5", &[Flaw::FlipsBit, Flaw::CutsOff]),
    (
        "fi_rdm_bw_mt -n 4 -g -v --threading completion -b -I 5",
        &[Flaw::FlipsBit],
    ),
    ("fi_rma_bw -e rdm -o write -v -I 5", &[Flaw::WrongAddress]),
    ("fi_rma_bw -e rdm -o read -v -I 5", &[Flaw::WrongAddress]),
    (
        "fi_rma_bw -e rdm -o writedata -v -I 5",
        &[Flaw::NoRemoteData],
    ),
    (
        "fi_rma_pingpong -e rdm -o write -v -I 5",
        &[Flaw::WrongAddress],
    ),
    (
        "fi_rma_tx_completion -e rdm -o write -v -I 5",
        &[Flaw::WrongAddress],
    ),
    ("fi_mcast", &[Flaw::FlipsBit]),
    ("fi_rdm_stress -n 4", &[Flaw::FlipsBit, Flaw::WrongAddress]),
    ("fi_multinode -n 3 -x msg -I 10", &[Flaw::FlipsBit]),
    ("fi_multinode -n 3 -x rma -I 10", &[Flaw::WrongAddress]),
    (
        "fi_multinode_coll -n 3 -I 3",
        &[
            Flaw::OtherCollectives,
            Flaw::WrongRoot,
            Flaw::HurriesCollectives,
        ],
    ),
    (
        "fi_ubertest -u quick",
        &[
            Flaw::FlipsBit,
            Flaw::NoKind,
            Flaw::HalvesTags,
            Flaw::SwapsPieces,
            Flaw::WrongAddress,
            Flaw::OtherAtomics,
        ],
    ),
    ("fi_ubertest -u connected", &[Flaw::FlipsBit]),
    ("fi_ubertest -f -u quick -z 40", &[Flaw::FlipsBit]),
];

/// Programs that notice nothing, and why.
#[cfg(test)]
const SILENT: &[(&str, &str)] = &[
    (
        "fi_pingpong",
        "it has tests of its own: its ends do not wait for each other",
    ),
    ("fi_setopt_test", "it is about memory of devices"),
    ("fi_mr_cache_evict", "not there"),
    ("fi_check_hmem", "not there"),
];

/// How long a program waits for what does not come.
const PATIENCE: [&str; 2] = ["--timeout", "3"];

/// Each of them with each of its defects.
pub fn entries(wanted: &Wanted, provider: &str) -> Vec<Entry> {
    let all = catalogue::entries(wanted, provider);
    let mut mutants = Vec::new();
    for (line, flaws) in NOTICED {
        let whole = all.iter().find(|entry| entry.name == *line);
        mutants.extend(whole.into_iter().flat_map(|entry| {
            let with = |flaw: &Flaw| planted(entry.clone(), *flaw);
            let flaws = flaws.iter();
            let flaws =
                flaws.filter(|flaw| **flaw != Flaw::IgnoresHosts || asks_for_hosts(provider, line));
            flaws.map(with)
        }));
    }
    mutants
}

/// Whether a provider is asked for hosts: it is not where the programs look for them, because its
/// addresses are strings, or without such endpoints.
fn asks_for_hosts(provider: &str, line: &str) -> bool {
    let upper = provider.rsplit(';').next().unwrap_or(provider);
    let ep_type = match line.split_whitespace().next() {
        Some("fi_dgram") => EpType::Dgram,
        Some("fi_msg") => EpType::Msg,
        _ => EpType::Rdm,
    };
    let hints = Hints::anything().provider(upper).ep_type(ep_type);
    let infos = selvedge_providers::builtin().infos(&hints);
    infos.is_ok_and(|infos| infos[0].addr_format != AddrFormat::Str)
}

fn planted(mut entry: Entry, flaw: Flaw) -> Entry {
    let word = flaw.to_possible_value();
    let word = word.map_or_else(String::new, |value| value.get_name().to_owned());
    entry.name = format!("{}~{word}", entry.name);
    entry.must_fail = true;
    for process in &mut entry.processes {
        process.env.push((VARIABLE.to_owned(), word.clone()));
        process.args.extend(PATIENCE.map(str::to_owned));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Set;

    fn wanted() -> Wanted {
        Wanted {
            set: Set::All,
            providers: Vec::new(),
            seed: 0,
            filters: Vec::new(),
            excludes: Vec::new(),
        }
    }

    #[test]
    fn every_line_is_one_of_the_catalogue() {
        let all = catalogue::entries(&wanted(), "shm");
        for (line, flaws) in NOTICED {
            assert!(all.iter().any(|entry| entry.name == *line), "{line}");
            assert!(!flaws.is_empty(), "{line}");
        }
    }

    #[test]
    fn every_program_notices_some_defect() {
        for program in crate::upstream::PROGRAMS {
            let mut lines = NOTICED.iter().map(|(line, _)| line.split_whitespace());
            let notices = lines.any(|mut words| words.next() == Some(program.name));
            let is_silent = SILENT.iter().any(|(name, _)| *name == program.name);
            let name = program.name;
            assert!(notices != is_silent, "{name}: {notices}, {is_silent}");
        }
    }

    /// The part of docs/FABTESTS-REFERENCE.md that says which defects each program notices.
    #[test]
    fn the_list_of_programs_is_what_the_code_says() {
        let mut list = String::from("| program | fails with |\n|---|---|\n");
        for (line, flaws) in NOTICED {
            let words = flaws.iter().map(|flaw| {
                let word = flaw.to_possible_value().unwrap();
                format!("`{}`", word.get_name())
            });
            list += &format!("| `{line}` | {} |\n", Vec::from_iter(words).join(", "));
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FABTESTS-REFERENCE.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md should say:\n{list}"
        );
    }
}
