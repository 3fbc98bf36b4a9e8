//! The conformance tests, by subject. They are independent of providers.

/// Declares the tests of a module: functions with the tests' names, each with the capabilities that
/// it requests, the defects that it detects, and its other attributes.
macro_rules! tests {
    ($($run:ident($caps:expr) catches [$($defect:ident),*] $(.$attribute:ident($value:expr))*;)+) => {
        pub(in crate::suite::tests) const TESTS: &[Test] = &[$(
            Test::new(stringify!($run), $caps, &[$(Defect::$defect),*], $run)$(.$attribute($value))*
        ),+];
    };
}

mod collectives;
mod completions;
mod objects;
mod one_sided;
mod two_sided;

use super::context::Test;

/// The groups, each with its tests.
const GROUPS: &[(&str, &[Test])] = &[
    ("discovery", objects::discovery::TESTS),
    ("messages", two_sided::messages::TESTS),
    ("tagged", two_sided::tagged::TESTS),
    ("receives", two_sided::receives::TESTS),
    ("rma", one_sided::rma::TESTS),
    ("atomics", one_sided::atomics::TESTS),
    ("queues", completions::queues::TESTS),
    ("counters", completions::counters::TESTS),
    ("triggers", completions::triggers::TESTS),
    ("events", completions::events::TESTS),
    ("waiting", completions::waiting::TESTS),
    ("sets", completions::sets::TESTS),
    ("shared", objects::shared::TESTS),
    ("collectives", collectives::TESTS),
    ("vectors", objects::vectors::TESTS),
    ("contexts", objects::contexts::TESTS),
    ("domains", objects::domains::TESTS),
    ("closing", objects::closing::TESTS),
    ("pressure", two_sided::pressure::TESTS),
    ("connections", objects::connections::TESTS),
    ("datagrams", two_sided::datagrams::TESTS),
];

/// Returns every test, with its name `group.name`.
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
    use crate::suite::defect::Defect;

    fn quoted_name(defect: Defect) -> String {
        let value = defect.to_possible_value();
        value.map_or_else(String::new, |value| format!("`{}`", value.get_name()))
    }

    /// Makes the tables of docs/FABTESTS-REFERENCE.md with the defects that each test detects.
    fn mutation_list() -> String {
        let mut list = String::from("| defect | what is wrong |\n|---|---|\n");
        for defect in Defect::value_variants() {
            list += &format!("| {} | {} |\n", quoted_name(*defect), defect.text());
        }
        list += "\n| test | fails with |\n|---|---|\n";
        for (name, test) in all() {
            let defects: Vec<_> = test
                .defects
                .iter()
                .map(|defect| quoted_name(*defect))
                .collect();
            list += &format!("| `{name}` | {} |\n", defects.join(", "));
        }
        list
    }

    #[test]
    fn the_mutation_list_agrees_with_the_declarations_of_tests() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FABTESTS-REFERENCE.md");
        let page = std::fs::read_to_string(page).unwrap();
        let list = mutation_list();
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md must contain:\n{list}"
        );
    }

    #[test]
    fn every_test_has_a_unique_name_and_notices_a_defect() {
        let names: Vec<_> = all().map(|(name, _)| name).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for (name, test) in all() {
            assert!(!test.defects.is_empty(), "{name} was never seen to fail");
        }
    }

    #[test]
    fn every_defect_is_noticed_by_some_test() {
        for defect in Defect::value_variants() {
            let mut by_programs = crate::upstream::entries::mutants::DETECTED.iter();
            let is_noticed = all().any(|(_, test)| test.defects.contains(defect))
                || by_programs.any(|(_, defects)| defects.contains(defect));
            assert!(is_noticed, "no test notices {defect:?}");
        }
    }
}
