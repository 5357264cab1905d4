//! import and export: items are unchanged by a round trip in every format, and bad rows are reported.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Place, of_output, words};

/// Items with all bytes that could break a format.
fn awkward_items() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut items: Vec<(Vec<u8>, Vec<u8>)> =
        (0..=255_u8).map(|byte| (vec![b'k', byte], vec![byte, b'"', byte, b','])).collect();
    items.extend([
        (b"quote \"q\", tab\t, newline\r\n, \\n".to_vec(), "grün 🦀 \u{1f}\u{0}".as_bytes().to_vec()),
        (b" padded ".to_vec(), b"".to_vec()),
        (b"long".to_vec(), vec![b'x'; 50_000]),
    ]);
    items.sort();
    items
}

/// The items as a file of JSON lines, with every byte in digits.
fn as_hex_lines(items: &[(Vec<u8>, Vec<u8>)]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    items
        .iter()
        .map(|(key, value)| json!({"key_hex": hex(key), "value_hex": hex(value)}).to_string() + "\n")
        .collect()
}

/// Every format restores every item, through a file and through a pipe, and leaves nothing else in the
/// directory.
#[test]
fn every_format_is_reversible() {
    let place = Place::new();
    let items = awkward_items();
    let file = place.with_file("items.jsonl", as_hex_lines(&items));
    let report = place.run("import", ["first", words(&file)]).ok();
    assert!(report.starts_with(&format!("imported {} items", items.len())), "{report}");
    let expected = place.run("scan", ["first", "--hex"]).ok();
    assert_eq!(expected.lines().count(), items.len());
    for format in ["csv", "tsv", "jsonl"] {
        let file = place.file(&format!("out.{format}"));
        let exported = place.run("export", ["first", words(&file), "--json"]).ok();
        let exported: Value = serde_json::from_str(&exported).expect("it is JSON");
        assert_eq!(exported["exported"].as_u64(), Some(items.len() as u64));
        place.run("import", [format, words(&file)]).ok();
        assert_eq!(place.run("scan", [format, "--hex"]).ok(), expected, "{format}");
        let piped = place.run("export", ["first", "--format", format]).ok();
        assert_eq!(piped.as_bytes(), std::fs::read(&file).expect("it is there"), "{format}");
    }
    let left = std::fs::read_dir(place.directory.path()).expect("it is there");
    let hidden =
        left.filter(|entry| entry.as_ref().is_ok_and(|entry| words(&entry.path()).contains("export")));
    assert_eq!(hidden.count(), 0);
}

/// An independent CSV reader reads the same text from an export.
#[test]
fn independent_readers_read_exported_csv() {
    let place = Place::new();
    let value = "say \"hi\",\nthen\r\ngo; grün";
    place.run("put", ["k", "a,b", value]).ok();
    let text = place.run("export", ["k", "--format", "csv"]).ok();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("it is good CSV")).collect();
    assert_eq!(rows, [vec!["a,b", value, ""]]);
}

/// A table with columns is imported as JSON rows under the key column, or as one value column.
#[test]
fn columns_of_a_table() {
    let place = Place::new();
    let file = place.with_file("people.csv", "id,name,city\r\n7,Ann,\"Ulm, DE\"\r\n8,Bo,\"two\nlines\"\r\n");
    place.run("import", ["people", words(&file), "--key", "id"]).ok();
    let row: Value = serde_json::from_str(&place.run("get", ["people", "8"]).ok()).expect("it is JSON");
    assert_eq!(row, json!({"id": "8", "name": "Bo", "city": "two\nlines"}));
    place.run("import", ["cities", words(&file), "--key", "name", "--value", "city"]).ok();
    assert_eq!(place.run("scan", ["cities"]).ok(), "Ann\tUlm, DE\nBo\ttwo\\nlines\n");
    let error = place.run("import", ["people", words(&file), "--key", "mail"]).failed(3);
    assert!(error.contains("no column \"mail\"; there are id, name, city"), "{error}");
}

