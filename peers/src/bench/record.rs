//! The record of a thread: the latency of each call, the checks of answers, and the first wrong answer.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use trine_workload::keys::Shape;

use super::engines::Found;
use crate::engines::{Answer, told};

const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Latencies of calls, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) p9999: u64,
    pub(super) max: u64,
}

/// The expected outcome of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// The key's own value, of any length. If no store was asked, a value of `made_bytes` is made, as a check
    /// does.
    Value {
        made_bytes: usize,
    },
    Nothing,
}

pub(super) struct Record {
    latency: Histogram<u64>,
    pub(super) operations: u64,
    /// Bytes of keys and values, written.
    pub(super) put_bytes: u64,
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
}

impl Record {
    pub(super) fn new() -> Answer<Record> {
        let latency = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(told)?;
        Ok(Record { latency, operations: 0, put_bytes: 0, wrong: 0, first_wrong: None })
    }

    /// Records one call that did so many operations.
    pub(super) fn take(&mut self, operations: u64, ns: u64) {
        self.operations += operations;
        self.latency.saturating_record(ns.max(1));
    }

    pub(super) fn add(&mut self, other: Record) -> Answer<()> {
        self.operations += other.operations;
        self.put_bytes += other.put_bytes;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.latency.add(other.latency).map_err(told)
    }

    /// `None` if there were too few calls for quantiles.
    pub(super) fn latency(&self) -> Option<Latency> {
        let at = |quantile| self.latency.value_at_quantile(quantile);
        (self.latency.len() > 1).then(|| Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.latency.max(),
        })
    }

    pub(super) fn puts(&mut self, key: &[u8], value: &[u8]) {
        self.put_bytes += (key.len() + value.len()) as u64;
    }

    pub(super) fn is_wrong(&mut self, describe: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(describe);
    }

    /// Checks the outcome of a get; `spare` is the buffer of a value that is made because no store was asked.
    pub(super) fn check(
        &mut self,
        shape: Shape,
        key: &[u8],
        (found, value): (Found, &[u8]),
        expected: Expected,
        spare: &mut Vec<u8>,
    ) {
        match (found, expected) {
            (Found::Value, Expected::Nothing) => {
                self.is_wrong(|| format!("key {} was never put, and has a value", hex(key)));
            }
            (Found::Nothing, Expected::Value { .. }) => {
                self.is_wrong(|| format!("key {} is missing", hex(key)));
            }
            (Found::Value, Expected::Value { .. }) if !shape.is_value(key, value) => {
                self.is_wrong(|| format!("key {} has a value that is not its own", hex(key)));
            }
            // The cost of a check: the value is made, and not used.
            (Found::Unasked, Expected::Value { made_bytes }) => {
                shape.value(key, made_bytes, spare);
                std::hint::black_box(spare);
            }
            _ => {}
        }
    }
}

/// Checks the items of a scan: keys ascend, values are those of their keys.
pub(super) struct InOrder<'a> {
    pub(super) shape: Shape,
    /// The key before, in a reused buffer; empty at the start.
    pub(super) previous: &'a mut Vec<u8>,
    pub(super) record: &'a mut Record,
}

impl InOrder<'_> {
    pub(super) fn look(&mut self, key: &[u8], value: &[u8]) {
        if !self.previous.is_empty() && self.previous.as_slice() >= key {
            self.record.is_wrong(|| format!("key {} does not follow the one before it", hex(key)));
        }
        if !self.shape.is_value(key, value) {
            self.record.is_wrong(|| format!("key {} has a value that is not its own", hex(key)));
        }
        self.previous.clear();
        self.previous.extend_from_slice(key);
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::SHAPE;
    use super::*;

    fn item(number: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        SHAPE.key(number, &mut key);
        SHAPE.value(&key, 100, &mut value);
        (key, value)
    }

    /// Every impossible answer is counted, and no other.
    #[test]
    fn wrong_answers_are_counted() {
        let ((key, value), (_, other)) = (item(1), item(2));
        let present = Expected::Value { made_bytes: 100 };
        let cases = [
            (Found::Value, &value, present, 0),
            (Found::Value, &other, present, 1),
            (Found::Value, &value, Expected::Nothing, 1),
            (Found::Nothing, &value, present, 1),
            (Found::Nothing, &value, Expected::Nothing, 0),
            (Found::Unasked, &value, present, 0),
        ];
        for (found, value, expected, wrong) in cases {
            let mut record = Record::new().expect("a histogram");
            record.check(SHAPE, &key, (found, value), expected, &mut Vec::new());
            assert_eq!(record.wrong, wrong, "{found:?} {expected:?}");
            assert_eq!(record.first_wrong.is_some(), wrong > 0);
        }
    }

    /// A scan that repeats a key, goes back or gives another key's value is counted.
    #[test]
    fn wrong_scans_are_counted() {
        for (numbers, wrong) in [(vec![1, 2, 9], 0), (vec![2, 1, 3], 1), (vec![4, 4], 1)] {
            let (mut previous, mut record) = (Vec::new(), Record::new().expect("a histogram"));
            let mut order = InOrder { shape: SHAPE, previous: &mut previous, record: &mut record };
            for number in numbers {
                let (key, value) = item(number);
                order.look(&key, &value);
            }
            assert_eq!(record.wrong, wrong);
        }
        let (mut previous, mut record) = (Vec::new(), Record::new().expect("a histogram"));
        let mut order = InOrder { shape: SHAPE, previous: &mut previous, record: &mut record };
        order.look(&item(1).0, &item(2).1);
        assert_eq!(record.wrong, 1);
    }

    /// Records of threads add up.
    #[test]
    fn records_add_up() {
        let (mut one, mut other) = (Record::new().expect("a histogram"), Record::new().expect("another"));
        one.take(1, 100);
        assert_eq!(one.latency(), None);
        other.take(10, 300);
        other.is_wrong(|| "this".to_owned());
        one.add(other).expect("it adds");
        let latency = one.latency().expect("there are two calls");
        assert_eq!((one.operations, one.wrong, latency.p50, latency.max), (11, 1, 100, 300));
    }
}
