//! When a slot is written and when the witness, and how a scan uses the witness.

use super::*;

/// The witness of this log vouches for records as a slot does, also with older slots or none.
#[test]
fn the_witness_vouches_too() {
    let mut file = Written::new();
    file.record(b"one").synced().record(b"two");
    let page = file.framer.witnessed(file.framer.tail()).expect("a slot vouches for the page");
    assert_eq!(file.framer.unsynced_bytes(), 0);
    file.record(b"three");
    let witness = Witness::decode(&page).expect("whole");
    let scanned = |bytes: &[u8], boot, witness| {
        scan(&Expected { witness: Some(witness), ..expected(boot, None) }, bytes)
            .map(|scan| (scan.records().count(), scan.durable_to, scan.same_boot))
    };
    let durable_to = file.points[2].bytes;
    let mut without_slots = file.bytes.clone();
    without_slots[PAGE_BYTES..RECORDS_FROM as usize].fill(0);
    // The `synced to` of the third record counts too.
    without_slots[file.at(2)..].fill(0);
    for (bytes, records) in [(&file.bytes, 3), (&without_slots, 2)] {
        for boot in [BOOT, OTHER_BOOT, 0] {
            let found = scanned(bytes, boot, witness).expect("sound");
            assert_eq!(found, (records, durable_to, boot == BOOT));
            let mut damaged = bytes.clone();
            damaged[file.at(1) + 24] ^= 1;
            assert_eq!(corrupt_part(scanned(&damaged, boot, witness)), BY_WITNESS);
            let of_another = Witness { uid: UID + 1, ..witness };
            let told = scanned(&without_slots, boot, of_another).expect("it says nothing of this log");
            assert_eq!(told, (2, file.points[1].bytes, false));
        }
    }
    let durable = FramePoint { chain: 5, ..witness.durable };
    assert_eq!(
        corrupt_part(scanned(&file.bytes, BOOT, Witness { durable, ..witness })),
        "the chain of records"
    );
    let durable = FramePoint { bytes: durable_to + 8, ..witness.durable };
    assert_eq!(corrupt_part(scanned(&file.bytes, BOOT, Witness { durable, ..witness })), BY_WITNESS);
    // A slot with the same position wins, because its boot id may say that remains follow.
    let (offset, page) = file.framer.clone().synced_before_failed_tail(file.points[2]);
    file.bytes[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
    assert!(!scanned(&file.bytes, BOOT, witness).expect("sound").2);
}

/// Every page in which synced records end has a slot for one of them; later records of the page have the
/// witness.
#[test]
fn a_slot_a_page() {
    let header = header(FileKind::Log);
    let mut framer = Framer::new(header, RECORDS_FROM + 8 * PAGE_BYTES as u64, BOOT);
    framer.first_pages();
    let mut slots = Vec::new();
    // Records of 1,024 bytes behind a first one that ends at byte 40 of a page; each later end is 1,024 bytes
    // further.
    for bytes in [16].into_iter().chain([1000; 16]) {
        framer.frame(1, &vec![1; bytes], &mut Vec::new());
        let end = framer.tail();
        match framer.witnessed(end) {
            Some(page) => {
                let expected = Witness { uid: UID, durable: end, boot_id: BOOT };
                assert_eq!(Witness::decode(&page), Ok(expected));
            }
            None => {
                assert!(framer.unsynced_bytes() > 0, "nothing is noted yet");
                framer.synced(end);
                slots.push(end.bytes - RECORDS_FROM);
            }
        }
        assert_eq!(framer.unsynced_bytes(), 0);
    }
    assert_eq!(slots, [40, 4096 + 40, 2 * 4096 + 40, 3 * 4096 + 40, 4 * 4096 + 40]);
    // A record that ends at the end of a page belongs to that page.
    let rest = framer.room_bytes() % PAGE_BYTES;
    framer.frame(1, &vec![1; rest], &mut Vec::new());
    assert_eq!(framer.tail().bytes % PAGE_BYTES as u64, 0);
    assert!(framer.witnessed(framer.tail()).is_some());
    framer.frame(1, &[1; 8], &mut Vec::new());
    assert!(framer.witnessed(framer.tail()).is_none());
}

/// Good records may stand behind the recorded end if a slot without a boot id says that a full disk refused
/// them.
#[test]
fn refused_records_may_stand_behind_the_promised_end() {
    let mut file = Written::new();
    file.record(b"one").record(b"two").record(b"three");
    let upto = |recorded_end, bytes: &[u8]| {
        scan(&expected(OTHER_BOOT, Some(recorded_end)), bytes).map(|scan| payloads(&scan).len())
    };
    let mut refused = file.bytes.clone();
    let (offset, page) = file.framer.clone().synced_before_failed_tail(file.points[3]);
    refused[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
    assert_eq!(corrupt_part(upto(file.points[2], &refused)), BY_SLOT);
    let mut framer = Framer::new(header(FileKind::Log), FILE_BYTES as u64, BOOT);
    framer.first_pages();
    let mut out = Vec::new();
    ["one", "two"].iter().zip(1..).for_each(|(text, number)| framer.frame(number, text.as_bytes(), &mut out));
    let (offset, page) = framer.synced_before_failed_tail(file.points[2]);
    let mut refused = file.bytes.clone();
    refused[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
    assert_eq!(upto(file.points[2], &refused).expect("a full disk refused what is behind"), 2);
}
