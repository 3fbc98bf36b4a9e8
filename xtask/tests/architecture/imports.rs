//! The dependencies of packages match the table of docs/DEPENDENCIES.md.

use std::collections::BTreeMap;

use crate::packages::packages;
use crate::table;

/// The package that may depend on each other package, because it tests all of them.
const UNRESTRICTED: &str = "fabtests";

#[test]
fn packages_import_exactly_the_allowed_packages() {
    let allowed: BTreeMap<_, _> = table("## Allowed imports")
        .into_iter()
        .flat_map(|[packages, imports]| packages.into_iter().map(move |p| (p, imports.clone())))
        .collect();
    let mut imports: BTreeMap<_, _> = packages()
        .into_iter()
        .map(|package| (package.name, package.dependencies))
        .collect();
    imports.remove(UNRESTRICTED).unwrap();
    assert_eq!(imports, allowed);
}
