//! Progress bars on standard error: only on a terminal, removed at the end.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over the bytes of a file, with a message (items and their rate) that the caller sets.
pub fn over_bytes(total_bytes: u64) -> ProgressBar {
    styled(
        ProgressBar::new(total_bytes),
        "{bar:30} {bytes}/{total_bytes} ({bytes_per_sec}) {msg}, {eta} left",
    )
}

/// A bar over items, for work with a known count.
pub fn over_items(total: u64, what: &'static str) -> ProgressBar {
    let bar =
        styled(ProgressBar::new(total), "{msg:22} {bar:30} {human_pos}/{human_len} ({per_sec}), {eta} left");
    bar.with_message(what)
}

/// A bar over seconds, for work with a fixed duration.
pub fn over_seconds(total: u64, what: &'static str) -> ProgressBar {
    styled(ProgressBar::new(total), "{msg:22} {bar:30} {pos}/{len} s").with_message(what)
}

/// A spinner over bytes or items, for work of unknown length.
pub fn endless() -> ProgressBar {
    styled(ProgressBar::new_spinner(), "{spinner} {bytes} {msg} in {elapsed}")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Items and their rate, in the form of the bars.
pub fn rate(items: u64, elapsed: std::time::Duration) -> String {
    let a_second = items as f64 / elapsed.as_secs_f64().max(1e-9);
    format!("{} items, {}/s", crate::text::count(items), crate::text::count(a_second as u64))
}
