//! What counts as an import.

use super::{A, LIB, is_circle, is_clean, problems, problems_with};

#[test]
fn every_form_of_a_path_is_an_import() {
    for text in [
        "use crate::{a::{self, A as Other}}; pub struct B;",
        "pub struct B; fn f() { use crate::a::A; }",
        "pub struct B; fn f() { let _ = crate::a::A::new(); }",
        "pub struct B; impl crate::a::A for B {}",
        "pub struct B; fn f<T: super::a::A>() {}",
        "pub struct B; fn f(x: u8) { match x { crate::a::A => {} _ => {} } }",
        "use super::a; pub struct B(a::A);",
        "use super::a as other; pub struct B(other::A);",
        "mod inner { use super::super::a::A; } pub struct B;",
        "#[serde(with = \"crate::a::A\")] pub struct B;",
        "#[arg(value_parser = crate::a::A)] pub struct B;",
    ] {
        is_circle(&[LIB, A, ("low/src/b.rs", text)]);
    }
}

#[test]
fn the_arguments_of_macros_are_read() {
    for text in [
        "pub struct B; fn f() { println!(\"{}\", crate::a::A::new()); }",
        "use super::a; pub struct B; fn f() { vec![1, a::A]; }",
        "pub struct B; macro_rules! m { ($x:expr) => { $crate::a::A::new($x) }; }",
        "pub struct B; declare! { use crate::a::{A}; }",
    ] {
        is_circle(&[LIB, A, ("low/src/b.rs", text)]);
    }
}

#[test]
fn fields_variables_and_documentation_are_no_imports() {
    // A mention of `A` would be an import, because it is re-exported here.
    let own = "pub use crate::a::A; pub struct B;";
    for text in [
        "fn f() { println!(\"{}\", x.A); }",
        "macro_rules! m { ($A:expr) => { $A }; }",
        "make! { A: 1 }",
        "/// [`crate::a::A`]\nfn g() {}",
        "pub(in crate::a::A) struct C;",
        "fn f(x: C) { x.A(); }",
    ] {
        is_clean(&[LIB, A, ("low/src/b.rs", &format!("{own} {text}"))]);
    }
    for text in [
        "make! { A }",
        "make! { A::<u8> }",
        "make! { 0..A }",
        "fn f(a: A) {}",
    ] {
        is_circle(&[LIB, A, ("low/src/b.rs", &format!("{own} {text}"))]);
    }
}

#[test]
fn all_names_of_a_module_are_an_import() {
    let b = ("low/src/b.rs", "use super::a::*; pub struct B(A);");
    let found = problems(&[LIB, A, b]);
    assert!(
        found.contains("b.rs → crates/low/src/a.rs: *, A\n"),
        "{found}"
    );
}

#[test]
fn code_for_tests_does_not_count() {
    for text in [
        "pub struct B; #[cfg(test)] use crate::a::A;",
        "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
        "pub struct B; #[cfg(all(test, unix))] fn f() { crate::a::A; }",
        "pub struct B; impl B { #[cfg(test)] fn f() { crate::a::A; } }",
        "pub struct B; #[test] fn f() { crate::a::A; }",
        "pub struct B; fn f() { #[cfg(test)] let x = crate::a::A; }",
    ] {
        is_clean(&[LIB, A, ("low/src/b.rs", text)]);
    }
    let b = ("low/src/b.rs", "pub struct B; #[cfg(test)] mod tests;");
    let tests = ("low/src/b/tests.rs", "mod more; use crate::a::A;");
    let more = ("low/src/b/tests/more.rs", "use crate::a::A;");
    // A file for tests needs no layer either.
    let rows = "| all | `crates/low/src/{lib,a,b}.rs` | files |\n";
    assert_eq!(problems_with(&[LIB, A, b, tests, more], rows), "");
    is_circle(&[
        LIB,
        A,
        (
            "low/src/b.rs",
            "#[cfg(not(test))] use crate::a::A; pub struct B;",
        ),
    ]);
}
