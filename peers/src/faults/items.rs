//! The store that is damaged: 400 keys, half of them written after the last flush.
//!
//! Before the flush there are 240 keys. After it, the last 40 of these are deleted, 25 get another value, and
//! 200 new keys are put. So a lost log shows as missing keys, as old values and as deleted keys that are
//! back.

use std::collections::BTreeMap;
use std::path::Path;

use super::image::Image;
use crate::engines::{Answer, Change, Peer, Purpose, Until, told};

const BEFORE_FLUSH: u32 = 240;
const DELETED: std::ops::Range<u32> = 200..240;
const KEYS: u32 = 440;
/// The store's files are copied each time that so many keys were written.
const MOMENT_KEYS: u32 = 40;

fn key(index: u32) -> Vec<u8> {
    // In no order, so that keys from before and after the flush share one range.
    format!("key-{:08x}", index.wrapping_mul(0x9e37_79b1)).into_bytes()
}

fn value(index: u32, version: u32) -> Vec<u8> {
    let length = 20 + (index as usize * 7) % 160;
    format!("value {index} of version {version}, ").into_bytes().into_iter().cycle().take(length).collect()
}

/// Every key that the store ever had, with its final value; `None` if it was deleted.
pub(super) fn expected() -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let at_the_end = |index: u32| {
        let version = u32::from(index < DELETED.start && index.is_multiple_of(8));
        (!DELETED.contains(&index)).then(|| value(index, version))
    };
    (0..KEYS).map(|index| (key(index), at_the_end(index))).collect()
}

/// Keys that never existed, between those that did.
pub(super) fn absent() -> impl Iterator<Item = Vec<u8>> {
    (0..KEYS).step_by(20).map(|index| [key(index).as_slice(), b"-"].concat())
}

/// The files of the closed store, and its files at earlier moments, each as the system had them then.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) image: Image,
    pub(super) earlier: Vec<Image>,
}

/// Makes the store in `directory`, which is empty.
pub(super) fn make(peer: &Peer, directory: &Path) -> Answer<Made> {
    std::fs::create_dir_all(directory).map_err(told)?;
    let mut engine = (peer.open)(directory, Purpose::Make)?;
    let mut earlier = Vec::new();
    let mut written = 0;
    let mut write = |engine: &mut dyn crate::engines::Engine, change: Change| -> Answer<()> {
        engine.write(&[change], Until::Synced)?;
        written += 1;
        if written % MOMENT_KEYS == 0 {
            earlier.push(Image::read(directory)?);
        }
        Ok(())
    };
    for index in 0..BEFORE_FLUSH {
        write(engine.as_mut(), Change::Put(key(index), value(index, 0)))?;
    }
    engine.flush()?;
    for index in 0..KEYS {
        if index >= BEFORE_FLUSH {
            write(engine.as_mut(), Change::Put(key(index), value(index, 0)))?;
        } else if DELETED.contains(&index) {
            write(engine.as_mut(), Change::Delete(key(index)))?;
        } else if index.is_multiple_of(8) {
            write(engine.as_mut(), Change::Put(key(index), value(index, 1)))?;
        }
    }
    engine.close()?;
    Ok(Made { image: Image::read(directory)?, earlier })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are 400 keys at the end and 40 deleted ones, and no absent key is among them.
    #[test]
    fn there_are_400_keys() {
        let all = expected();
        assert_eq!(all.values().filter(|value| value.is_some()).count(), 400);
        assert_eq!(all.len(), 440);
        assert!(absent().all(|key| !all.contains_key(&key)));
    }
}
