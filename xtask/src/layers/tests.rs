mod forms;

use std::collections::BTreeMap;

use super::Sources;
use super::report::check;
use super::table::Table;

/// A workspace with the crates `low` and `high`, and a table with a layer for each. `files` are
/// relative to `crates`; `mod` declarations are the caller's.
fn problems(files: &[(&str, &str)]) -> String {
    let exists = |name: &str| files.iter().any(|(path, _)| path.starts_with(name));
    let mut rows = String::new();
    for name in ["high", "low"].into_iter().filter(|name| exists(name)) {
        rows += &format!("| {name} | `crates/{name}/src/` | a crate |\n");
    }
    problems_with(files, &rows)
}

fn problems_with(files: &[(&str, &str)], rows: &str) -> String {
    let sources: BTreeMap<String, String> = files
        .iter()
        .map(|(path, text)| (format!("crates/{path}"), (*text).to_owned()))
        .collect();
    let document = format!(
        "# A\n<!-- layers -->\n| layer | paths | what it holds |\n|---|---|---|\n{rows}<!-- /layers -->\n"
    );
    let table = Table::parse(&document).unwrap();
    check(&Sources(sources), &table).to_string()
}

const CIRCLE: &str = "\
circle of 2 files:
  crates/low/src/a.rs → crates/low/src/b.rs: B
  crates/low/src/b.rs → crates/low/src/a.rs: A
";

/// Whether `a.rs` and `b.rs` are a circle and nothing else is wrong.
#[track_caller]
fn is_circle(files: &[(&str, &str)]) {
    assert_eq!(problems(files), CIRCLE);
}

#[track_caller]
fn is_clean(files: &[(&str, &str)]) {
    assert_eq!(problems(files), "");
}

const LIB: (&str, &str) = ("low/src/lib.rs", "mod a; mod b;");
const A: (&str, &str) = ("low/src/a.rs", "use crate::b::B; pub struct A(B);");

#[test]
fn imports_in_one_direction_are_clean() {
    is_clean(&[LIB, A, ("low/src/b.rs", "pub struct B;")]);
}

#[test]
fn a_circle_of_two_files_is_found() {
    is_circle(&[
        LIB,
        A,
        ("low/src/b.rs", "use super::a::A; pub struct B(Option<A>);"),
    ]);
}

#[test]
fn a_reexport_counts_against_the_file_that_defines() {
    for lib in [
        "mod a; mod b; pub use a::A;",
        "mod a; mod b; pub(crate) use self::a::*;",
        "mod a; mod b; pub mod facade { pub use crate::a::A as Same; } pub use facade::Same as A;",
        "families! { a::A, b::B }",
    ] {
        let b = ("low/src/b.rs", "use crate::A; pub struct B(Option<A>);");
        is_circle(&[("low/src/lib.rs", lib), A, b]);
    }
}

#[test]
fn a_parent_depends_on_what_it_reexports_only_if_it_uses_it() {
    let child = ("low/src/a/x.rs", "use super::A; pub struct X(A);");
    let lib = ("low/src/lib.rs", "mod a;");
    let a = "mod x; pub use x::X; pub struct A;";
    is_clean(&[lib, ("low/src/a.rs", a), child]);
    for own in [
        "fn f(x: &X) {}",
        "fn f() { g::<x::X>(); }",
        "fn f() { m!(X) }",
    ] {
        let text = format!("{a} {own}");
        let found = problems(&[lib, ("low/src/a.rs", &text), child]);
        assert!(found.starts_with("circle of 2 files:"), "{own}: {found}");
    }
    // A variable that has the name of a function.
    let a = "mod x; pub use x::x; pub struct A; fn f(x: u8) -> u8 { x }";
    let child = ("low/src/a/x.rs", "use super::A; pub fn x(a: A) {}");
    is_clean(&[lib, ("low/src/a.rs", a), child]);
}

#[test]
fn files_that_only_a_macro_names_are_modules_by_their_place() {
    let lib = ("low/src/lib.rs", "mod a;");
    let a = ("low/src/a.rs", "families! { x }\npub struct A;");
    let x = ("low/src/a/x.rs", "use super::y::Y; pub struct X;");
    let y = ("low/src/a/y.rs", "use super::x::X; pub struct Y;");
    let found = problems(&[lib, a, x, y]);
    assert!(
        found.contains("a/x.rs → crates/low/src/a/y.rs: Y"),
        "{found}"
    );
}

