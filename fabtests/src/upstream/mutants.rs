//! The programs over providers with defects: those that check something, with what each of them has
//! to notice.

use clap::ValueEnum as _;
use selvedge::info::EpType;
use selvedge::{AddrFormat, Hints};

use super::catalogue;
use crate::suite::Entry;
use crate::suite::catalogue::Selection;
use crate::suite::defect::{Defect, VARIABLE};

/// Command lines of the catalogue, and the defects.
pub(crate) const NOTICED: &[(&str, &[Defect])] = &[
    (
        "fi_getinfo_test -s 127.0.0.1 127.0.0.1",
        &[Defect::IgnoresHints],
    ),
    (
        "fi_av_test -g 192.168.10.1 -n 1 -s 127.0.0.1 -e rdm",
        &[
            Defect::RemovesNothing,
            Defect::RemovesAnything,
            Defect::InsertsAnything,
        ],
    ),
    ("fi_dom_test -n 2", &[Defect::OneDomain]),
    ("fi_eq_test", &[Defect::EventPeekConsumes]),
    ("fi_cq_test", &[Defect::NoSignal]),
    ("fi_mr_test", &[Defect::KeepsRegions]),
    ("fi_cntr_test", &[Defect::CountsTwice]),
    ("sighandler_test", &[Defect::BlocksSignals]),
    ("fi_loopback", &[Defect::FlipsBit]),
    ("fi_rdm host.invalid", &[Defect::IgnoresHosts]),
    ("fi_dgram host.invalid", &[Defect::IgnoresHosts]),
    ("fi_msg host.invalid", &[Defect::IgnoresHosts]),
    ("fi_rdm", &[Defect::FlipsBit, Defect::CutsOff]),
    ("fi_dgram -b", &[Defect::FlipsBit]),
    ("fi_msg", &[Defect::FlipsBit]),
    ("fi_msg_epoll", &[Defect::FlipsBit, Defect::DeadDescriptor]),
    (
        "fi_msg_sockets",
        &[Defect::FlipsBit, Defect::IgnoresPassiveHandle],
    ),
    ("fi_poll -e rdm", &[Defect::FlipsBit, Defect::NeverReady]),
    ("fi_poll -e msg", &[Defect::FlipsBit, Defect::NeverReady]),
    ("fi_poll -e dgram", &[Defect::FlipsBit, Defect::NeverReady]),
    ("fi_av_xfer -e rdm -b", &[Defect::FlipsBit]),
    ("fi_av_xfer -e dgram -b", &[Defect::FlipsBit]),
    (
        "fi_cm_data -q",
        &[
            Defect::LosesCmData,
            Defect::NeverRejects,
            Defect::NeverShutsDown,
        ],
    ),
    (
        "fi_cq_data -e rdm -o senddata",
        &[Defect::NoKind, Defect::CountsOneLess],
    ),
    ("fi_cq_data -e rdm -o writedata", &[Defect::NoRemoteData]),
    (
        "fi_cq_data -e msg -o senddata",
        &[Defect::NoKind, Defect::CountsOneLess],
    ),
    ("fi_cq_data -e msg -o writedata", &[Defect::NoRemoteData]),
    (
        "fi_inject_test -N -A inject -v",
        &[Defect::ReadsInjectLate, Defect::FlipsBit],
    ),
    (
        "fi_flood -e rdm -v -T 1",
        &[Defect::FlipsBit, Defect::SwapsSends],
    ),
    ("fi_flood -e msg -v -T 1", &[Defect::FlipsBit]),
    ("fi_recv_cancel -e rdm -V", &[Defect::CancelsNothing]),
    (
        "fi_rdm_tagged_peek -b",
        &[
            Defect::PeekConsumes,
            Defect::DiscardKeeps,
            Defect::ClaimsNothing,
        ],
    ),
    (
        "fi_unexpected_msg -e rdm -I 10 -v -b",
        &[Defect::IgnoresTags, Defect::FlipsBit],
    ),
    (
        "fi_multi_recv -e rdm -v -b -I 5",
        &[Defect::NeverReleases, Defect::WrongBufferAddress],
    ),
    ("fi_multi_ep -e rdm -v -E", &[Defect::WrongAddress]),
    ("fi_multi_ep -e msg -v -E", &[Defect::WrongAddress]),
    (
        "fi_rdm_multi_client -C 10 -I 5",
        &[Defect::LosesCompletions],
    ),
    ("fi_rdm_multi_domain -b", &[Defect::WrongAddress]),
    ("fi_rdm_rma_event", &[Defect::WrongAddress]),
    (
        "fi_multi_mr -e rdm -V",
        &[
            Defect::WrongAddress,
            Defect::CountsTwice,
            Defect::MixesRegions,
            Defect::WrongCounter,
        ],
    ),
    (
        "fi_multi_mr -e msg -V",
        &[Defect::CountsTwice, Defect::MixesRegions],
    ),
    (
        "fi_rdm_rma_trigger -b",
        &[Defect::NeverStartsWork, Defect::StartsWorkEarly],
    ),
    (
        "fi_rdm_deferred_wq -b",
        &[Defect::NeverStartsWork, Defect::StartsWorkEarly],
    ),
    (
        "fi_rdm_deferred_wq -T msg -b",
        &[Defect::NeverStartsWork, Defect::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T tagged -b",
        &[Defect::NeverStartsWork, Defect::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T rma -b",
        &[Defect::NeverStartsWork, Defect::FlipsBit],
    ),
    (
        "fi_rdm_deferred_wq -T atomic -b",
        &[Defect::NeverStartsWork, Defect::OtherAtomics],
    ),
    (
        "fi_rdm_deferred_wq -T f_atomic -b",
        &[Defect::NeverStartsWork, Defect::OtherAtomics],
    ),
    (
        "fi_rdm_deferred_wq -T c_atomic -b",
        &[Defect::NeverStartsWork, Defect::OtherAtomics],
    ),
    (
        "fi_shared_ctx -b",
        &[Defect::DropsSharedReceives, Defect::FlipsBit],
    ),
    (
        "fi_shared_ctx -e msg -b",
        &[Defect::DropsSharedReceives, Defect::FlipsBit],
    ),
    ("fi_shared_ctx --no-rx-shared-ctx -b", &[Defect::FlipsBit]),
    ("fi_scalable_ep -b", &[Defect::FlipsBit]),
    ("fi_scalable_ep --ctx-count=7 -b", &[Defect::FlipsBit]),
    ("fi_rdm_shared_av -b", &[Defect::FlipsBit]),
    (
        "fi_resmgmt_test",
        &[Defect::LosesCompletions, Defect::FlipsBit],
    ),
    (
        "fi_resmgmt_test -o tagged",
        &[Defect::LosesCompletions, Defect::FlipsBit],
    ),
    ("fi_unmap_mem -I 2", &[Defect::FlipsBit]),
    (
        "fi_rdm_atomic -o all -v -I 5",
        &[
            Defect::NoAtomics,
            Defect::OtherAtomics,
            Defect::TwiceAtomics,
            Defect::FetchesNothing,
        ],
    ),
    (
        "fi_rdm_pingpong -v -I 5",
        &[
            Defect::FlipsBit,
            Defect::DropsInjects,
            Defect::NoKind,
            Defect::CountsOneLess,
        ],
    ),
    (
        "fi_rdm_tagged_pingpong -v -I 5",
        &[Defect::FlipsBitOfLarge, Defect::WrongTag],
    ),
    ("fi_rdm_cntr_pingpong -I 5", &[Defect::WrongCounter]),
    ("fi_dgram_pingpong -b -v -I 5", &[Defect::FlipsBit]),
    ("fi_msg_pingpong -v -I 5", &[Defect::FlipsBit]),
    ("fi_msg_bw -v -I 5", &[Defect::FlipsBit]),
    ("fi_rdm_bw -v -I 5", &[Defect::SwapsSends, Defect::FlipsBit]),
    (
        "fi_rdm_tagged_bw -v -I 5",
        &[Defect::FlipsBit, Defect::CutsOff],
    ),
    (
        "fi_rdm_bw_mt -n 4 -g -v --threading completion -b -I 5",
        &[Defect::FlipsBit],
    ),
    ("fi_rma_bw -e rdm -o write -v -I 5", &[Defect::WrongAddress]),
    ("fi_rma_bw -e rdm -o read -v -I 5", &[Defect::WrongAddress]),
    (
        "fi_rma_bw -e rdm -o writedata -v -I 5",
        &[Defect::NoRemoteData],
    ),
    (
        "fi_rma_pingpong -e rdm -o write -v -I 5",
        &[Defect::WrongAddress],
    ),
    (
        "fi_rma_tx_completion -e rdm -o write -v -I 5",
        &[Defect::WrongAddress],
    ),
    ("fi_mcast", &[Defect::FlipsBit]),
    (
        "fi_rdm_stress -n 4",
        &[Defect::FlipsBit, Defect::WrongAddress],
    ),
    ("fi_multinode -n 3 -x msg -I 10", &[Defect::FlipsBit]),
    ("fi_multinode -n 3 -x rma -I 10", &[Defect::WrongAddress]),
    (
        "fi_multinode_coll -n 3 -I 3",
        &[
            Defect::OtherCollectives,
            Defect::WrongRoot,
            Defect::CompletesCollectivesEarly,
        ],
    ),
    (
        "fi_ubertest -u quick",
        &[
            Defect::FlipsBit,
            Defect::NoKind,
            Defect::HalvesTags,
            Defect::SwapsSegments,
            Defect::WrongAddress,
            Defect::OtherAtomics,
        ],
    ),
    ("fi_ubertest -u connected", &[Defect::FlipsBit]),
    ("fi_ubertest -f -u quick -z 40", &[Defect::FlipsBit]),
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
pub fn entries(selection: &Selection, provider: &str) -> Vec<Entry> {
    let all = catalogue::entries(selection, provider);
    let mut mutants = Vec::new();
    for (line, defects) in NOTICED {
        let whole = all.iter().find(|entry| entry.name == *line);
        mutants.extend(whole.into_iter().flat_map(|entry| {
            let with = |defect: &Defect| planted(entry.clone(), *defect);
            let defects = defects.iter();
            let defects = defects.filter(|defect| {
                **defect != Defect::IgnoresHosts || asks_for_hosts(provider, line)
            });
            defects.map(with)
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

fn planted(mut entry: Entry, defect: Defect) -> Entry {
    let word = defect.to_possible_value();
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

    fn selection() -> Selection {
        Selection {
            set: Set::All,
            providers: Vec::new(),
            seed: 0,
            filters: Vec::new(),
            excludes: Vec::new(),
        }
    }

    #[test]
    fn every_line_is_one_of_the_catalogue() {
        let all = catalogue::entries(&selection(), "shm");
        for (line, defects) in NOTICED {
            assert!(all.iter().any(|entry| entry.name == *line), "{line}");
            assert!(!defects.is_empty(), "{line}");
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
        for (line, defects) in NOTICED {
            let words = defects.iter().map(|defect| {
                let word = defect.to_possible_value().unwrap();
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
