//! A change of the graph as a diff of its text.

use std::time::Duration;

use similar::TextDiff;

use crate::terminal::Palette;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Time after which a diff may be longer than necessary.
const PATIENCE: Duration = Duration::from_secs(5);

/// The unified diff of two texts; empty where they are the same.
pub(crate) fn diff(before: &str, after: &str, names: [&str; 2], palette: Palette) -> String {
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before, after);
    let unified = diff
        .unified_diff()
        .context_radius(CONTEXT)
        .header(names[0], names[1])
        .to_string();
    unified
        .lines()
        .map(|line| {
            let line = match line.as_bytes().first() {
                _ if line.starts_with("+++") || line.starts_with("---") => palette.bold(line),
                Some(b'@') => palette.name(line),
                Some(b'+') => palette.good(line),
                Some(b'-') => palette.bad(line),
                _ => line.to_owned(),
            };
            line + "\n"
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_have_context() {
        let before = "a\nb\nc\nd\ne\nf\n";
        let after = "a\nb\nc\nD\ne\nf\n";
        let want = "--- x\n+++ y\n@@ -1,6 +1,6 @@\n a\n b\n c\n-d\n+D\n e\n f\n";
        assert_eq!(diff(before, after, ["x", "y"], Palette::Plain), want);
        assert_eq!(diff(before, before, ["x", "y"], Palette::Plain), "");
        assert!(diff(before, after, ["x", "y"], Palette::Colored).contains("\x1b[32m+D"));
    }
}
