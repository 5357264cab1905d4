//! The check of a scan's items, one by one.

use trine_workload::keys::Shape;
use trine_workload::text;

use super::record::Answers;

/// Checks the items of a scan: keys ascend, and values belong to their keys.
pub(super) struct InOrder<'a> {
    pub(super) shape: Shape,
    pub(super) previous: &'a mut Vec<u8>,
    pub(super) answers: &'a mut Answers,
}

impl InOrder<'_> {
    pub(super) fn look(&mut self, key: &[u8], value: &[u8]) {
        if !self.previous.is_empty() && self.previous.as_slice() >= key {
            self.answers.wrong(|| format!("key {} does not follow the one before it", text::hex(key)));
        }
        if !self.shape.is_value(key, value) {
            self.answers.wrong(|| format!("key {} has a value that is not its own", text::hex(key)));
        }
        self.previous.clear();
        self.previous.extend_from_slice(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key out of order, a repeated key and a value of another key are each counted as wrong, and nothing
    /// else.
    #[test]
    fn wrong_items_are_counted() {
        let shape = Shape { key_bytes: 16, compressible_percent: 0 };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (numbers, wrong) in [(vec![1, 2, 9], 0), (vec![2, 1, 3], 1), (vec![4, 4], 1)] {
            let (mut previous, mut answers) = (Vec::new(), Answers::default());
            let mut order = InOrder { shape, previous: &mut previous, answers: &mut answers };
            for number in numbers {
                shape.key(number, &mut key);
                shape.value(&key, 20, &mut value);
                order.look(&key, &value);
            }
            assert_eq!(answers.wrong, wrong);
        }
        let (mut previous, mut answers) = (Vec::new(), Answers::default());
        InOrder { shape, previous: &mut previous, answers: &mut answers }.look(&key, &value[1..]);
        assert_eq!(answers.wrong, 1);
    }
}
