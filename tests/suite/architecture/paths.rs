//! Every path in a crate's source, with the meaning of its first segment.
//! In: a folder with `lib.rs`. Out: references. The module does not depend on the rules.
//!
//! Names are resolved as in the compiler, for imports: `use` trees and their aliases, modules, glob
//! imports of the crate's own modules, imports inside functions. Paths in the arguments of macros
//! and attributes are also found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// One path in the source.
#[derive(Debug)]
pub struct Reference {
    /// The path relative to the folder's parent.
    pub file: PathBuf,
    pub line: usize,
    /// The module that contains the path: `model::smart::parse`.
    pub module: String,
    /// The resolved path: `crate::host::sys::Call`, `std::fs`.
    pub path: String,
    /// The same path after following re-exports within the crate.
    pub means: String,
}

/// Whether the path is `prefix` or an item in it.
pub fn is_within(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The line of the first `unsafe` in the file outside comments.
pub fn first_unsafe(file: &Path) -> Option<usize> {
    fn find(tokens: TokenStream) -> Option<usize> {
        tokens.into_iter().find_map(|token| match token {
            TokenTree::Ident(word) if word == "unsafe" => Some(word.span().start().line),
            TokenTree::Group(group) => find(group.stream()),
            _ => None,
        })
    }
    let text = std::fs::read_to_string(file).expect("readable");
    find(text.parse().expect("Rust"))
}

type Segments = Vec<String>;

/// The names that a `use` adds to a scope.
#[derive(Default)]
struct Imports {
    /// Name in the scope → path as written.
    names: BTreeMap<String, Segments>,
    globs: Vec<Segments>,
}

struct Module {
    /// The path below the crate's root.
    path: Segments,
    file: PathBuf,
    items: Vec<Item>,
    /// The names of its items, without imports.
    declared: BTreeSet<String>,
    children: BTreeSet<String>,
    imports: Imports,
}

pub struct Source {
    pub references: Vec<Reference>,
    /// Every module with its declared or imported names: `model::ids::DriveId`.
    names: BTreeSet<String>,
}

impl Source {
    pub fn read(folder: &Path) -> Source {
        let mut modules = BTreeMap::new();
        read_file(&folder.join("lib.rs"), folder, vec![], &mut modules);
        let base = folder.parent().expect("a folder in something");
        let mut references = Vec::new();
        for module in modules.values() {
            let mut reader = Reader {
                modules: &modules,
                module,
                scopes: vec![],
                base,
                references: &mut references,
            };
            for item in &module.items {
                reader.visit_item(item);
            }
        }
        let names = modules.values().flat_map(|module| {
            let imported = module.imports.names.keys();
            let names = module.children.iter().chain(&module.declared);
            names.chain(imported).map(|name| {
                let mut path = module.path.clone();
                path.push(name.clone());
                path.join("::")
            })
        });
        Source { names: names.collect(), references }
    }

    /// The crate in the folder and the members of the workspace below it, as if each member were a
    /// module of this crate.
    pub fn read_workspace(folder: &Path) -> Source {
        let mut all = Source::read(folder);
        all.rename(None);
        let folders = std::fs::read_dir(folder).expect("readable").map(|it| it.expect("readable"));
        for member in folders.map(|it| it.path()).filter(|it| it.join("Cargo.toml").exists()) {
            let name = member.file_name().and_then(|it| it.to_str()).expect("a name").to_owned();
            let mut read = Source::read(&member);
            read.rename(Some((&name, folder)));
            all.references.extend(read.references);
            all.names.extend(read.names);
            all.names.insert(name);
        }
        all
    }

    /// Paths into a member, and of one its own, become paths of modules.
    fn rename(&mut self, member: Option<(&str, &Path)>) {
        let renamed = |path: &str| match (path.strip_prefix("crate"), member) {
            (Some(rest), Some((name, _))) if rest.is_empty() || rest.starts_with("::") => {
                format!("crate::{name}{rest}")
            }
            _ => match path.strip_prefix("diskvitals_") {
                Some(rest) => format!("crate::{rest}"),
                None => path.to_owned(),
            },
        };
        let below = |path: &str| match member {
            Some((name, _)) if path.is_empty() => name.to_owned(),
            Some((name, _)) => format!("{name}::{path}"),
            None => path.to_owned(),
        };
        for reference in &mut self.references {
            reference.path = renamed(&reference.path);
            reference.means = renamed(&reference.means);
            reference.module = below(&reference.module);
            if let Some((_, folder)) = member {
                let folder = Path::new(folder.file_name().expect("a name"));
                reference.file = folder.join(&reference.file);
            }
        }
        self.names = self.names.iter().map(|path| below(path)).collect();
    }

    /// Whether this module, or this item or import in a module, exists.
    pub fn exists(&self, path: &str) -> bool {
        self.names.contains(path)
    }
}

fn read_file(file: &Path, folder: &Path, path: Segments, modules: &mut BTreeMap<Segments, Module>) {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    read_items(parsed.items, file, folder, path, modules);
}

/// `folder` contains the files of the modules that are declared here.
fn read_items(
    items: Vec<Item>,
    file: &Path,
    folder: &Path,
    path: Segments,
    modules: &mut BTreeMap<Segments, Module>,
) {
    let mut module = Module {
        path: path.clone(),
        file: file.to_owned(),
        items: vec![],
        declared: BTreeSet::new(),
        children: BTreeSet::new(),
        imports: Imports::default(),
    };
    for item in items {
        let name = match &item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        module.declared.extend(name.map(ToString::to_string));
        match item {
            Item::Mod(inner) => {
                assert!(
                    inner.attrs.iter().all(|attribute| !attribute.path().is_ident("path")),
                    "{}: a module at another path is not understood here",
                    file.display()
                );
                let name = inner.ident.to_string();
                let mut path = path.clone();
                path.push(name.clone());
                match inner.content {
                    Some((_, items)) => {
                        read_items(items, file, &folder.join(&name), path, modules);
                    }
                    None => read_file(
                        &folder.join(&name).with_extension("rs"),
                        &folder.join(&name),
                        path,
                        modules,
                    ),
                }
                module.children.insert(name);
            }
            item => {
                if let Item::Use(item) = &item {
                    module.imports.add(item);
                }
                module.items.push(item);
            }
        }
    }
    modules.insert(path, module);
}

impl Imports {
    fn add(&mut self, item: &syn::ItemUse) {
        for import in expand(item) {
            match import.name {
                Some(name) => drop(self.names.insert(name, import.path)),
                None => self.globs.push(import.path),
            }
        }
    }
}

struct Import {
    path: Segments,
    /// The name in the scope; a glob has none.
    name: Option<String>,
    line: usize,
}

fn expand(item: &syn::ItemUse) -> Vec<Import> {
    fn walk(tree: &UseTree, before: &[String], imports: &mut Vec<Import>) {
        let with = |name: &syn::Ident| -> Segments {
            let mut path = before.to_vec();
            // `a::{self}` is `a`; a path that begins with `self` keeps it.
            if name != "self" || before.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        let line = |name: &syn::Ident| name.span().start().line;
        match tree {
            UseTree::Path(tree) => walk(&tree.tree, &with(&tree.ident), imports),
            UseTree::Name(tree) => {
                let path = with(&tree.ident);
                let name = path.last().cloned();
                imports.push(Import { path, name, line: line(&tree.ident) });
            }
            UseTree::Rename(tree) => imports.push(Import {
                path: with(&tree.ident),
                name: Some(tree.rename.to_string()),
                line: line(&tree.ident),
            }),
            UseTree::Glob(tree) => imports.push(Import {
                path: before.to_vec(),
                name: None,
                line: tree.star_token.spans[0].start().line,
            }),
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    walk(tree, before, imports);
                }
            }
        }
    }
    let mut imports = Vec::new();
    let before = if item.leading_colon.is_some() { vec![String::new()] } else { vec![] };
    walk(&item.tree, &before, &mut imports);
    imports
}

