//! The floors of the core: a file knows what is on its floor and below, and no two files know each
//! other, be it through others. So the way down from any rule ends, and a floor can be read without
//! those above it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The floors, the lowest first. A file that is no part of a folder is on the floor of its name.
const FLOORS: [&str; 14] = [
    "value", "answer", "prices", "log", "tokens", "view", "context", "provider", "request",
    "policy", "response", "import", "trace", "storage",
];

/// Files beside the folders, and whose floor they are on: errors hold values and nothing else.
const BESIDE: [(&str, &str); 4] = [
    ("error", "value"),
    ("failure", "value"),
    ("fault", "value"),
    ("reason", "value"),
];

/// The sources: module path and text.
type Sources = BTreeMap<Vec<String>, String>;

/// Which modules each module uses.
type Arrows = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

#[test]
fn arrows_go_down_and_never_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Sources::new();
    read_folder(&root, &mut Vec::new(), &mut sources);
    assert!(
        sources.len() > 50,
        "only {} files in {root:?}",
        sources.len()
    );
    let found = problems(&sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The NIF crate has no floors. Its own test binary would not link, so it is read here.
#[test]
fn files_of_the_nif_crate_know_each_other_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ash_agent_context_nif/src");
    let mut sources = Sources::new();
    read_folder(&root, &mut Vec::new(), &mut sources);
    assert!(sources.len() > 15, "only {} files", sources.len());
    let found = circle_problems(&arrows(&sources));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_arrow_that_runs_up_is_found() {
    let up = [
        "use crate::view::masks::Masks;",
        "use crate::view::{self, masks};",
        "use super::view::masks;",
        "use super::{\n    log,\n    view::{masks::{Masks, Other}},\n};",
        "fn f() { crate::view::masks::make() }",
        "pub(crate) fn f(x: super::view::View) {}",
        "mod inner {\n    use crate::view::View;\n}",
    ];
    for text in up {
        let found = problems(&sources(&[
            ("log", text),
            ("view", "pub mod masks;"),
            ("view::masks", ""),
        ]));
        assert!(!found.is_empty(), "{text}");
        for problem in found {
            assert!(problem.contains("src/log"), "{problem}");
            assert!(problem.contains("src/view"), "{problem}");
        }
    }
}

#[test]
fn what_a_module_hands_on_is_used_where_it_comes_from() {
    let handed_on = sources(&[
        ("log", "pub mod call;\npub use call::Call;"),
        ("log::call", "use crate::log::part::Part;"),
        ("log::part", "use crate::log::Call;"),
    ]);
    let found = problems(&handed_on);
    assert!(found[0].contains("call.rs"), "{found:?}");
    assert!(found[0].contains("part.rs"), "{found:?}");
}

#[test]
fn circles_are_found_however_long_they_are() {
    let circle = sources(&[
        ("log::a", "use super::b::B;"),
        ("log::b", "fn f() { crate::log::c::f() }"),
        ("log::c", "use crate::{log::{a}};"),
        ("log::d", "use crate::log::a::A;"),
    ]);
    let found = problems(&circle);
    assert_eq!(found.len(), 1, "{found:?}");
    for name in ["a.rs", "b.rs", "c.rs"] {
        assert!(found[0].contains(name), "{found:?}");
    }
    assert!(!found[0].contains("d.rs"), "{found:?}");
}

#[test]
fn a_file_beside_the_floors_is_told() {
    let found = problems(&sources(&[("helpers", "")]));
    assert!(found[0].contains("src/helpers"), "{found:?}");
}

#[test]
fn words_and_comments_are_no_arrows() {
    let words = "// use crate::view::View;\n/// [`crate::view::View`]\nconst X: &str = \"crate::view::View\";";
    let found = problems(&sources(&[("log", words), ("view", "")]));
    assert!(found.is_empty(), "{found:?}");
}

fn sources(files: &[(&str, &str)]) -> Sources {
    let path = |name: &str| name.split("::").map(str::to_owned).collect();
    files
        .iter()
        .map(|(name, text)| (path(name), (*text).to_owned()))
        .collect()
}

fn read_folder(folder: &Path, path: &mut Vec<String>, sources: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_module = name != "mod" && name != "lib";
        if is_module {
            path.push(name);
        }
        if file.is_dir() {
            read_folder(&file, path, sources);
        } else if file.extension().is_some_and(|end| end == "rs") && !path.is_empty() {
            sources.insert(path.clone(), fs::read_to_string(&file).unwrap());
        }
        if is_module {
            path.pop();
        }
    }
}

