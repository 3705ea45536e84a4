//! The report of a verification as a web page: one file without scripts or external resources.

use posenc_onnx::report::Verify;

use super::text::{RUNS_LEGEND, SITES_LEGEND, or_dash, unchecked, verdict};
use crate::number::{fixed, rough};
use crate::terminal::Palette;

const STYLE: &str = "\
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 .5rem }
.legend { margin: 0 0 2rem; opacity: .7 }
th, td { text-align: left; padding: .3rem .8rem; border-bottom: 1px solid #8885 }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.ok { color: #2a8a3a } .fail { color: #d03030; font-weight: 600 }";

/// The page.
pub(super) fn html(report: &Verify, title: &str) -> String {
    let title = escape(title);
    let class = if report.ok { "ok" } else { "fail" };
    let verdict = escape(&verdict(report, Palette::Plain));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>\n{STYLE}\n</style>\n<h1>{title}</h1>\n<p class=\"{class}\">{verdict}</p>\n"
    );
    if !report.sites.is_empty() {
        page += "<h2>Sites</h2>\n";
        let rows = report.sites.iter().map(|s| {
            let cells = [
                word(&s.site),
                word(&s.quantity),
                number(or_dash(s.max_error, rough)),
                number(rough(s.bound)),
                mark(s.ok),
            ];
            cells.concat()
        });
        page += &table(
            &["site", "quantity", "error", "bound", ""],
            rows,
            SITES_LEGEND,
        );
    }
    if !report.runs.is_empty() {
        page += "<h2>Runs</h2>\n";
        let rows = report.runs.iter().map(|r| {
            let cells = [
                word(&r.runtime),
                word(&r.provider),
                word(&r.optimization),
                number(r.length.to_string()),
                number(r.batch.to_string()),
                word(&r.output),
                number(or_dash(r.max_abs, rough)),
                number(or_dash(r.bound, rough)),
                number(or_dash(r.cosine, |c| fixed(c, 6))),
                mark(r.ok),
                word(r.first_divergence.as_deref().unwrap_or_default()),
            ];
            cells.concat()
        });
        let headings = [
            "runtime",
            "provider",
            "optimization",
            "length",
            "batch",
            "output",
            "error",
            "bound",
            "cosine",
            "",
            "first divergence",
        ];
        page += &table(&headings, rows, RUNS_LEGEND);
    }
    for warning in &report.warnings {
        page += &format!("<p>{}</p>\n", escape(warning));
    }
    let unchecked = unchecked(report);
    if !unchecked.is_empty() {
        page += &format!("<p>{}</p>\n", escape(unchecked.trim_end()));
    }
    page + "</html>\n"
}

fn table(headings: &[&str], rows: impl Iterator<Item = String>, legend: &str) -> String {
    let headings: String = headings.iter().map(|h| format!("<th>{h}</th>")).collect();
    let rows: String = rows.map(|row| format!("<tr>{row}</tr>\n")).collect();
    let legend = escape(legend).replace('\n', "<br>\n");
    format!("<table>\n<tr>{headings}</tr>\n{rows}</table>\n<p class=\"legend\">{legend}</p>\n")
}

fn word(text: &str) -> String {
    format!("<td>{}</td>", escape(text))
}

fn number(text: String) -> String {
    format!("<td class=\"n\">{}</td>", escape(&text))
}

fn mark(ok: bool) -> String {
    let (class, word) = if ok { ("ok", "ok") } else { ("fail", "FAIL") };
    format!("<td class=\"{class}\">{word}</td>")
}

/// Names are read from models, which may be hostile.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::report;
    use super::*;

    #[test]
    fn a_page_needs_no_other_file_and_escapes_names() {
        let page = html(&report(false), "m.onnx & \"other\"");
        assert!(page.contains("logits &lt;a&amp;b&gt;"));
        assert!(page.contains("<title>m.onnx &amp; &quot;other&quot;</title>"));
        assert!(page.contains("1 of 2 comparisons out of bounds"));
        assert!(page.contains("<td class=\"n\">–</td>"));
        assert!(page.contains("–: nothing to compare with"));
        for outside in ["<script", "http", "src=", "href="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
