//! Drawings with captions and names of lines.

use posenc_onnx::report::Line;

use super::chart::{COLORS, Chart};
use super::escape::escape;

/// A figure with a caption under it; the caption describes it to those who do not see it.
pub(super) fn figure(caption: &str, content: &str, legend: &[String]) -> String {
    let caption = escape(caption);
    let key = |(i, name): (usize, &String)| {
        format!(
            "<li><span class=\"key s{}\"></span>{}</li>\n",
            i % COLORS,
            escape(name)
        )
    };
    let legend: String = legend.iter().enumerate().map(key).collect();
    let legend = match legend.is_empty() {
        true => legend,
        false => format!("<ul>\n{legend}</ul>\n"),
    };
    format!(
        "<figure role=\"group\" aria-label=\"{caption}\">\n{content}\n<figcaption>{caption}</figcaption>\n\
         {legend}</figure>\n"
    )
}

/// A chart of lines, with the names of its lines.
pub(crate) fn lines(caption: &str, chart: &Chart<'_>) -> Option<String> {
    let named = |line: &&Line| !line.name.is_empty();
    let legend: Vec<String> = chart
        .lines
        .iter()
        .filter(named)
        .map(|l| l.name.clone())
        .collect();
    Some(figure(caption, &chart.svg(caption)?, &legend))
}
