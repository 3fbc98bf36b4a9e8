//! Tests that the files of a package import each other in one direction, except for listed cycles.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::packages;
use crate::references::references;

/// The permitted import cycles: the source folder of a package, and the maximum number of files of
/// each of its cycles, the largest first. No cycle may grow, and no other package may have one.
const CYCLES: [(&str, &[usize]); 6] = [
    ("abi/src", &[4, 3]),
    ("fabtests/src", &[15, 8, 6, 6, 4, 3, 3, 3, 2, 2, 2, 2, 2]),
    ("util/bmi/src", &[16]),
    ("util/capi/bmi/src", &[2]),
    ("util/capi/fabric/src", &[25]),
    ("util/cheetah/src", &[10, 4, 2, 2]),
];

#[test]
fn files_of_a_package_import_each_other_in_one_direction() {
    let listed = BTreeMap::from(CYCLES);
    let mut violations = Vec::new();
    for package in packages() {
        let cycles = cycles(&references(&package.sources));
        let sizes = listed.get(&*package.sources).copied().unwrap_or_default();
        if !fits(&cycles, sizes) {
            let found: Vec<_> = cycles.iter().map(BTreeSet::len).collect();
            violations.push(format!(
                "{}: import cycles of {found:?} files, but the list allows {sizes:?}: {cycles:#?}",
                package.sources
            ));
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Whether the n-th largest cycle has at most as many files as the n-th listed size, for every
/// cycle. Both lists begin with the largest.
fn fits(cycles: &[BTreeSet<String>], sizes: &[usize]) -> bool {
    let mut pairs = cycles.iter().zip(sizes);
    cycles.len() <= sizes.len() && pairs.all(|(cycle, size)| cycle.len() <= *size)
}

/// Returns the import cycles, the largest first. A cycle is a set of files that reach each other.
fn cycles(references: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = references
        .keys()
        .map(|file| (file, reached_from(file, references)))
        .collect();
    let cycle = |file: &String| {
        let back = reached[file]
            .iter()
            .filter(|&to| reached[to].contains(file));
        back.cloned().collect::<BTreeSet<_>>()
    };
    let cycles: BTreeSet<_> = references.keys().map(cycle).collect();
    let mut cycles: Vec<_> = cycles.into_iter().filter(|set| set.len() > 1).collect();
    cycles.sort_by_key(|set| usize::MAX - set.len());
    cycles
}

fn reached_from(file: &str, references: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut unvisited = vec![file];
    while let Some(file) = unvisited.pop() {
        for to in &references[file] {
            if reached.insert(to.clone()) {
                unvisited.push(to);
            }
        }
    }
    reached
}

#[test]
fn files_that_reach_each_other_form_a_cycle() {
    let references = [
        ("a", &["b"][..]),
        ("b", &["c", "d"]),
        ("c", &["a"]),
        ("d", &[]),
    ];
    let references = references.map(|(file, to)| {
        let to = to.iter().map(|to| (*to).to_owned());
        (file.to_owned(), to.collect())
    });
    let cycles = cycles(&references.into());
    assert_eq!(cycles, [["a", "b", "c"].map(str::to_owned).into()]);
    assert!(fits(&cycles, &[3]) && !fits(&cycles, &[2]) && !fits(&cycles, &[]));
}