/// All that is wrong, each in a sentence that names the files and says what to do.
fn problems(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    for module in sources.keys() {
        if floor(module).is_none() {
            found.push(format!(
                "{} is on no floor: put it into the folder of the floor that it belongs to",
                file(module)
            ));
        }
    }
    let arrows = arrows(sources);
    for (from, uses) in &arrows {
        for to in uses {
            if floor(from) < floor(to) {
                found.push(format!(
                    "{} uses {}, which is on a floor above it: move what it needs down, or let the \
                     caller hand it in",
                    file(from),
                    file(to)
                ));
            }
        }
    }
    found.extend(circle_problems(&arrows));
    found
}

fn circle_problems(arrows: &Arrows) -> Vec<String> {
    let problem = |circle: Vec<Vec<String>>| {
        let files: Vec<String> = circle.iter().map(|module| file(module)).collect();
        format!(
            "{} know each other in a circle: put what they share into a file of its own",
            files.join(", ")
        )
    };
    circles(arrows).into_iter().map(problem).collect()
}

fn floor(module: &[String]) -> Option<usize> {
    let first = module.first()?;
    // What is true of providers is known from the log on.
    let is_fact = first == "provider" && module.last()? == "facts";
    let first = if is_fact { "log" } else { first };
    let name = BESIDE
        .iter()
        .find(|(file, _)| *file == first)
        .map_or(first, |(_, floor)| floor);
    FLOORS.iter().position(|floor| *floor == name)
}

fn file(module: &[String]) -> String {
    format!("src/{}.rs", module.join("/"))
}

fn arrows(sources: &Sources) -> Arrows {
    let paths: BTreeMap<&Vec<String>, Paths> = sources
        .iter()
        .map(|(module, text)| {
            (
                module,
                Paths::of(module, &in_rooms(code(text), sources), sources),
            )
        })
        .collect();
    let uses = |(module, found): (&&Vec<String>, &Paths)| {
        let uses = found.all.iter().filter_map(|path| target(path, &paths, 0));
        let uses = uses.filter(|to| to != *module).collect();
        ((*module).clone(), uses)
    };
    paths.iter().map(uses).collect()
}

/// A macro's line for each of the rooms that it stands for.
fn in_rooms(code: String, sources: &Sources) -> String {
    let is_room = |module: &&Vec<String>| module.len() == 3 && module[2] == "facts";
    let rooms: Vec<&String> = sources
        .keys()
        .filter(is_room)
        .map(|module| &module[1])
        .collect();
    let lines = code.lines().map(|line| match line.contains("$room") {
        true => rooms
            .iter()
            .map(|room| line.replace("$room", room) + "\n")
            .collect(),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// The module where a path's end is defined: the longest beginning that is a module, or where that one
/// has it from.
fn target(
    path: &[String],
    paths: &BTreeMap<&Vec<String>, Paths>,
    steps: usize,
) -> Option<Vec<String>> {
    let len = (1..=path.len())
        .rev()
        .find(|len| paths.contains_key(&path[..*len].to_vec()))?;
    let module = path[..len].to_vec();
    let handed_on = path
        .get(len)
        .and_then(|name| paths.get(&module)?.handed_on.get(name));
    match handed_on {
        Some(origin) if steps < 9 => target(origin, paths, steps + 1).or(Some(module)),
        _ => Some(module),
    }
}

/// The paths in a module, from the root of the crate on.
#[derive(Default)]
struct Paths {
    all: BTreeSet<Vec<String>>,
    /// What the module offers under a name of its own.
    handed_on: BTreeMap<String, Vec<String>>,
}

impl Paths {
    fn of(module: &[String], code: &str, sources: &Sources) -> Self {
        let mut paths = Self::default();
        let mut rest = code.to_owned();
        // Imports first: they may be trees.
        while let Some((start, end)) = import(&rest) {
            let line: String = rest.drain(start..end).collect();
            let (visible, tree) = line.split_once("use ").unwrap();
            for leaf in leaves(tree.trim_end_matches(';')) {
                let (path, alias) = leaf.split_once(" as ").unwrap_or((&leaf, ""));
                let Some(path) = absolute(path, module, sources) else {
                    continue;
                };
                let name = match alias.trim() {
                    "" => path.last().cloned().unwrap_or_default(),
                    alias => alias.to_owned(),
                };
                if visible.contains("pub") {
                    paths.handed_on.insert(name, path.clone());
                }
                paths.all.insert(path);
            }
        }
        for word in rest.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)))
        {
            if word.starts_with("crate::") || word.starts_with("super::") {
                paths.all.extend(absolute(word, module, sources));
            }
        }
        paths
    }
}

