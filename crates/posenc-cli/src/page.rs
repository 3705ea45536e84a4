//! Reports as web pages: one file without scripts or external resources, light or dark as the reader has it.

mod chart;
mod escape;
mod figure;
mod figures;
mod picture;

pub(crate) use chart::{Chart, Mark, Scale};
pub(crate) use figure::lines;
pub(crate) use figures::{figures, pairs};

use crate::columns::{Align, Cell, Columns};
use escape::escape;

const STYLE: &str = include_str!("page/style.css");

/// A page in the making.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: escape(title),
            body: String::new(),
        }
    }

    /// A heading; what follows belongs to it.
    pub(crate) fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    /// A paragraph, of a class of the style sheet or of none.
    pub(crate) fn paragraph(&mut self, class: &str, text: &str) {
        let text = escape(text).replace('\n', "<br>\n");
        match class {
            "" => self.body += &format!("<p>{text}</p>\n"),
            class => self.body += &format!("<p class=\"{class}\">{text}</p>\n"),
        }
    }

    /// A table; nothing without rows.
    pub(crate) fn table(&mut self, columns: &Columns) {
        if columns.is_empty() {
            return;
        }
        let headings: Vec<(&str, Align)> = columns.headings().collect();
        let cell = |(cell, (_, align)): (&Cell, &(&str, Align))| {
            let class = match (cell.is_ok(), align) {
                (Some(true), _) => " class=\"ok\"",
                (Some(false), _) => " class=\"fail\"",
                (None, Align::Right) => " class=\"n\"",
                (None, Align::Left) => "",
            };
            format!("<td{class}>{}</td>", escape(cell.words()))
        };
        let row = |cells: Vec<&Cell>| {
            let cells: String = cells.into_iter().zip(&headings).map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = columns.rows().map(row).collect();
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
            "<div class=\"wide\" tabindex=\"0\">\n<table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n\
             {rows}</tbody>\n</table>\n</div>\n"
        );
    }

    /// What is shown on request.
    pub(crate) fn details(&mut self, summary: &str, fill: impl FnOnce(&mut Self)) {
        self.body += &format!("<details>\n<summary>{}</summary>\n", escape(summary));
        fill(self);
        self.body += "</details>\n";
    }

    /// Charts and pictures next to each other; nothing without any.
    pub(crate) fn figures(&mut self, all: Vec<String>) {
        if all.is_empty() {
            return;
        }
        self.body += "<div class=\"figures\">\n";
        self.body.extend(all);
        self.body += "</div>\n";
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        let Self { title, body } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
