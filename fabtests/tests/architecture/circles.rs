//! Files of a package import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::packages;
use crate::references::references;

/// Circles of imports that there are: the sources of a package, and how many files each circle may
/// have. None of them grows, and no other package has one.
const CIRCLES: [(&str, &[usize]); 14] = [
    ("abi/src", &[4, 3]),
    ("fabtests/bench/src", &[20, 2, 2]),
    ("fabtests/src", &[15, 8, 6, 6, 4, 3, 3, 3, 2, 2, 2, 2, 2]),
    ("providers/hook/src", &[11]),
    ("providers/kit/src", &[13, 8, 6, 4, 2, 2, 2]),
    ("providers/lnx/src", &[2]),
    ("providers/ofi/src", &[11]),
    ("providers/udp/src", &[5]),
    ("src", &[27, 8, 3, 2]),
    ("testkit/src", &[2, 2]),
    ("util/bmi/src", &[16]),
    ("util/capi/bmi/src", &[2]),
    ("util/capi/fabric/src", &[25]),
    ("util/cheetah/src", &[10, 4, 2, 2]),
];

#[test]
fn files_of_a_package_import_each_other_in_one_direction() {
    let listed = BTreeMap::from(CIRCLES);
    let mut wrong = Vec::new();
    for package in packages() {
        let circles = circles(&references(&package.sources));
        let sizes = listed.get(&*package.sources).copied().unwrap_or_default();
        if !fit(&circles, sizes) {
            let found: Vec<_> = circles.iter().map(BTreeSet::len).collect();
            wrong.push(format!(
                "{}: circles of {found:?} files, {sizes:?} are listed: {circles:#?}",
                package.sources
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether each circle has a listed size of its own. Both begin with the largest.
fn fit(circles: &[BTreeSet<String>], sizes: &[usize]) -> bool {
    let mut pairs = circles.iter().zip(sizes);
    circles.len() <= sizes.len() && pairs.all(|(circle, size)| circle.len() <= *size)
}

/// Sets of files that reach each other, the largest first.
fn circles(references: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = references
        .keys()
        .map(|file| (file, reached_from(file, references)))
        .collect();
    let circle = |file: &String| {
        let back = reached[file]
            .iter()
            .filter(|&to| reached[to].contains(file));
        back.cloned().collect::<BTreeSet<_>>()
    };
    let circles: BTreeSet<_> = references.keys().map(circle).collect();
    let mut circles: Vec<_> = circles.into_iter().filter(|set| set.len() > 1).collect();
    circles.sort_by_key(|set| usize::MAX - set.len());
    circles
}

fn reached_from(file: &str, references: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(file) = waiting.pop() {
        for to in &references[file] {
            if reached.insert(to.clone()) {
                waiting.push(to);
            }
        }
    }
    reached
}

#[test]
fn files_that_reach_each_other_are_a_circle() {
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
    let circles = circles(&references.into());
    assert_eq!(circles, [["a", "b", "c"].map(str::to_owned).into()]);
    assert!(fit(&circles, &[3]) && !fit(&circles, &[2]) && !fit(&circles, &[]));
}