struct Reader<'s> {
    modules: &'s BTreeMap<Segments, Module>,
    module: &'s Module,
    /// The imports of the enclosing blocks, the innermost last.
    scopes: Vec<Imports>,
    base: &'s Path,
    references: &'s mut Vec<Reference>,
}

/// More than the length of any chain of imports.
const DEPTH: usize = 16;

/// Resolves a path in a module to a path from `crate` or from another crate's name.
fn resolve(
    modules: &BTreeMap<Segments, Module>,
    module: &Module,
    scopes: &[Imports],
    written: &[String],
    depth: usize,
) -> Segments {
    let in_crate = |path: &[String], rest: &[String]| -> Segments {
        let root = std::iter::once("crate".to_owned());
        root.chain(path.iter().cloned()).chain(rest.iter().cloned()).collect()
    };
    let Some((first, rest)) = written.split_first() else {
        return vec![];
    };
    match first.as_str() {
        // `::name` is a crate.
        "" => return rest.to_vec(),
        "crate" => return in_crate(&[], rest),
        "self" | "super" => {
            let mut path = module.path.as_slice();
            let mut rest = written;
            while let Some((word, after)) = rest.split_first() {
                match word.as_str() {
                    "self" => {}
                    "super" => path = path.split_last().map_or(path, |(_, parent)| parent),
                    _ => break,
                }
                rest = after;
            }
            return in_crate(path, rest);
        }
        _ => {}
    }
    if depth == DEPTH {
        return written.to_vec();
    }
    let aliased =
        scopes.iter().rev().chain([&module.imports]).find_map(|imports| imports.names.get(first));
    if let Some(path) = aliased {
        // `use tokio;` and `use log::log;` name the crate.
        if path.first() != Some(first) {
            let mut path = resolve(modules, module, &[], path, depth + 1);
            path.extend_from_slice(rest);
            return path;
        }
        if path.len() > 1 {
            let mut path = path.clone();
            path.extend_from_slice(rest);
            return path;
        }
    }
    if module.children.contains(first) || module.declared.contains(first) {
        return in_crate(&module.path, written);
    }
    // Imports such as `use super::*`.
    for glob in scopes.iter().rev().chain([&module.imports]).flat_map(|imports| &imports.globs) {
        let from = resolve(modules, module, &[], glob, depth + 1);
        let Some(("crate", from)) =
            from.split_first().map(|(crate_, path)| (crate_.as_str(), path))
        else {
            continue;
        };
        let Some(from) = modules.get(from) else {
            continue;
        };
        if from.path == module.path {
            continue;
        }
        let found = resolve(modules, from, &[], written, depth + 1);
        if found != written {
            return found;
        }
    }
    written.to_vec()
}

