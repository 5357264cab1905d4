//! Results as tables of text, for people.

use super::bars::measured;
use super::results::{Line, Measured};
use super::rows::all_rows;

/// The line that reports a row once it is measured.
pub(super) fn brief(line: &Line) -> String {
    match line {
        Line::Doing(what) => what.clone(),
        Line::Measured(one) if !one.is_done() => format!("{}: {}", one.row, one.remarks.join("; ")),
        Line::Measured(one) => {
            let wrong = if one.wrong == 0 { String::new() } else { format!(", {} WRONG", one.wrong) };
            let latency = one.latency_ns.map_or_else(String::new, |latency| {
                format!(", p50 {}, p99 {}", time(latency.p50), time(latency.p99))
            });
            format!("{}: {} a second{latency}{wrong}", one.row, count(one.rate()))
        }
        other => format!("{other:?}"),
    }
}

/// The median of some numbers, which it sorts; `None` if there are none.
pub(super) fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let (low, high) = (numbers.get(numbers.len().checked_sub(1)? / 2)?, numbers.get(numbers.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Operations a second of a store in a row, the median of its runs.
pub(super) fn rate(lines: &[Line], row: &str, store: &str) -> Option<f64> {
    let all = measured(lines).filter(|one| one.row == row && one.store == store && one.is_done());
    median(&mut all.map(Measured::rate).collect::<Vec<f64>>())
}

/// Every measured row, in order, with the figures of each store.
pub(super) fn tables(lines: &[Line]) -> String {
    let mut text = String::new();
    for row in all_rows() {
        let of_row: Vec<&Measured> = measured(lines).filter(|one| one.row == row).collect();
        let mut stores: Vec<&str> = of_row.iter().map(|one| one.store.as_str()).collect();
        stores.sort_unstable();
        stores.dedup();
        let cells = stores.iter().map(|store| {
            let all: Vec<&Measured> = of_row.iter().copied().filter(|one| one.store == *store).collect();
            cells(store, &all)
        });
        let cells: Vec<Vec<String>> = cells.collect();
        if !cells.is_empty() {
            text.push_str(&format!("\n{row}\n{}", aligned(&HEAD, &cells)));
        }
    }
    text
}

/// The columns of a row's table.
pub(super) const HEAD: [&str; 15] = [
    "store",
    "a second",
    "least to most",
    "p50",
    "p99",
    "p99.9",
    "p99.99",
    "longest",
    "reads",
    "KiB read",
    "4 KiB read",
    "written, w/o log",
    "CPU s/M",
    "anon + file, peak MiB",
    "disk/live",
];

/// The figures of a store in a row: medians of its runs.
pub(super) fn cells(label: &str, all: &[&Measured]) -> Vec<String> {
    let of = |figure: &dyn Fn(&Measured) -> Option<f64>| {
        median(&mut all.iter().filter_map(|one| figure(one)).collect::<Vec<f64>>())
    };
    let rates: Vec<f64> = all.iter().map(|one| one.rate()).collect();
    let bound = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick).unwrap_or(0.0);
    let latency = |pick: fn(&super::record::Latency) -> u64| {
        known(of(&|one| Some(pick(one.latency_ns.as_ref()?) as f64)), |ns| time(ns as u64))
    };
    let written = |one: &Measured| one.amplification_with_log.or(one.amplification_by_kernel);
    let mib = |bytes: Option<f64>| known(bytes, |bytes| format!("{:.0}", bytes / f64::from(1 << 20)));
    vec![
        label.to_owned(),
        known(of(&|one| Some(one.rate())), count),
        format!("{} to {}", count(bound(f64::min)), count(bound(f64::max))),
        latency(|one| one.p50),
        latency(|one| one.p99),
        latency(|one| one.p999),
        latency(|one| one.p9999),
        latency(|one| one.max),
        known(of(&|one| one.device_reads), |reads| format!("{reads:.3}")),
        known(of(&|one| one.device_read_bytes), |bytes| format!("{:.2}", bytes / 1024.0)),
        known(of(&|one| one.kernel_reads), |reads| format!("{reads:.3}")),
        format!(
            "{}, {}",
            known(of(&written), |ratio| format!("{ratio:.2}")),
            known(of(&|one| one.amplification_without_log), |ratio| format!("{ratio:.2}"))
        ),
        known(of(&|one| Some(one.cpu_seconds_a_million)), |seconds| format!("{seconds:.2}")),
        format!(
            "{} + {}, {}",
            mib(of(&|one| Some(one.anonymous_bytes as f64))),
            mib(of(&|one| Some(one.file_bytes as f64))),
            mib(of(&|one| Some(one.peak_bytes as f64)))
        ),
        known(of(&Measured::space), |ratio| format!("{ratio:.2}")),
    ]
}

/// A figure, or a dash where there is none.
pub(super) fn known(figure: Option<f64>, tell: impl FnOnce(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), tell)
}

/// A rate in three digits.
pub(super) fn count(number: f64) -> String {
    match number {
        n if n >= 999_500.0 => format!("{:.2} M", n / 1e6),
        n if n >= 99_950.0 => format!("{:.0} K", n / 1e3),
        n if n >= 999.5 => format!("{:.1} K", n / 1e3),
        n if n >= 99.95 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// Nanoseconds in a unit that fits.
pub(super) fn time(ns: u64) -> String {
    match ns as f64 {
        n if n >= 1e9 => format!("{:.2} s", n / 1e9),
        n if n >= 1e6 => format!("{:.1} ms", n / 1e6),
        n if n >= 1e3 => format!("{:.1} us", n / 1e3),
        n => format!("{n:.0} ns"),
    }
}

fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width =
        |column: usize| all.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in all {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        text.push_str(cells.collect::<Vec<String>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Medians of odd and even counts, and of nothing.
    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    /// Numbers and times have units that fit.
    #[test]
    fn units_fit() {
        let counts = [12.34, 999.6, 12_345.0, 123_456.0, 1_234_567.0].map(count);
        assert_eq!(counts, ["12.3", "1.0 K", "12.3 K", "123 K", "1.23 M"]);
        assert_eq!([999, 1500, 2_500_000, 3_000_000_000].map(time), ["999 ns", "1.5 us", "2.5 ms", "3.00 s"]);
    }

    /// A row has the median of each store's runs, and wrong answers stand in capitals.
    #[test]
    fn rows_are_told() {
        let one = |store: &str, operations, wrong| {
            let row = super::super::rows::LOAD.to_owned();
            let measured =
                Measured { row, store: store.into(), operations, seconds: 1.0, wrong, ..Measured::default() };
            Line::Measured(Box::new(measured))
        };
        let text = tables(&[one("a", 100, 0), one("a", 300, 0), one("a", 200, 0), one("b", 50, 0)]);
        assert!(text.contains("a       200     100 to 300"), "{text}");
        assert!(text.contains("50.0"), "{text}");
        assert!(brief(&one("a", 1, 3)).contains("3 WRONG"));
    }
}
