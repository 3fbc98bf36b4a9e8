//! Tests that the files of a package import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::packages;
use crate::references::references;

#[test]
fn files_of_a_package_import_each_other_in_one_direction() {
    let mut violations = Vec::new();
    for package in packages() {
        let cycles = cycles(&references(&package.sources));
        if !cycles.is_empty() {
            let sources = package.sources;
            violations.push(format!("{sources}: import cycles {cycles:#?}"));
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
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
}