/// Follows re-exports.
fn follow(modules: &BTreeMap<Segments, Module>, path: &[String]) -> Segments {
    let mut path = path.to_vec();
    for _ in 0..DEPTH {
        if path.first().is_none_or(|first| first != "crate") {
            break;
        }
        let Some((module, length)) =
            (1..=path.len()).rev().find_map(|end| Some((modules.get(&path[1..end])?, end)))
        else {
            break;
        };
        let rest = &path[length..];
        if rest.is_empty() || module.declared.contains(&rest[0]) {
            break;
        }
        let next = resolve(modules, module, &[], rest, 0);
        if next == path || next == rest {
            break;
        }
        path = next;
    }
    path
}

impl Reader<'_> {
    fn add(&mut self, written: &[String], line: usize) {
        let path = resolve(self.modules, self.module, &self.scopes, written, 0);
        self.references.push(Reference {
            file: self.module.file.strip_prefix(self.base).expect("below").to_owned(),
            line,
            module: self.module.path.join("::"),
            means: follow(self.modules, &path).join("::"),
            path: path.join("::"),
        });
    }

    /// Finds paths in unparsed tokens of macros and attributes.
    fn add_tokens(&mut self, tokens: TokenStream, strings_too: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(word) => {
                    let line = word.span().start().line;
                    let mut path = vec![word.to_string()];
                    while is_colon(at + 1) && is_colon(at + 2) {
                        match tokens.get(at + 3) {
                            Some(TokenTree::Ident(word)) => {
                                path.push(word.to_string());
                                at += 3;
                            }
                            // `a::{b, c::d}`: each of them. The group's contents are also checked
                            // as separate paths, which adds only paths that are used.
                            Some(TokenTree::Group(group))
                                if group.delimiter() == Delimiter::Brace =>
                            {
                                let text = format!("{}::{group}", path.join("::"));
                                if let Ok(item) =
                                    syn::parse_str::<syn::ItemUse>(&format!("use {text};"))
                                {
                                    for import in expand(&item) {
                                        self.add(&import.path, line);
                                    }
                                }
                                at += 3;
                            }
                            _ => break,
                        }
                    }
                    if path.len() > 1 {
                        self.add(&path, line);
                    }
                }
                TokenTree::Group(group) => self.add_tokens(group.stream(), strings_too),
                TokenTree::Literal(literal) if strings_too => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                        && let Ok(path) = text.parse::<syn::Path>()
                        && path.segments.len() > 1
                    {
                        self.add(&segments(&path), literal.span().start().line);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

fn segments(path: &syn::Path) -> Segments {
    let before = path.leading_colon.as_ref().map(|_| String::new());
    before
        .into_iter()
        .chain(path.segments.iter().map(|segment| segment.ident.to_string()))
        .collect()
}

impl<'s> Visit<'s> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'s syn::ItemUse) {
        for import in expand(item) {
            self.add(&import.path, import.line);
        }
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        // A single name is imported, and checked at its import, or is declared locally.
        if path.segments.len() > 1 {
            let line = path.segments[0].ident.span().start().line;
            self.add(&segments(path), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'s syn::Visibility) {}

    fn visit_macro(&mut self, call: &'s syn::Macro) {
        self.add_tokens(call.tokens.clone(), false);
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'s syn::Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if let syn::Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone(), true);
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_block(&mut self, block: &'s syn::Block) {
        let mut imports = Imports::default();
        for statement in &block.stmts {
            if let syn::Stmt::Item(Item::Use(item)) = statement {
                imports.add(item);
            }
        }
        self.scopes.push(imports);
        visit::visit_block(self, block);
        self.scopes.pop();
    }
}