/// Rows can be piped in; the format must then be given.
#[test]
fn standard_input() {
    let place = Place::new();
    assert!(place.run("import", ["k", "-"]).failed(2).contains("--format"));
    let mut command = place.command("import", ["k", "-", "--format", "jsonl", "--key", "id", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"{\"id\":1,\"x\":[2]}\n{\"id\":\"b\"}").expect("it reads");
    let report = of_output(child.wait_with_output().expect("it ends")).ok();
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!((report["imported"].as_u64(), report["skipped"].as_u64()), (Some(2), Some(0)));
    assert_eq!(place.run("scan", ["k"]).ok(), "1\t{\"id\":1,\"x\":[2]}\nb\t{\"id\":\"b\"}\n");
}

/// A bad row stops the import with its line and its fault; the rows before it are imported. --skip-bad
/// resumes from there.
#[test]
fn bad_rows_are_told_and_skipped() {
    let place = Place::new();
    let large = "x".repeat(100_000);
    let text = format!("key,value\na,1\nb\nc,3\n{large},4\nd,5\n");
    let file = place.with_file("bad.csv", text);
    let error = place.run("import", ["k", words(&file)]).failed(3);
    assert!(error.contains("bad.csv, line 3: 1 fields, where 2 are expected"), "{error}");
    assert_eq!(place.run("import", ["k", words(&file), "--json"]).failed_json(3), "bad_row");
    assert_eq!(place.run("scan", ["k"]).ok(), "a\t1\n");
    let went_on = place.run("import", ["k", words(&file), "--skip-bad"]);
    assert!(went_on.error.contains("line 3: ") && went_on.error.contains("line 5: the key of 100000 bytes"));
    let report = went_on.ok();
    assert!(report.contains("2 bad rows left out") && report.contains("1 earlier"), "{report}");
    assert_eq!(place.run("scan", ["k"]).ok(), "a\t1\nc\t3\nd\t5\n");
    let error = place.run("import", ["again", words(&file.with_file_name("no.csv"))]).failed(3);
    assert!(error.contains("could not open"), "{error}");
}

/// An oversized item is reported by its line, after the rows before it are imported.
#[test]
fn oversized_items_are_told_by_line() {
    let place = Place::new();
    let large = "x".repeat(100_000);
    let file = place.with_file("big.tsv", format!("key\tvalue\na\t1\n{large}\t2\nb\t3\n"));
    let error = place.run("import", ["k", words(&file)]).failed(3);
    assert!(error.contains("big.tsv, line 3: the key of 100000 bytes is over the limit of"), "{error}");
    assert_eq!(place.run("scan", ["k"]).ok(), "a\t1\n");
}

/// A file whose import would lose data is refused with exit code 3 before a store is made.
#[test]
fn files_that_would_lose_something_are_refused() {
    let place = Place::new();
    let cases: [(&str, &[u8], &str); 8] = [
        ("twice.csv", b"id,name,name\n1,first,second\n", "two columns are called \"name\""),
        ("key.csv", b"key,key\na,b\n", "two columns are called \"key\""),
        ("note.csv", b"key,value,note\na,1,n\n", "the column \"note\" would be left out"),
        ("semicolons.csv", b"id;name\n1;Ann\n", "--separator ';'"),
        ("commas.tsv", b"id,name\n1,Ann\n", "--separator ','"),
        ("marked.csv", b"\xff\xfek\0e\0y\0\n\0", "iconv"),
        ("unmarked.jsonl", b"{\0\"\0k\0", "iconv"),
        ("open.csv", b"key,\"value\na,1\n", "line 1, the header: field 2 (column 5) opens a quote"),
    ];
    for (name, text, reason) in cases {
        let file = place.with_file(name, text);
        let error = place.run("import", ["k", words(&file), "--skip-bad"]).failed(3);
        assert!(error.contains(name) && error.contains(reason), "{error}");
        assert!(!place.store().exists(), "{name}");
    }
    let lines = place.with_file("twice.jsonl", "{\"key\":\"a\",\"value\":1,\"value\":2}\n");
    let error = place.run("import", ["k", words(&lines)]).failed(3);
    assert!(error.contains("twice.jsonl, line 1: two fields are called \"value\""), "{error}");
    assert_eq!(place.run("scan", ["k"]).ok(), "");
}

/// Files of other tools are read as intended.
#[test]
fn files_of_other_tools() {
    let place = Place::new();
    let cases: [(&str, &str, &[&str]); 5] = [
        ("mac.csv", "key,value\ra,1\rb,2\r", &[]),
        ("mac.tsv", "key\tvalue\ra\t1\rb\t2", &[]),
        ("excel.csv", "\u{feff}sep=;\r\nkey;value\r\na;1\r\nb;2\r\n", &[]),
        ("semicolons.csv", "key;value\na;1\nb;2\n", &["--separator", ";"]),
        ("pipes.csv", "a|1\nb|2", &["--separator", "|", "--no-header"]),
    ];
    for (name, text, options) in cases {
        let file = place.with_file(name, text);
        place.run("import", [name, words(&file)].iter().chain(options)).ok();
        assert_eq!(place.run("scan", [name]).ok(), "a\t1\nb\t2\n", "{name}");
    }
    let file = place.with_file("empty.csv", "key,value");
    let ran = place.run("import", ["none", words(&file)]);
    assert!(ran.error.contains("no rows beside its header; give --no-header"), "{ran:?}");
    assert!(ran.ok().starts_with("imported 0 items"));
    let file = place.with_file("a.jsonl", "");
    assert!(
        place.run("import", ["none", words(&file), "--separator", ";"]).failed(2).contains("csv and tsv")
    );
    assert!(place.run("import", ["none", words(&file)]).error.contains("no rows at all"));
}

/// A named pipe is read once, like standard input. Before, it was opened a second time for positions, which
/// took bytes from the rows.
#[cfg(target_os = "linux")]
#[test]
fn named_pipes() {
    let place = Place::new();
    let arguments = ["k", "/dev/stdin", "--format", "csv", "--batch", "10"];
    let mut command = place.command("import", arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let rows: String = (0..25_000).map(|number| format!("{number:06},{number}\n")).collect();
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(format!("key,value\n{rows}").as_bytes()).expect("it reads");
    drop(input);
    of_output(child.wait_with_output().expect("it ends")).ok();
    assert_eq!(place.run("scan", ["k"]).ok(), rows.replace(',', "\t"));
}

/// An export for spreadsheets is imported again byte for byte; jsonl has no such form.
#[test]
fn safe_exports_come_back() {
    let place = Place::new();
    place.run("put", ["k", "=1+1", "@SUM(A1)"]).ok();
    place.run("put", ["k", "plain", "\u{1b}[31m"]).ok();
    let file = place.file("safe.csv");
    place.run("export", ["k", words(&file), "--safe"]).ok();
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(text, "key,value,hex\n'=1+1,'@SUM(A1),KV\nplain,1b5b33316d,v\n");
    let before = place.all("k");
    place.run("import", ["copy", words(&file)]).ok();
    assert_eq!(place.all("copy"), before);
    assert_eq!(place.run("export", ["k", "--safe", "--json"]).failed_json(2), "usage");
}

/// A file with a corrected bad row differs from the one that was begun: the import says how to begin again.
#[test]
fn a_mended_row_is_imported_with_restart() {
    let place = Place::new();
    let file = place.with_file("rows.csv", "key,value\na,1\nb\nc,3\n");
    let error = place.run("import", ["k", words(&file)]).failed(3);
    assert!(error.contains("line 3") && error.contains("--restart"), "{error}");
    let file = place.with_file("rows.csv", "key,value\na,1\nb,2\nc,3\n");
    assert!(place.run("import", ["k", words(&file)]).failed(3).contains("--restart"));
    place.run("import", ["k", words(&file), "--restart"]).ok();
    assert_eq!(place.run("scan", ["k"]).ok(), "a\t1\nb\t2\nc\t3\n");
}