/// Where the next import begins and ends.
fn import(code: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let at = from + code[from..].find("use ")?;
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line..at].trim();
        if before.is_empty() || before == "pub" || before == "pub(crate)" || before == "pub(super)"
        {
            return Some((line, at + code[at..].find(';')? + 1));
        }
        from = at + 4;
    }
}

/// The paths of an import's tree.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        return vec![tree.to_owned()];
    };
    let (head, inside) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap()]);
    let (mut items, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&inside[start..]);
    items
        .into_iter()
        .filter(|item| !item.trim().is_empty())
        .flat_map(leaves)
        .map(|leaf| match leaf.as_str() {
            "self" => head.trim_end_matches("::").to_owned(),
            leaf => format!("{head}{leaf}"),
        })
        .collect()
}

/// A path from the root of the crate on; `None` for what is not of this crate.
fn absolute(path: &str, module: &[String], sources: &Sources) -> Option<Vec<String>> {
    let mut segments: Vec<&str> = path.split("::").map(str::trim).collect();
    segments.retain(|segment| !segment.is_empty() && *segment != "*");
    let mut base = match segments.first()? {
        &"crate" => Vec::new(),
        &"self" => module.to_vec(),
        &"super" => module[..module.len() - 1].to_vec(),
        child => {
            let mut path = module.to_vec();
            path.push((*child).to_owned());
            if !sources.contains_key(&path) {
                return None;
            }
            segments.insert(0, "self");
            module.to_vec()
        }
    };
    base.extend(segments.iter().skip(1).map(|segment| (*segment).to_owned()));
    (!base.is_empty()).then_some(base)
}

/// The text without comments and strings, and without the tests at its end, which may use everything.
/// `super` in another module inside the file is the file itself.
fn code(text: &str) -> String {
    let bare = bare(text);
    let bare = bare.split("mod tests {").next().unwrap();
    let Some(inside) = bare.find("mod inner {") else {
        return bare.to_owned();
    };
    let (before, inside) = bare.split_at(inside);
    [before, &inside.replace("super::", "self::")].concat()
}

fn bare(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' if in_string => {
                    letters.next();
                }
                '"' => in_string = !in_string,
                '/' if !in_string && letters.peek() == Some(&'/') => break,
                _ if !in_string => code.push(letter),
                _ => {}
            }
        }
        code.push('\n');
    }
    code
}

/// Groups of modules that reach each other.
fn circles(arrows: &Arrows) -> Vec<Vec<Vec<String>>> {
    let reach: BTreeMap<_, _> = arrows
        .keys()
        .map(|from| (from, reached(from, arrows)))
        .collect();
    let mut circles = BTreeSet::new();
    for (from, there) in &reach {
        let circle: Vec<Vec<String>> = there
            .iter()
            .filter(|to| reach.get(to).is_some_and(|back| back.contains(*from)))
            .cloned()
            .collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached(from: &Vec<String>, arrows: &Arrows) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in arrows.get(module).into_iter().flatten() {
            if reached.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    reached
}
