//! The conformance tests, by what they are about. They know nothing of any provider.

/// The tests of a module: functions that are named as their tests, each with the capabilities that it
/// asks for, the defects that it notices, and in what it differs from other tests.
macro_rules! tests {
    ($($run:ident($caps:expr) catches [$($flaw:ident),*] $(.$how:ident($what:expr))*;)+) => {
        pub(super) const TESTS: &[Test] = &[$(
            Test::new(stringify!($run), $caps, &[$(Flaw::$flaw),*], $run)$(.$how($what))*
        ),+];
    };
}

mod atomics;
mod closing;
mod collectives;
mod connections;
mod contexts;
mod counters;
mod datagrams;
mod discovery;
mod domains;
mod events;
mod messages;
mod pressure;
mod queues;
mod receives;
mod rma;
mod sets;
mod shared;
mod tagged;
mod triggers;
mod vectors;
mod waiting;

use super::cx::Test;

/// The groups, each with its tests.
const GROUPS: &[(&str, &[Test])] = &[
    ("discovery", discovery::TESTS),
    ("messages", messages::TESTS),
    ("tagged", tagged::TESTS),
    ("receives", receives::TESTS),
    ("rma", rma::TESTS),
    ("atomics", atomics::TESTS),
    ("queues", queues::TESTS),
    ("counters", counters::TESTS),
    ("triggers", triggers::TESTS),
    ("events", events::TESTS),
    ("waiting", waiting::TESTS),
    ("sets", sets::TESTS),
    ("shared", shared::TESTS),
    ("collectives", collectives::TESTS),
    ("vectors", vectors::TESTS),
    ("contexts", contexts::TESTS),
    ("domains", domains::TESTS),
    ("closing", closing::TESTS),
    ("pressure", pressure::TESTS),
    ("connections", connections::TESTS),
    ("datagrams", datagrams::TESTS),
];

/// Every test, as `group.name`.
pub(super) fn all() -> impl Iterator<Item = (String, &'static Test)> {
    GROUPS.iter().flat_map(|(group, tests)| {
        let named = tests.iter();
        named.map(move |test| (format!("{group}.{}", test.name), test))
    })
}

#[cfg(test)]
mod unit_tests {
    use clap::ValueEnum;

    use super::*;
    use crate::suite::flaw::Flaw;

    fn word(flaw: Flaw) -> String {
        let value = flaw.to_possible_value();
        value.map_or_else(String::new, |value| format!("`{}`", value.get_name()))
    }

    /// The part of docs/FABTESTS-REFERENCE.md that says which defects each test notices.
    fn mutation_list() -> String {
        let mut list = String::from("| defect | what is wrong |\n|---|---|\n");
        for flaw in Flaw::value_variants() {
            list += &format!("| {} | {} |\n", word(*flaw), flaw.text());
        }
        list += "\n| test | fails with |\n|---|---|\n";
        for (name, test) in all() {
            let flaws: Vec<_> = test.flaws.iter().map(|flaw| word(*flaw)).collect();
            list += &format!("| `{name}` | {} |\n", flaws.join(", "));
        }
        list
    }

    #[test]
    fn the_mutation_list_is_what_the_tests_declare() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FABTESTS-REFERENCE.md");
        let page = std::fs::read_to_string(page).unwrap();
        let list = mutation_list();
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md should say:\n{list}"
        );
    }

    #[test]
    fn every_test_has_a_name_of_its_own_and_a_defect_that_it_notices() {
        let names: Vec<_> = all().map(|(name, _)| name).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for (name, test) in all() {
            assert!(!test.flaws.is_empty(), "{name} was never seen to fail");
        }
    }

    #[test]
    fn every_defect_is_noticed_by_some_test() {
        for flaw in Flaw::value_variants() {
            let mut by_programs = crate::upstream::mutants::NOTICED.iter();
            let is_noticed = all().any(|(_, test)| test.flaws.contains(flaw))
                || by_programs.any(|(_, flaws)| flaws.contains(flaw));
            assert!(is_noticed, "{flaw:?} serves no test");
        }
    }
}
