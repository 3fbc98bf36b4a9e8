//! Which package uses which, as Cargo sees it and as the table allows it.

use std::collections::BTreeMap;

use crate::packages::packages;
use crate::table;

/// Checks everything, so its imports have no direction.
const UNRESTRICTED: &str = "fabtests";

#[test]
fn packages_import_what_the_table_allows_and_no_more() {
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
