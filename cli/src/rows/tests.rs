//! Rows: what each format accepts, what it refuses and that positions are exact.

use super::*;

fn shape(format: Format) -> Shape {
    Shape { format, key: None, value: None, header: true }
}

fn with_file<R>(text: &[u8], work: impl FnOnce(&Path) -> R) -> R {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, text).expect("it takes the text");
    work(file.path())
}

fn all_rows(text: &[u8], shape: Shape) -> Result<Vec<Row>, Failure> {
    with_file(text, |path| {
        let mut rows = Rows::open(path, shape)?;
        std::iter::from_fn(|| rows.next().transpose()).collect()
    })
}

fn pairs(text: &str, shape: Shape) -> Vec<(String, String)> {
    let text_of = |bytes| String::from_utf8(bytes).expect("text in, text out");
    let pair = |row| match row {
        Row::Item(item) => (text_of(item.key), text_of(item.value)),
        Row::Bad { line, reason } => (line.to_string(), format!("bad: {reason}")),
    };
    all_rows(text.as_bytes(), shape).expect("the header is good").into_iter().map(pair).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Which columns make the item, with and without a header and names.
#[test]
fn columns_are_chosen_by_name_or_default() {
    let csv = shape(Format::Csv);
    let text = "id,name\n1,Ann\n2,\"B, ob\"\n";
    let whole = [("1", r#"{"id":"1","name":"Ann"}"#), ("2", r#"{"id":"2","name":"B, ob"}"#)];
    assert_eq!(pairs(text, csv.clone()), owned(&whole));
    let named = Shape { key: Some("name".into()), value: Some("id".into()), ..csv.clone() };
    assert_eq!(pairs(text, named), owned(&[("Ann", "1"), ("B, ob", "2")]));
    assert_eq!(pairs("value,key\nv,k\n", csv.clone()), owned(&[("k", "v")]));
    let bare = Shape { header: false, ..csv.clone() };
    assert_eq!(pairs("a,b\n", bare.clone()), owned(&[("a", "b")]));
    assert_eq!(pairs("a,b,c\n", bare), owned(&[("a", r#"{"1":"a","2":"b","3":"c"}"#)]));
    let missing = Shape { key: Some("mail".into()), ..csv };
    let error = all_rows(text.as_bytes(), missing).expect_err("no such column").to_string();
    assert!(error.contains("no column \"mail\"; there are id, name"), "{error}");
}

/// CSV's corners: quotes, line breaks in fields, CRLF, blank lines, a mark at the start, no line break at the
/// end.
#[test]
fn csv_corners() {
    let csv = shape(Format::Csv);
    let text = "\u{feff}key,value\r\n\r\na,\"x\r\ny \"\"q\"\"\"\r\nb,5\" disk\r\nc,";
    assert_eq!(pairs(text, csv.clone()), owned(&[("a", "x\r\ny \"q\""), ("b", "5\" disk"), ("c", "")]));
    assert_eq!(pairs("key,value,hex\n41,4242,kv\n\"\",\"a\",\n", csv), owned(&[("A", "BB"), ("", "a")]));
}

/// Bad rows are told with their line, and the next row is read as if they were not there.
#[test]
fn bad_rows_do_not_spoil_the_next() {
    let text = "key,value\na,1\nb\nc,\"2\"x\nd,\"open\ne,5\nf,6,7\n";
    let expected = [
        ("a", "1"),
        ("3", "bad: 1 fields, where 2 are expected"),
        ("4", "bad: field 2 has text after its closing quote"),
        ("5", "bad: a quote that is opened here is never closed"),
        ("e", "5"),
        ("7", "bad: 3 fields, where 2 are expected"),
    ];
    assert_eq!(pairs(text, shape(Format::Csv)), owned(&expected));
}

/// Tab-separated fields keep quotes and unknown escapes, and bring line breaks as escapes.
#[test]
fn tsv_has_escapes_and_no_quotes() {
    let text = "key\tvalue\na\\tb\t\"x\\ny\nn\t\\N\\\n";
    assert_eq!(pairs(text, shape(Format::Tsv)), owned(&[("a\tb", "\"x\ny"), ("n", "\\N\\")]));
}

/// JSON lines: strings are text, numbers keep their digits, whole rows keep their bytes; the faults are
/// named.
#[test]
fn json_lines() {
    let lines = shape(Format::Jsonl);
    let keyed = Shape { key: Some("id".into()), ..lines.clone() };
    let text =
        "{\"id\": 1.10, \"x\": [1]}\n\n{\"id\":\"\\u00e9\"}\n{\"x\":1}\n{\"id\":null}\n[1]\n{\"id\":\n";
    let rows = pairs(text, keyed.clone());
    assert_eq!(rows[..2], owned(&[("1.10", "{\"id\": 1.10, \"x\": [1]}"), ("é", "{\"id\":\"\\u00e9\"}")]));
    let faults = ["no field \"id\"", "cannot be a key", "not a JSON object", "not a JSON object"];
    for (row, fault) in rows[2..].iter().zip(faults) {
        assert!(row.1.contains(fault), "{row:?}");
    }
    let valued = Shape { value: Some("x".into()), ..keyed };
    assert_eq!(pairs("{\"id\": 1.10, \"x\": [1, 2]}", valued), owned(&[("1.10", "[1, 2]")]));
    assert_eq!(pairs("{\"key_hex\":\"41\",\"value_hex\":\"4242\"}", lines), owned(&[("A", "BB")]));
}

/// From the position after any row, the rest of the file reads the same, in all formats.
#[test]
fn positions_are_exact() {
    let csv = "key,value\r\na,\"1\n2\"\r\n\r\nbad\r\nc,3";
    let tsv = "key\tvalue\na\t1\nbad\nc\t3\n";
    let json = "{\"key\":\"a\",\"value\":\"1\"}\nbad\n{\"key\":\"c\",\"value\":\"3\"}\n";
    for (format, text) in [(Format::Csv, csv), (Format::Tsv, tsv), (Format::Jsonl, json)] {
        let all = all_rows(text.as_bytes(), shape(format)).expect("the header is good");
        assert_eq!(all.len(), 3);
        with_file(text.as_bytes(), |path| {
            for passed in 0..=all.len() {
                let mut first = Rows::open(path, shape(format)).expect("it opens");
                for row in &all[..passed] {
                    assert_eq!(first.next().expect("it reads").as_ref(), Some(row));
                }
                let mut second = Rows::open(path, shape(format)).expect("it opens");
                second.seek(first.position()).expect("a file can seek");
                for row in &all[passed..] {
                    assert_eq!(second.next().expect("it reads").as_ref(), Some(row));
                }
                assert_eq!(second.next().expect("it reads"), None);
                assert_eq!(second.position().offset, text.len() as u64);
            }
        });
    }
}

/// A line over the limit is passed over whole, and its neighbours are read.
#[test]
fn long_lines_are_passed_over() {
    with_file(b"short\nmuch too long for this\nlast", |path| {
        let mut lines = Lines::open(path).expect("it opens");
        let mut line = Vec::new();
        assert_eq!(lines.append_line(&mut line, 8).expect("it reads"), Line::Read);
        assert_eq!(lines.append_line(&mut line, 8).expect("it reads"), Line::TooLong);
        assert_eq!(lines.append_line(&mut line, 8).expect("it reads"), Line::Read);
        assert_eq!(lines.append_line(&mut line, 8).expect("it reads"), Line::End);
        assert_eq!(line, b"short\nlast");
        assert_eq!(lines.position(), Position { offset: 33, lines: 3 });
    });
}

/// Every byte, line breaks, quotes and separators come back through each format's writer and reader.
#[test]
fn what_is_written_is_read_back() {
    let mut items: Vec<(Vec<u8>, Vec<u8>)> =
        (0..=255_u8).map(|byte| (vec![byte], vec![b'v', byte, b'"'])).collect();
    items.extend([
        (b"".to_vec(), b"".to_vec()),
        (b"a,b\t\"c\"\r\nd\\n".to_vec(), "\u{feff}grün\u{0}".as_bytes().to_vec()),
        (b"  spaces ".to_vec(), b"\n".to_vec()),
        (b"k".to_vec(), b"\\".to_vec()),
        ("\u{202e}gnp.exe".as_bytes().to_vec(), "\u{1b}[31m\u{85}\u{e0041}".as_bytes().to_vec()),
    ]);
    let readers = [write::Reader::Program, write::Reader::Terminal];
    for (format, reader) in readers
        .into_iter()
        .flat_map(|reader| [Format::Csv, Format::Tsv, Format::Jsonl].map(|format| (format, reader)))
    {
        let (mut text, mut scratch) = (Vec::new(), Vec::new());
        write::write_header(format, &mut text).expect("a Vec takes every write");
        for (key, value) in &items {
            write::write_item((format, reader), (key, value), &mut scratch, &mut text)
                .expect("a Vec takes every write");
        }
        let rows = all_rows(&text, shape(format)).expect("the header is good");
        let read: Vec<(Vec<u8>, Vec<u8>)> = rows
            .into_iter()
            .map(|row| match row {
                Row::Item(item) => (item.key, item.value),
                Row::Bad { line, reason } => panic!("{format:?} line {line}: {reason}"),
            })
            .collect();
        assert_eq!(read, items, "{format:?}");
        let text = String::from_utf8(text).expect("every format is UTF-8");
        let is_safe = format == Format::Jsonl || reader == write::Reader::Terminal;
        assert_eq!(text.contains(crate::text::is_unsafe), !is_safe, "{format:?} for {reader:?}");
    }
}

/// What CSV writes, an independent reader reads as the same fields.
#[test]
fn an_independent_reader_agrees() {
    let fields: [&[u8]; 5] = [b"plain", b"a,b", b"say \"hi\"", b"two\nlines\r\n", b" padded "];
    let mut row = Vec::new();
    for field in fields {
        super::csv::write_field(field, &mut row);
        row.push(b',');
    }
    row.extend_from_slice(b"end\n");
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_slice());
    let read = reader.byte_records().next().expect("one row").expect("it is good CSV");
    assert!(read.iter().take(5).eq(fields));
    let mut machine = super::csv::Machine::default();
    assert!(
        row.split_inclusive(|byte| *byte == b'\n').any(|line| machine.feed(line) == super::csv::Fed::Row)
    );
    assert!(machine.fields().iter().map(Vec::as_slice).eq(read.iter()));
}

/// The corpus of the fuzz target, in every format: a row takes bytes, all bytes are read, and a row is the
/// same when it is read again from where it began.
#[test]
fn the_fuzzed_corpus_has_no_findings() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/import");
    let mut rows_seen = 0;
    for entry in std::fs::read_dir(corpus).expect("it is in the tree") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        let text = bytes.get(1..).unwrap_or_default();
        for format in [Format::Csv, Format::Tsv, Format::Jsonl] {
            for header in [true, false] {
                with_file(text, |path| {
                    let Ok(mut rows) = Rows::open(path, Shape { header, ..shape(format) }) else { return };
                    let mut at = rows.position();
                    while let Some(row) = rows.next().expect("a file is read") {
                        let end = rows.position();
                        assert!(end.offset > at.offset, "a row takes bytes");
                        if let Row::Item(item) = &row {
                            rows.seek(item.at).expect("a position it gave");
                            assert_eq!(rows.next().expect("is read").as_ref(), Some(&row));
                            assert_eq!(rows.position(), end);
                        }
                        at = end;
                        rows_seen += 1;
                    }
                    assert_eq!(rows.position().offset, text.len() as u64);
                });
            }
        }
    }
    assert!(rows_seen > 20, "{rows_seen}");
}
