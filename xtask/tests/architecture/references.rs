//! The references between the files of a package.
//!
//! A file refers to another one by a path, in a `use` or elsewhere. A re-exported item counts for
//! the file that defines it. Tests are left out. Method calls are not followed: a file that calls a
//! method usually names the receiver's type in a path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::root;

/// A path, as the names of its segments.
type Names = Vec<String>;

/// The files to which each file below `sources` refers. All paths are relative to `sources`.
pub(crate) fn references(sources: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folder = root().join(sources);
    let mut references = BTreeMap::new();
    for file in crate_roots(&folder) {
        let mut modules = Modules::default();
        modules.read(&file, Names::new());
        for (from, to) in modules.references() {
            let relative = |path: &Path| path.strip_prefix(&folder).unwrap().display().to_string();
            let to = to.iter().map(|path| relative(path)).collect();
            references.insert(relative(&from), to);
        }
    }
    references
}

/// The root files of the library and the programs.
fn crate_roots(folder: &Path) -> Vec<PathBuf> {
    let programs = fs::read_dir(folder.join("bin")).into_iter().flatten();
    let programs = programs.map(|entry| entry.unwrap().path());
    let default_roots = ["lib.rs", "main.rs"].map(|name| folder.join(name));
    programs
        .chain(default_roots)
        .filter(|path| path.is_file())
        .collect()
}

/// The modules of a crate.
#[derive(Default)]
struct Modules {
    /// The file of each module; the file that contains the module if the module is inline.
    files: BTreeMap<Names, PathBuf>,
    /// The target of each imported name: a path, behind the module in which the import stands.
    imports: BTreeMap<(Names, String), (Names, Names)>,
    /// The targets of the glob imports of each module.
    globs: BTreeMap<Names, Vec<(Names, Names)>>,
    /// Items by their module and name.
    items: BTreeSet<(Names, String)>,
    /// The paths in use, each behind the module in which it stands.
    paths: BTreeSet<(Names, Names)>,
}

impl Modules {
    fn read(&mut self, file: &Path, module: Names) {
        let text = fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.files.insert(module.clone(), file.to_owned());
        let mut reader = Reader {
            modules: self,
            file,
            scope: module,
        };
        reader.visit_file(&parsed);
    }

    /// For each file, the other files to which its paths lead.
    fn references(&self) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
        let mut references: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        for file in self.files.values() {
            references.entry(file.clone()).or_default();
        }
        for (scope, path) in &self.paths {
            let from = &self.files[scope];
            let to = self
                .resolve(scope, path)
                .and_then(|path| self.file_of(&path, 0));
            if let Some(to) = to.filter(|to| *to != from) {
                references.get_mut(from).unwrap().insert(to.clone());
            }
        }
        references
    }

    /// Resolves a path to one from the root of the crate. Returns `None` for a path that leaves the
    /// crate, and for a path that begins with an imported name: its import counts.
    fn resolve(&self, scope: &Names, path: &Names) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let mut module = scope.clone();
        match &**first {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop();
            }
            name => {
                module.push(name.to_owned());
                return self
                    .files
                    .contains_key(&module)
                    .then(|| [&module, rest].concat());
            }
        }
        let mut rest = rest.to_vec();
        while rest.first().is_some_and(|name| name == "super") {
            rest.remove(0);
            module.pop();
        }
        module.extend(rest);
        Some(module)
    }

    /// The file that defines the item at a path from the root of the crate.
    fn file_of(&self, path: &Names, depth: usize) -> Option<&PathBuf> {
        let is_module = |end: &usize| self.files.contains_key(&path[..*end]);
        let end = (0..=path.len()).rev().find(is_module)?;
        let module = path[..end].to_vec();
        let file = &self.files[&module];
        let Some(name) = path.get(end) else {
            return Some(file);
        };
        let item = (module, name.clone());
        // Without a maximum depth, mutual re-exports would not terminate.
        if depth > 16 || self.items.contains(&item) {
            return Some(file);
        }
        if let Some((scope, target)) = self.imports.get(&item) {
            let target = self.resolve(scope, target)?;
            return self.file_of(&[&target, &path[end + 1..]].concat(), depth + 1);
        }
        let globs = self.globs.get(&item.0).into_iter().flatten();
        let mut targets = globs.filter_map(|(scope, target)| {
            let mut target = self.resolve(scope, target)?;
            target.push(name.clone());
            self.contains(&target).then_some(target)
        });
        match targets.next() {
            Some(target) => self.file_of(&[&target, &path[end + 1..]].concat(), depth + 1),
            None => Some(file),
        }
    }

    /// Whether a module contains the last name of `path`; the preceding names are those of the
    /// module.
    fn contains(&self, path: &Names) -> bool {
        let (name, module) = path.split_last().unwrap();
        let item = (module.to_vec(), name.clone());
        self.files.contains_key(path)
            || self.items.contains(&item)
            || self.imports.contains_key(&item)
    }
}

