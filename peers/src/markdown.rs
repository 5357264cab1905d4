//! Tables of Markdown.

use std::fmt::Write;

/// A table: its heading, and rows of cells.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