#[test]
fn modules_elsewhere_are_followed() {
    let lib = ("low/src/lib.rs", "#[path = \"other/b.rs\"] mod b; mod a;");
    let a = ("low/src/a/mod.rs", "use crate::b::B; pub struct A;");
    let b = ("low/src/other/b.rs", "use crate::a::A; pub struct B;");
    let found = problems(&[lib, a, b]);
    assert!(
        found.contains("a/mod.rs → crates/low/src/other/b.rs: B"),
        "{found}"
    );
}

#[test]
fn an_upward_import_is_found_across_crates_too() {
    let lib = ("low/src/lib.rs", "mod a; pub use a::A;");
    let a = ("low/src/a.rs", "use high::Up; pub struct A;");
    let high = ("high/src/lib.rs", "mod up; pub use up::Up;");
    let up = ("high/src/up.rs", "pub struct Up;");
    assert_eq!(
        problems(&[lib, a, high, up]),
        "upward: crates/low/src/a.rs (low) → crates/high/src/up.rs (high): Up\n"
    );
    let a = ("low/src/a.rs", "pub struct A;");
    let up = ("high/src/up.rs", "pub struct Up(low::A);");
    is_clean(&[lib, a, high, up]);
}

#[test]
fn an_upward_import_within_a_crate_is_found() {
    let b = ("low/src/b.rs", "pub struct B;");
    let rows = "| top | `crates/low/src/` | the rest |\n| b | `crates/low/src/b/` | B |\n";
    assert_eq!(problems_with(&[LIB, A, b], rows), "");
    let rows = "| top | `crates/low/src/` | the rest |\n| a | `crates/low/src/a.rs` | A |\n";
    let found = problems_with(&[LIB, A, b], rows);
    assert_eq!(
        found,
        "upward: crates/low/src/a.rs (a) → crates/low/src/b.rs (top): B\n"
    );
}

#[test]
fn every_file_is_in_exactly_one_layer() {
    let b = ("low/src/b.rs", "pub struct B;");
    let found = problems_with(
        &[LIB, A, b],
        "| one | `crates/*/src/{lib,a}.rs` | files |\n",
    );
    assert_eq!(found, "crates/low/src/b.rs is in no layer\n");
    let rows = "| one | `crates/low/src/` | all |\n| two | `crates/low/src/` | all |\n";
    let found = problems_with(&[LIB], rows);
    assert_eq!(found, "crates/low/src/lib.rs is in two layers\n");
    let rows = "| one | `crates/low/src/`, `crates/low/src/c/` | all |\n";
    let found = problems_with(&[LIB], rows);
    assert_eq!(
        found,
        "the layer one names crates/low/src/c/, where there are no files\n"
    );
}

#[test]
fn exceptions_name_circles_that_exist() {
    let b = ("low/src/b.rs", "use crate::a::A; pub struct B;");
    let row = "| one | `crates/low/src/` | all |\n\n";
    let allowed = format!("{row}- mutual recursion: `crates/low/src/{{a,b}}.rs`\n");
    assert_eq!(problems_with(&[LIB, A, b], &allowed), "");
    let stale = "there is no circle for the exception \"mutual recursion\"; remove it\n";
    let clean = ("low/src/b.rs", "pub struct B;");
    assert_eq!(problems_with(&[LIB, A, clean], &allowed), stale);
    // The files have to be exactly those of the circle.
    let wider = format!("{row}- mutual recursion: `crates/low/src/{{a,b,lib}}.rs`\n");
    assert_eq!(
        problems_with(&[LIB, A, b], &wider),
        format!("{CIRCLE}{stale}")
    );
}

#[test]
fn a_table_that_cannot_be_read_is_refused() {
    for document in [
        "no table",
        "<!-- layers -->",
        "<!-- layers --> <!-- /layers -->",
        "<!-- layers -->\n| a | |\n<!-- /layers -->",
        "<!-- layers -->\n| a | `b/` |\n\n- no files\n<!-- /layers -->",
    ] {
        assert!(Table::parse(document).is_err(), "{document}");
    }
}

#[test]
fn a_file_that_is_not_rust_is_a_problem() {
    let found = problems(&[LIB, A, ("low/src/b.rs", "struct")]);
    assert!(
        found.starts_with("crates/low/src/b.rs is not Rust: "),
        "{found}"
    );
}
