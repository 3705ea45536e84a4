//! Reports as web pages: one file without scripts or external resources, light or dark as the reader has it.

mod axis;
mod chart;
mod escape;
mod figure;
mod figures;
mod frame;
mod made;
mod picture;

pub(crate) use axis::Scale;
pub(crate) use chart::{Chart, Mark};
pub(crate) use figure::lines;
pub(crate) use figures::{figures, new_length, pairs};
pub(crate) use made::Made;

use crate::columns::{Align, Cell, Columns};
use escape::escape;

const STYLE: &str = include_str!("page/style.css");

/// A page in the making.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
    /// The level of the next heading.
    level: usize,
    /// The last heading, which names the tables under it.
    under: String,
}

impl Page {
    /// An empty page.
    pub(crate) fn new(title: &str) -> Self {
        let title = escape(title);
        Self {
            under: title.clone(),
            title,
            body: String::new(),
            level: 2,
        }
    }

    /// A heading; what follows belongs to it.
    pub(crate) fn heading(&mut self, text: &str) {
        self.under = escape(text);
        let Self { level, under, .. } = &*self;
        self.body += &format!("<h{level}>{under}</h{level}>\n");
    }

    /// A part with its heading, and with headings of its own.
    pub(crate) fn part(&mut self, text: &str, fill: impl FnOnce(&mut Self)) {
        self.heading(text);
        self.level += 1;
        fill(self);
        self.level -= 1;
    }

    /// A part that links of the page lead to.
    pub(crate) fn chapter(&mut self, number: usize, text: &str, fill: impl FnOnce(&mut Self)) {
        self.body += &format!("<section class=\"chapter\" id=\"{}\">\n", chapter(number));
        self.part(text, fill);
        self.body += "</section>\n";
    }

    /// What is on another page, without its title.
    pub(crate) fn append(&mut self, other: Self) {
        self.body += &other.body;
    }

    /// A paragraph, of a class of the style sheet or of none; nothing without text.
    pub(crate) fn paragraph(&mut self, class: &str, text: &str) {
        let text = escape(text.trim_end()).replace('\n', "<br>\n");
        match (class, &text[..]) {
            (_, "") => {}
            ("", _) => self.body += &format!("<p>{text}</p>\n"),
            (class, _) => self.body += &format!("<p class=\"{class}\">{text}</p>\n"),
        }
    }

    /// A table; nothing without rows.
    pub(crate) fn table(&mut self, columns: &Columns) {
        self.rows(columns, |_, words| words);
    }

    /// A table whose rows lead to the chapters of the same numbers.
    pub(crate) fn contents(&mut self, columns: &Columns) {
        let link = |row, words| format!("<a href=\"#{}\">{words}</a>", chapter(row));
        self.rows(columns, link);
    }

    /// A table; what is in the first cell of a row is changed.
    fn rows(&mut self, columns: &Columns, first: impl Fn(usize, String) -> String) {
        if columns.is_empty() {
            return;
        }
        let headings: Vec<(&str, Align)> = columns.headings().collect();
        let cell = |row: usize, column: usize, cell: &Cell| {
            let class = match (cell.is_ok(), headings[column].1) {
                (Some(true), _) => " class=\"ok\"",
                (Some(false), _) => " class=\"fail\"",
                (None, Align::Right) => " class=\"n\"",
                (None, Align::Left) => "",
            };
            let words = escape(cell.words());
            let words = match column {
                0 => first(row, words),
                _ => words,
            };
            format!("<td{class}>{words}</td>")
        };
        let row = |(row, cells): (usize, Vec<&Cell>)| {
            let cells = cells.into_iter().enumerate();
            let cells: String = cells.map(|(column, c)| cell(row, column, c)).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = columns.rows().enumerate().map(row).collect();
        let heading = |(name, align): &(&str, Align)| {
            let class = match align {
                Align::Right => " class=\"n\"",
                Align::Left => "",
            };
            format!("<th scope=\"col\"{class}>{}</th>", escape(name))
        };
        let headings: String = headings.iter().map(heading).collect();
        // Wide tables scroll, by keys too.
        self.body += &format!(
            "<div class=\"wide\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n<table>\n\
             <thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n",
            self.under
        );
    }

    /// What is shown on request.
    pub(crate) fn details(&mut self, summary: &str, fill: impl FnOnce(&mut Self)) {
        self.body += &format!("<details>\n<summary>{}</summary>\n", escape(summary));
        fill(self);
        self.body += "</details>\n";
    }

    /// Charts and pictures next to each other; nothing without any.
    pub(crate) fn figures(&mut self, all: impl IntoIterator<Item = String>) {
        let all: String = all.into_iter().collect();
        if !all.is_empty() {
            self.body += &format!("<div class=\"figures\">\n{all}</div>\n");
        }
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        let Self { title, body, .. } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</html>\n"
        )
    }
}

/// The name by which links lead to a chapter.
fn chapter(number: usize) -> String {
    format!("model-{}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the first attribute of this name.
    pub(super) fn attribute<'a>(html: &'a str, name: &str) -> &'a str {
        let value = html.split(&format!("{name}=\"")).nth(1);
        value.and_then(|rest| rest.split('"').next()).unwrap()
    }

    #[test]
    fn a_page_needs_no_other_file_and_escapes_names() {
        let mut page = Page::new("m.onnx & \"other\"");
        let mut columns = Columns::new(&[("output", Align::Left), ("", Align::Left)]);
        columns.row([Cell::from("logits <a&b>".to_owned()), Cell::verdict(false)]);
        page.heading("<Runs>");
        page.details("all of 'em", |page| page.table(&columns));
        let page = page.finish();
        for part in [
            "<title>m.onnx &amp; &quot;other&quot;</title>",
            "<td>logits &lt;a&amp;b&gt;</td><td class=\"fail\">FAIL</td>",
            "<h2>&lt;Runs&gt;</h2>",
            "<summary>all of &#39;em</summary>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for outside in ["<script", "http", "src=", "href=", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn links_lead_to_chapters_whose_headings_are_lower() {
        let mut page = Page::new("all");
        let mut columns = Columns::new(&[("model", Align::Left)]);
        columns.row(["a<.onnx".to_owned()]);
        columns.row(["b.onnx".to_owned()]);
        page.contents(&columns);
        page.chapter(0, "a<.onnx", |page| page.heading("Runs"));
        page.heading("After");
        let page = page.finish();
        for part in [
            "<a href=\"#model-1\">a&lt;.onnx</a>",
            "<a href=\"#model-2\">b.onnx</a>",
            "<section class=\"chapter\" id=\"model-1\">\n<h2>a&lt;.onnx</h2>\n<h3>Runs</h3>\n</section>\n<h2>After</h2>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
