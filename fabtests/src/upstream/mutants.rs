//! The programs over providers with defects: those that check something, with what each of them has
//! to notice.

use clap::ValueEnum as _;

use super::catalogue;
use crate::suite::Entry;
use crate::suite::catalogue::Wanted;
use crate::suite::flaw::{Flaw, VARIABLE};

/// Command lines of the catalogue, and the defects.
const NOTICED: &[(&str, &[Flaw])] = &[
    (
        "fi_getinfo_test -s 127.0.0.1 127.0.0.1",
        &[Flaw::IgnoresHints],
    ),
    ("fi_eq_test", &[Flaw::PeekTakes]),
    ("fi_cq_test", &[Flaw::NoSignal]),
    ("fi_cntr_test", &[Flaw::CountsTwice]),
    ("fi_loopback", &[Flaw::FlipsBit]),
    ("fi_rdm", &[Flaw::FlipsBit, Flaw::CutsOff]),
    ("fi_av_xfer -e rdm -b", &[Flaw::FlipsBit]),
    (
        "fi_cq_data -e rdm -o senddata",
        &[Flaw::NoKind, Flaw::CountsOneLess],
    ),
    ("fi_cq_data -e rdm -o writedata", &[Flaw::NoRemoteData]),
    (
        "fi_inject_test -N -A inject -v",
        &[Flaw::ReadsInjectLate, Flaw::FlipsBit],
    ),
    (
        "fi_flood -e rdm -v -T 1",
        &[Flaw::FlipsBit, Flaw::SwapsSends],
    ),
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
    ("fi_rdm_multi_domain -b", &[Flaw::WrongAddress]),
    ("fi_rdm_rma_event", &[Flaw::WrongAddress]),
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
    ("fi_rdm_bw -v -I 5", &[Flaw::SwapsSends, Flaw::FlipsBit]),
    ("fi_rdm_tagged_bw -v -I 5", &[Flaw::FlipsBit, Flaw::CutsOff]),
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
    ("fi_multinode -n 3 -x msg -I 10", &[Flaw::FlipsBit]),
    ("fi_multinode -n 3 -x rma -I 10", &[Flaw::WrongAddress]),
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
            flaws.iter().map(with)
        }));
    }
    mutants
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
        let count: usize = NOTICED.iter().map(|(_, flaws)| flaws.len()).sum();
        assert_eq!(entries(&wanted(), "shm").len(), count);
    }

    /// The part of docs/FABTESTS.md that says with which defects each program was seen to fail.
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
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FABTESTS.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&list), "docs/FABTESTS.md should say:\n{list}");
    }
}
