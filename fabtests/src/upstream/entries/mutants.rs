//! Runs of the programs over providers with planted defects. Each program is listed with the
//! defects that it must detect.

use clap::ValueEnum as _;
use selvedge::info::EpType;
use selvedge::{AddrFormat, Hints};

use super::catalogue;
use crate::suite::defect::{Defect, VARIABLE};
use crate::suite::{Entry, Selection};

/// Catalogue entries and the defects that they detect.
pub(crate) const DETECTED: &[(&str, &[Defect])] = &[
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

/// The programs that detect no defect, and the reasons.
#[cfg(test)]
const WITHOUT_DEFECTS: &[(&str, &str)] = &[
    (
        "fi_pingpong",
        "the program has its own tests, because client and server do not wait for each other",
    ),
    ("fi_setopt_test", "the program tests device memory"),
    ("fi_mr_cache_evict", "not implemented"),
    ("fi_check_hmem", "not implemented"),
];

/// The time that a program waits for an operation that does not complete.
const SHORT_TIMEOUT: [&str; 2] = ["--timeout", "3"];

/// Returns the entries: each listed program with each of its defects.
pub fn entries(selection: &Selection, provider: &str) -> Vec<Entry> {
    let all = catalogue::entries(selection, provider);
    let mut mutants = Vec::new();
    for (line, defects) in DETECTED {
        let original = all.iter().find(|entry| entry.name == *line);
        mutants.extend(original.into_iter().flat_map(|entry| {
            let mutate = |defect: &Defect| with_defect(entry.clone(), *defect);
            let defects = defects.iter();
            let defects = defects.filter(|defect| {
                **defect != Defect::IgnoresHosts || resolves_hosts(provider, line)
            });
            defects.map(mutate)
        }));
    }
    mutants
}

/// Returns whether a provider resolves host names for the programs. A provider does not if its
/// addresses are strings or it lacks the endpoint type.
fn resolves_hosts(provider: &str, line: &str) -> bool {
    let layer = provider.rsplit(';').next().unwrap_or(provider);
    let ep_type = match line.split_whitespace().next() {
        Some("fi_dgram") => EpType::Dgram,
        Some("fi_msg") => EpType::Msg,
        _ => EpType::Rdm,
    };
    let hints = Hints::anything().provider(layer).ep_type(ep_type);
    let infos = selvedge_providers::builtin().infos(&hints);
    infos.is_ok_and(|infos| infos[0].addr_format != AddrFormat::Str)
}

fn with_defect(mut entry: Entry, defect: Defect) -> Entry {
    let name = defect.to_possible_value();
    let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
    entry.name = format!("{}~{name}", entry.name);
    entry.must_fail = true;
    for process in &mut entry.processes {
        process.env.push((VARIABLE.to_owned(), name.clone()));
        process.args.extend(SHORT_TIMEOUT.map(str::to_owned));
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
    fn every_line_is_in_the_catalogue() {
        let all = catalogue::entries(&selection(), "shm");
        for (line, defects) in DETECTED {
            assert!(all.iter().any(|entry| entry.name == *line), "{line}");
            assert!(!defects.is_empty(), "{line}");
        }
    }

    #[test]
    fn every_program_detects_a_defect() {
        for program in crate::upstream::programs::PROGRAMS {
            let mut lines = DETECTED.iter().map(|(line, _)| line.split_whitespace());
            let detects = lines.any(|mut words| words.next() == Some(program.name));
            let is_excepted = WITHOUT_DEFECTS
                .iter()
                .any(|(name, _)| *name == program.name);
            let name = program.name;
            assert!(detects != is_excepted, "{name}: {detects}, {is_excepted}");
        }
    }

    /// The table of docs/FABTESTS-REFERENCE.md with the defects that each program detects.
    #[test]
    fn the_defect_table_of_programs_is_documented() {
        let mut list = String::from("| program | fails with |\n|---|---|\n");
        for (line, defects) in DETECTED {
            let words = defects.iter().map(|defect| {
                let name = defect.to_possible_value().unwrap();
                format!("`{}`", name.get_name())
            });
            list += &format!("| `{line}` | {} |\n", Vec::from_iter(words).join(", "));
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FABTESTS-REFERENCE.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md must contain:\n{list}"
        );
    }
}