/// A visitor that adds the items, imports and paths of a file to the modules.
struct Reader<'a> {
    modules: &'a mut Modules,
    file: &'a Path,
    scope: Names,
}

impl Reader<'_> {
    fn add_path(&mut self, path: Names) {
        self.modules.paths.insert((self.scope.clone(), path));
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = attributes_and_name(item);
        if attributes.iter().any(is_for_tests) {
            return;
        }
        if let Some(name) = name {
            self.modules.items.insert((self.scope.clone(), name));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut imports = Vec::new();
        flatten_use_tree(&item.tree, Names::new(), &mut imports);
        for (path, name) in imports {
            // A re-export counts for the files that import the name from this module.
            if matches!(item.vis, Visibility::Inherited) {
                self.add_path(path.clone());
            }
            let target = (self.scope.clone(), path);
            match name {
                None => {
                    let globs = self.modules.globs.entry(self.scope.clone());
                    globs.or_default().push(target);
                }
                // A macro becomes a name of its module by an import of itself.
                Some(_) if target.1.len() == 1 => {}
                Some(name) => {
                    let name = (self.scope.clone(), name);
                    self.modules.imports.insert(name, target);
                }
            }
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        let module = [&self.scope[..], std::slice::from_ref(&name)].concat();
        match &item.content {
            Some((_, items)) => {
                let file = self.file.to_owned();
                self.modules.files.insert(module.clone(), file);
                let outer = std::mem::replace(&mut self.scope, module);
                for item in items {
                    self.visit_item(item);
                }
                self.scope = outer;
            }
            None => self.modules.read(&file_of_module(self.file, &name), module),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string());
            self.add_path(names.collect());
        }
        visit::visit_path(self, path);
    }

    /// Skips a visibility, which names a module but uses no item of it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// Collects paths of several names in the arguments of a macro, which `syn` does not parse.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let mut paths = Vec::new();
        collect_paths(call.tokens.clone(), &mut paths);
        for path in paths {
            self.add_path(path);
        }
        visit::visit_macro(self, call);
    }
}

/// Collects the paths of several names among tokens.
fn collect_paths(tokens: TokenStream, paths: &mut Vec<Names>) {
    let (mut path, mut colons) = (Names::new(), 0);
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Ident(name) if colons == 2 => {
                path.push(name.to_string());
                colons = 0;
            }
            token => {
                paths.push(std::mem::take(&mut path));
                colons = 0;
                match token {
                    TokenTree::Ident(name) => path.push(name.to_string()),
                    TokenTree::Group(group) => collect_paths(group.stream(), paths),
                    _ => {}
                }
            }
        }
    }
    paths.push(path);
    paths.retain(|path| path.len() > 1);
}

/// The attributes and the name of an item.
fn attributes_and_name(item: &Item) -> (&[Attribute], Option<String>) {
    let (attributes, name) = match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Impl(item) => (&item.attrs, None),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs, None),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Use(item) => (&item.attrs, None),
        _ => return (&[], None),
    };
    (attributes, name.map(ToString::to_string))
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attribute: &Attribute) -> bool {
    let list = attribute.meta.require_list();
    let condition = list.map_or_else(|_| String::new(), |list| list.tokens.to_string());
    attribute.path().is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
}

/// Collects the paths of an import with their local names; `None` represents a glob.
fn flatten_use_tree(tree: &UseTree, mut prefix: Names, imports: &mut Vec<(Names, Option<String>)>) {
    let (last, name) = match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            return flatten_use_tree(&path.tree, prefix, imports);
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten_use_tree(tree, prefix.clone(), imports);
            }
            return;
        }
        UseTree::Glob(_) => return imports.push((prefix, None)),
        UseTree::Name(name) => (&name.ident, None),
        UseTree::Rename(rename) => (&rename.ident, Some(rename.rename.to_string())),
    };
    if last != "self" {
        prefix.push(last.to_string());
    }
    let name = name.or_else(|| prefix.last().cloned());
    imports.push((prefix, name));
}

/// The file of the module `name` that `file` declares.
fn file_of_module(file: &Path, name: &str) -> PathBuf {
    let folder = file.parent().unwrap();
    let stem = file.file_stem().unwrap().to_str().unwrap();
    let folder = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        stem => folder.join(stem),
    };
    let flat = folder.join(format!("{name}.rs"));
    if flat.is_file() {
        return flat;
    }
    folder.join(name).join("mod.rs")
}
