//! Stores compared row by row, each within its run: rates, their ratios, and rows in which a peer is ahead.

use super::bars::{self, HASHED, NULL, OURS};
use super::results::{Line, Measured};
use super::rows::{NOT_HELD, all_rows, peers_row};
use super::table::{count, median, rate};

/// A row in which the best peer is faster than Trine.
pub(super) struct Behind<'a> {
    pub(super) row: &'static str,
    /// The ratio of each run, sorted: Trine's rate over that of the best peer.
    pub(super) ratios: Vec<f64>,
    /// The stores that are faster.
    pub(super) ahead: Vec<&'a str>,
    /// The faster stores that were not held to the memory of the row.
    pub(super) free: Vec<&'a str>,
}

/// Stores in the order of their measurement, but ours, `null` and RocksDB first.
pub(super) fn stores_of(lines: &[Line]) -> Vec<&str> {
    let mut stores: Vec<&str> = Vec::new();
    for one in bars::measured(lines) {
        if !stores.contains(&one.store.as_str()) {
            stores.push(&one.store);
        }
    }
    stores.sort_by_key(|store| (*store != OURS, *store != HASHED, *store == NULL, *store != "rocksdb"));
    stores
}

/// The ratio of each run: our rate in our row over another store's in theirs. Without `other`, the best
/// peer's rate is taken.
pub(super) fn ratios(lines: &[Line], (our_row, their_row): (&str, &str), other: Option<&str>) -> Vec<f64> {
    let of = |run: u64| {
        let ours = bars::find(lines, run, our_row, OURS)?.rate();
        let others = stores_of(lines).into_iter().filter(|store| match other {
            Some(other) => *store == other,
            None => bars::is_peer(store),
        });
        let others = others.filter_map(|store| bars::find(lines, run, their_row, store));
        Some(ours / others.map(Measured::rate).reduce(f64::max)?)
    };
    bars::runs(lines).into_iter().filter_map(of).collect()
}

/// The rows in which a peer is ahead, the worst first.
pub(super) fn behind(lines: &[Line]) -> Vec<Behind<'_>> {
    let mut all: Vec<Behind<'_>> = all_rows().filter_map(|row| behind_in(lines, row)).collect();
    all.sort_by(|one, other| {
        let middle = |one: &Behind<'_>| median(&mut one.ratios.clone()).unwrap_or(1.0);
        middle(one).total_cmp(&middle(other))
    });
    all
}

fn behind_in<'a>(lines: &'a [Line], row: &'static str) -> Option<Behind<'a>> {
    let rows = (row, peers_row(row));
    let is_less = |mut ratios: Vec<f64>| median(&mut ratios).is_some_and(|ratio| ratio < 1.0);
    let mut all = ratios(lines, rows, None);
    all.sort_unstable_by(f64::total_cmp);
    if !is_less(all.clone()) {
        return None;
    }
    let peers = stores_of(lines).into_iter().filter(|store| bars::is_peer(store));
    let ahead: Vec<&str> = peers.filter(|store| is_less(ratios(lines, rows, Some(store)))).collect();
    let is_free = |one: &Measured| one.row == rows.1 && one.remarks.iter().any(|remark| remark == NOT_HELD);
    let is_free = |store: &str| bars::measured(lines).any(|one| one.store == store && is_free(one));
    let free = ahead.iter().copied().filter(|store| is_free(store)).collect();
    Some(Behind { row, ratios: all, ahead, free })
}

/// The rate of each store in a row; `None` if no store has one.
pub(super) fn rates_of(lines: &[Line], stores: &[&str], row: &str) -> Option<Vec<String>> {
    let rates: Vec<Option<f64>> = stores.iter().map(|store| rate(lines, row, store)).collect();
    let told = || rates.iter().map(|rate| rate.map_or("–".to_owned(), count)).collect();
    rates.iter().any(Option::is_some).then(told)
}

pub(super) fn factor(ratios: &mut [f64]) -> String {
    median(ratios).map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×"))
}
