//! Drawings with captions and names of lines.

use posenc_onnx::report::Line;

use super::chart::Chart;
use super::escape::escape;
use super::frame::COLORS;

/// A figure with a caption under it, and what explains it; the caption describes it to those who do not see it.
pub(super) fn figure(caption: &str, content: &str, about: &str) -> String {
    let caption = escape(caption);
    format!(
        "<figure role=\"group\" aria-label=\"{caption}\">\n{content}\n<figcaption>{caption}</figcaption>\n\
         {about}</figure>\n"
    )
}

/// A chart of lines, with the names of its lines.
pub(crate) fn lines(caption: &str, chart: &Chart<'_>) -> Option<String> {
    let key = |(i, line): (usize, &Line)| {
        let nothing = match chart.shows(line) {
            true => "",
            false => " (0, which the axis does not have)",
        };
        let again = if i < COLORS { "" } else { " again" };
        format!(
            "<li><span class=\"key s{}{again}\"></span>{}{nothing}</li>\n",
            i % COLORS,
            escape(&line.name)
        )
    };
    let all = chart.lines.iter().enumerate();
    let legend: String = all
        .filter(|(_, line)| !line.name.is_empty())
        .map(key)
        .collect();
    let legend = match legend.is_empty() {
        true => legend,
        false => format!("<ul>\n{legend}</ul>\n"),
    };
    Some(figure(caption, &chart.svg(caption)?, &legend))
}
